"""Studies of AdaFocal's options: each varies one option, all else is as in the tables.

    python -m calib_jax.main --config configs/adafocal/studies.py:gammas --workdir runs/gammas

After the colon:

    gammas     CE, focal loss with gamma 3, 4 and 5, FLSD-53       figs. 1, 2, 8, 9 and 10
    calfocal   CalFocal, eqs. 2 and 3 with lambda 10 and 100       fig. 3 (b to d), appendix P
    bins       AdaFocal with 5, 10, 15, 20, 30 and 50 bins         appendix H
    gamma_max  AdaFocal with gamma up to 20, 50 and without limit  appendix N
    switch     AdaFocal on ImageNet, switching at 0.2 and at 0.5   figs. 4d and 5b

The first four train ResNet-50 on CIFAR-10 (cifar10.py; --config.model.name=resnet20 for a machine
without an accelerator), the last ResNet-50 on ImageNet (imagenet.py). The report and plots/ show the
calibration gap and the confidence of every bin, and error and ECE of validation and test over the epochs.

Published: the values; CE and FLSD-53 as references where a figure shows them.
Our choice: one seed (--config.seeds=0,1,2,3,4 for five); CalFocal with 15 bins.
"""

import math
import pathlib
import runpy

STUDIES = ("gammas", "calfocal", "bins", "gamma_max", "switch")


def get_config(study="gammas"):
    if study not in STUDIES:
        raise ValueError(f"study {study!r}: expected one of {', '.join(STUDIES)}")
    table = "imagenet.py" if study == "switch" else "cifar10.py"
    path = pathlib.Path(__file__).with_name(table)
    config = runpy.run_path(str(path))["get_config"]("resnet50")
    config.seeds = (0,)
    references = {
        "gammas": ["cross_entropy", "flsd53"],
        "calfocal": ["cross_entropy", "flsd53"],
        "switch": ["cross_entropy", "flsd53"],
    }.get(study, [])
    rows = {
        "gammas": {f"focal_{gamma}": {"of": "focal", "gamma": float(gamma)} for gamma in (3, 4, 5)},
        "calfocal": {
            f"calfocal_eq{equation}_{lam}": {
                "of": "calfocal", "lam": float(lam), "per_sample": equation == 2,
            }
            for equation in (2, 3)
            for lam in (10, 100)
        },
        "bins": {f"adafocal_{n}": {"of": "adafocal", "num_bins": n} for n in (5, 10, 15, 20, 30, 50)},
        "gamma_max": {
            "adafocal_20": {"of": "adafocal", "gamma_max": 20.0},
            "adafocal_50": {"of": "adafocal", "gamma_max": 50.0},
            "adafocal_inf": {"of": "adafocal", "gamma_max": math.inf},
        },
        "switch": {
            "adafocal_02": {"of": "adafocal", "switch": 0.2},
            "adafocal_05": {"of": "adafocal", "switch": 0.5},
        },
    }[study]  # fmt: skip
    config.method.variants = rows
    config.method.name = ",".join([*references, *rows])
    return config
