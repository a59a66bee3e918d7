"""A part of SNLI, and of MNLI out of domain: mixup guided by AUM on two cores.

    python -m calib_jax.main --config configs/results/snli.py:roberta --workdir runs/results_snli_roberta

After the colon: bert or roberta. Differences from configs/aum_mixup/snli.py: all-MiniLM-L6-v2 or a
RoBERTa of 30 million parameters (six layers, 384 wide each) in models/, 1,500 random training pairs,
1,000 of each other set, batches of 16, a rate of 1e-4, two seeds. Results: docs/results.md.
"""

import pathlib
import runpy

_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))
NETWORKS = _BASE["NETWORKS"]


def get_config(network="roberta"):
    config = _BASE["mixup_config"](network, smoothing=0.01 if network == "bert" else 0.003)
    config.data.name = "snli"
    config.data.shift = ("mnli",)
    config.method.name += ",aum_mixup_each"
    # A step has a whole batch of each half, as in the published code: half as many updates.
    config.method.variants.aum_mixup_each = {"of": "aum_mixup", "batch_split": "each"}
    return config
