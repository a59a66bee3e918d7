"""Options not set have the values of the papers, or of docs/methods.md where those are silent."""

import inspect

import pytest

from calib_jax import methods
from calib_jax.methods import Info, Phase

# AdaFocal: 15 bins, gamma from 1 on, lambda 1, S_th 0.2, gamma within -2 and 20; its baselines as there.
# Mixup guided by AUM: two halves, a tenth of the loss for each kind of partner, no smoothing.
# Sim-MixUp and CSD: Beta(5, 5), thirds for EA-MixUp, four generations; LCL: temperature 0.3.
# AutoLabel: table I's sizes and numbers of buckets, alpha of each augmentation; CCAT: rho 10.
PUBLISHED = {
    "label_smoothing": {"smoothing": 0.05},
    "mmce": {"weight": 2.0, "width": 0.4},
    "focal": {"gamma": 3.0},
    "dual_focal": {"gamma": 5.0},
    "calfocal": {"num_bins": 15},
    "adafocal": {
        "num_bins": 15, "gamma": 1.0, "lam": 1.0, "switch": 0.2, "gamma_max": 20.0, "gamma_min": -2.0
    },
    "mdca": {"weight": 1.0},
    "mbls": {"weight": 0.1, "margin": 10.0},
    "bsce_gra": {"norm": 2.0},
    "logit_norm": {"tau": 0.04},
    "aum_mixup": {"share": 0.5, "alpha": 0.4, "similar": 0.1, "dissimilar": 0.1, "smoothing": 0.0},
    "sim_mixup": {"share": 0.5, "alpha": 5.0},
    "ea_mixup": {"share": 0.33, "alpha": 5.0},
    "csd": {"generations": 4, "calibrated": True},
    "sd": {"generations": 4, "calibrated": False},
    "lcl": {"lam": 0.5, "tau": 0.3},
    "randaug": {"max_magnitude": 10, "smoothing": 0.0},
    "randaug_autolabel": {"max_magnitude": 10, "alpha": 0.01, "update_every": 1},
    "augmix_autolabel": {"num_buckets": 5, "magnitude": 3.0, "alpha": 0.02},
    "augmix_jsd": {"weight": 12.0, "magnitude": 3.0},
    "adversarial": {"eps": 0.01, "steps": 10},
    "adversarial_autolabel": {"eps": 0.01, "steps": 10, "num_buckets": 10, "alpha": 0.5},
    "mixup_autolabel": {"beta": 1.0, "num_buckets": 5, "alpha": 0.005},
    "ccat": {"eps": 0.01, "steps": 10, "rho": 10.0, "own_radius": False},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_options_of_a_method(name: str) -> None:
    found = methods.options(name)
    assert {key: found[key] for key in PUBLISHED[name]} == PUBLISHED[name]


def test_options_of_fine_tuning() -> None:
    """Beta(5, 5), and equal weights of the two losses."""
    parameters = inspect.signature(methods.fine_tuning).parameters
    assert (parameters["alpha"].default, parameters["mixed"].default) == (5.0, 0.5)


def test_a_training_is_of_one_network_and_a_result_of_nobody_unless_said() -> None:
    phase = Phase("train", methods.create("cross_entropy"))
    assert (phase.num_networks, phase.number, phase.owner, phase.is_result) == (1, 0, "", False)
    assert (Info(10, 2).total_steps, Info(10, 2).seed) == (0, 0)
