"""A part of QQP, and MSRP out of domain: mixup guided by AUM on two cores.

    python -m calib_jax.main --config configs/results/qqp.py:roberta --workdir runs/results_qqp_roberta

After the colon: bert or roberta. Differences from configs/aum_mixup/qqp.py: all-MiniLM-L6-v2 or a
RoBERTa of 30 million parameters (six layers, 384 wide each) in models/, 1,500 random training pairs,
1,000 of each other set, batches of 16, a rate of 1e-4, two seeds. Results: docs/results.md.
"""

import pathlib
import runpy

_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))
NETWORKS = _BASE["NETWORKS"]


def get_config(network="roberta"):
    config = _BASE["mixup_config"](network, smoothing=0.03)
    config.data.name = "qqp"
    config.data.shift = ("msrp",)
    return config
