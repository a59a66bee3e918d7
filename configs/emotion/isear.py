"""ISEAR, and Emotion-Stimulus out of domain (Sim-MixUp and calibrated self-distillation).

    python -m calib_jax.main --config configs/emotion/isear.py:roberta --workdir runs/isear

After the colon: roberta for the rows of tables 1 to 4, 8, 9, 11 and 12, or electra for the row of LCL,
in a separate workdir. Needs in CALIB_JAX_DATA isear/ and emotion-stimulus/,
and models/roberta-base or models/electra-base-discriminator in the Hugging Face layout (or another as
config.model.pretrained).

Published: rate 2.5e-5, batch 32; fine-tuning with 3 % of Emotion-Stimulus, batch 8.
Shared settings, our choices, and how to select the rows of each table: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("roberta", "electra")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="roberta"):
    config = _BASE["base_config"](
        network, "isear", "emotion_stimulus", learning_rate=2.5e-5, batch_size=32
    )
    if network == "roberta":
        # 3 % of the set, of which 5 % are the training split; 0.2 for 1 %, 1.0 for 5 %.
        config.fine_tune.shares = (0.6,)
        config.fine_tune.batch_size = 8
    return config
