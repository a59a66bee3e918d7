"""CIFAR-100 x WRN-28-10: five operations up to a largest magnitude (AutoLabel, figs. 2 and 3).

    python -m calib_jax.main --config configs/autolabel/magnitude.py:10 --workdir runs/magnitude_10

After the colon: the largest magnitude, 2, 4, 6, 8 or 10, each in a separate workdir; their summaries
are the points of figure 3. Figure 2 is the panel of cross entropy, which is trained on none of the
operations, in plots/operations.png.

Published: rotation, posterize, solarize, shear X and shear Y, one at a random magnitude from 1 to the
largest, with one-hot labels and with AutoLabel; 5 runs. Shared settings: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("2", "4", "6", "8", "10")  # the arguments after the colon
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(largest="10"):
    if largest not in NETWORKS:
        raise ValueError(f"largest magnitude {largest!r}: expected one of {', '.join(NETWORKS)}")
    config = _BASE["cifar_config"]("cifar100")
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,randaug,randaug_autolabel"
    for method in (config.method.randaug, config.method.randaug_autolabel):
        method.ops = "rotate,posterize,solarize,shear_x,shear_y"
        method.max_magnitude = int(largest)
    config.method.randaug_autolabel.alpha = 0.01
    config.method.randaug_autolabel.validation_subset = 1000
    config.robustness.operations = ("rotate", "posterize", "solarize", "shear_x", "shear_y")
    return config
