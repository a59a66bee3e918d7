"""EmpatheticDialogues, and SSEC out of domain (Sim-MixUp and calibrated self-distillation).

    python -m calib_jax.main --config configs/emotion/empathetic_dialogues.py:roberta --workdir runs/e_d

After the colon: roberta for the rows of tables 1 to 4, 8, 9, 11 and 12, or electra for the row of LCL,
in a separate workdir. Needs in CALIB_JAX_DATA empatheticdialogues/ and ssec-aggregated/,
and models/roberta-base or models/electra-base-discriminator in the Hugging Face layout (or another as
config.model.pretrained).

Published: rate 5e-5, batch 64; fine-tuning with 3 % of SSEC's training file, batch 16.
Shared settings, our choices, and how to select the rows of each table: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("roberta", "electra")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="roberta"):
    config = _BASE["base_config"](
        network, "empathetic_dialogues", "ssec", learning_rate=5e-5, batch_size=64
    )
    if network == "roberta":
        # 3 % of the set, of which 5 % are the training split; 0.2 for 1 %, 1.0 for 5 %.
        config.fine_tune.shares = (0.6,)
        config.fine_tune.batch_size = 16
    return config
