"""SWAG, and HellaSWAG out of domain (mixup guided by AUM and saliency, tables 1 to 3).

    python -m calib_jax.main --config configs/aum_mixup/swag.py:roberta --workdir runs/swag_roberta

After the colon: bert or roberta. The default methods are the rows of tables 1 and 2; for table 3 add
--config.method.name=aum_mixup_ls,no_saliency,no_aum,no_similar,no_dissimilar. Needs in CALIB_JAX_DATA
swag/ and hellaswag/ and models/roberta-base or models/bert-base-uncased in the Hugging Face layout (or
another as config.model.pretrained).

Published: one affine map on the pooled first token of each choice; smoothing 0.3. Shared settings:
_base.py.
"""

import pathlib
import runpy

NETWORKS = ("bert", "roberta")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="roberta"):
    config = _BASE["base_config"](network, smoothing=0.3)
    config.data.name = "swag"
    config.data.shift = ("hellaswag",)
    config.model.options.head = "multiple_choice"
    return config
