"""SNLI, and MNLI out of domain (mixup guided by AUM and saliency, tables 1 to 3).

    python -m calib_jax.main --config configs/aum_mixup/snli.py:roberta --workdir runs/snli_roberta

After the colon: bert or roberta. The default methods are the rows of tables 1 and 2; for table 3 add
--config.method.name=aum_mixup_ls,no_saliency,no_aum,no_similar,no_dissimilar. Needs in CALIB_JAX_DATA
snli_1.0/, multinli_1.0/ and models/roberta-base or models/bert-base-uncased in the Hugging Face layout
(or another as config.model.pretrained).

Published: one affine map on the first token, no dropout before it; smoothing 0.01 for BERT and 0.003
for RoBERTa. Shared settings: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("bert", "roberta")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="roberta"):
    config = _BASE["base_config"](network, smoothing=0.01 if network == "bert" else 0.003)
    config.data.name = "snli"
    config.data.shift = ("mnli",)
    return config
