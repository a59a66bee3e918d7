"""CIFAR-10 and CIFAR-100 x WRN-28-10: adversarial training (AutoLabel, tables III and IV, fig. 7).

    python -m calib_jax.main --config configs/autolabel/adversarial.py:cifar10:0.01 --workdir runs/attack

After the colon: cifar10 or cifar100, and after another colon the radius of all attacks in training,
with a separate workdir per radius: table III has 0.01, the default, table IV and fig. 7 have 0.03,
0.05 and 0.1. Cross entropy does not depend on the radius and is trained at 0.01 only: --compare takes
it from there for the accuracy difference. Label smoothing is adversarial_ls, of 0.02, at 0.01, and at
larger radii adversarial_ls_10, _20 and _30, of 0.1, 0.2 and 0.3, of which the table shows the best on
validation; adversarial_ls_01, ..., adversarial_ls_10 are its sweep at 0.01.
--config.model.name=resnet20 is for a machine without an accelerator.

Published: PGD with 10 steps of a quarter of the radius; 10 buckets; alpha 0.5 on CIFAR-10 and 0.005
on CIFAR-100 (for larger radii swept from 0.005 to 1); smoothing of 0.02 (for larger radii the best
of 0.1, 0.2 and 0.3); CCAT with rho 10; the test attack has radius 0.03, 50 steps and 3 restarts.
Our choice: a random start; the attack sees the network in evaluation mode and cross entropy with
hard labels; steps of a quarter of the radius in the test attack too; buckets on 1,000 validation
images; CCAT's labels are uniform at the largest radius (ccat_own_radius: at each example's radius, as
published). Shared settings: _base.py.
"""

import pathlib
import runpy

DATA = ("cifar10", "cifar100")
NETWORKS = tuple(f"{data}:{radius}" for data in DATA for radius in ("0.01", "0.03", "0.05", "0.1"))
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(data_and_radius="cifar10:0.01"):
    data, _, radius = data_and_radius.partition(":")
    if data not in DATA:
        raise ValueError(f"data {data!r}: expected one of {', '.join(DATA)}")
    eps = _radius(radius or "0.01")
    hundredths = range(1, 11) if eps <= 0.01 else (10, 20, 30)
    config = _BASE["cifar_config"](data)
    config.seeds = (0, 1)
    config.method.variants = {
        "adversarial_ls": {"of": "adversarial", "smoothing": 0.02},
        "adversarial_multiple": {"of": "adversarial", "multiple": True},
        "ccat_own_radius": {"of": "ccat", "own_radius": True},
        **_BASE["smoothing_variants"](["adversarial"], hundredths),
    }
    vanilla, smoothed = ["cross_entropy"], ["adversarial_ls"]
    if eps > 0.01:
        vanilla, smoothed = [], [f"adversarial_ls_{n}" for n in hundredths]
    rows = ["adversarial", "ccat", *smoothed, "adversarial_multiple", "adversarial_autolabel"]
    config.method.name = ",".join([*vanilla, *rows])
    for name in ("adversarial", "ccat", "adversarial_autolabel"):
        config.method[name].eps = eps
    config.method.adversarial_autolabel.alpha = 0.5 if data == "cifar10" else 0.005
    config.method.adversarial_autolabel.validation_subset = 1000
    config.robustness.attack_eps = 0.03
    return config


def _radius(text):
    try:
        eps = float(text)
    except ValueError:
        eps = 0.0
    if not 0 < eps < 1:
        raise ValueError(f"radius {text!r}: expected more than 0 and less than 1, such as 0.01")
    return eps
