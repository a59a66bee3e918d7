"""QQP, and TwitterPPDB out of domain (mixup guided by AUM and saliency, tables 1 to 3).

    python -m calib_jax.main --config configs/aum_mixup/qqp.py:roberta --workdir runs/qqp_roberta

After the colon: bert or roberta. The default methods are the rows of tables 1 and 2; for table 3 add
--config.method.name=aum_mixup_ls,no_saliency,no_aum,no_similar,no_dissimilar. Needs in CALIB_JAX_DATA
QQP/ and TwitterPPDB/ and models/roberta-base or models/bert-base-uncased in the Hugging Face layout (or
another as config.model.pretrained).

Published: one affine map on the first token, no dropout before it; smoothing 0.03. Shared settings:
_base.py.
With two classes the saliency of logits points the same way for every example: all examples of the
other half are equally similar, each example takes two of them at random, and no_similar and
no_dissimilar differ only by chance. Examples can be told apart by the gradient with respect to the
features (aum_mixup_features), or by the clamp of the published code (aum_mixup_clamp), with which the
network's confidence in a partner counts.
"""

import pathlib
import runpy

NETWORKS = ("bert", "roberta")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="roberta"):
    config = _BASE["base_config"](network, smoothing=0.03)
    config.data.name = "qqp"
    config.data.shift = ("twitter_ppdb",)
    config.method.variants.aum_mixup_features = {"of": "aum_mixup", "saliency": "features"}
    return config
