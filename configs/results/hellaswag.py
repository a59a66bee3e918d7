"""A part of HellaSWAG, videos in domain and how-to articles out of it: mixup guided by AUM on two cores.

    python -m calib_jax.main --config configs/results/hellaswag.py:roberta --workdir runs/hellaswag

After the colon: bert or roberta. Differences from configs/aum_mixup/swag.py: all-MiniLM-L6-v2 or a
RoBERTa of 30 million parameters (six layers, 384 wide each) in models/, 120 random training situations,
120 of each other set, at most 96 tokens, batches of 8, a rate of 1e-4, one seed. Results:
docs/results.md.
"""

import pathlib
import runpy

_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))
NETWORKS = _BASE["NETWORKS"]


def get_config(network="roberta"):
    config = _BASE["mixup_config"](network, smoothing=0.3)
    config.seeds = (0,)
    config.data.name = "hellaswag"
    config.data.options.source = "activitynet"
    # The training rows have the start of the ending in the context, so the others must have it there too.
    config.data.options.whole_context = True
    config.data.num_train = 120
    config.data.num_eval = 120
    config.data.max_length = 96
    config.data.shift = ("hellaswag?source=wikihow&whole_context=True",)
    config.model.options.head = "multiple_choice"
    config.train.batch_size = 8
    config.train.eval_batch_size = 20
    return config
