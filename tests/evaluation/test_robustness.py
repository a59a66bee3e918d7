"""Robustness of any predictor: no trainer, no data set, no network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import evaluation


def _brightness(weight: jax.Array, images: jax.Array) -> jax.Array:
    """Logits of 'bright' (1) against 'dark' (0): right as long as the mean stays on its side of 1/2."""
    margin = weight * (jnp.mean(images, axis=(1, 2, 3)) - 0.5)
    return jnp.stack([-margin, margin], axis=1)


def test_attack_flips_what_is_nearer_to_the_boundary_than_its_radius() -> None:
    levels = np.array([20, 110, 120, 150, 240], np.uint8)  # distances 0.42, 0.07, 0.03, 0.09, 0.44
    images = np.broadcast_to(levels[:, None, None, None], (5, 4, 4, 1)).copy()
    labels = np.array([0, 0, 0, 1, 0])  # the last is wrong from the start
    measured = evaluation.attack_accuracy(
        _brightness, jnp.float32(10), images, labels,
        eps=0.08, steps=12, restarts=2, seed=0, batch_size=2,
    )  # fmt: skip
    # Clean: four of five; attacked: those at 0.42 and 0.09.
    assert measured == {"clean_accuracy": pytest.approx(0.8), "accuracy": pytest.approx(0.4)}


def test_shift_metrics_after_a_temperature() -> None:
    logits = np.log(np.array([[0.9, 0.1], [0.9, 0.1]]))
    labels = np.array([0, 1])
    assert evaluation.shift_metrics(logits, labels) == {
        "accuracy": 0.5,
        "ece": pytest.approx(0.4, rel=1e-6),
    }
    # Temperature 2 makes 0.9 to 3 / (3 + 1).
    after = evaluation.shift_metrics(logits, labels, 2.0)
    assert after["ece_temperature"] == pytest.approx(0.25, rel=1e-6)


def test_means_over_corruptions() -> None:
    values = {("fog", 1): 0.1, ("fog", 5): 0.5, ("snow", 1): 0.3, ("snow", 5): 0.9}
    measured = evaluation.corruption_metrics(
        ["fog", "snow"], [1, 5], lambda name, severity: {"ece": values[name, severity]}
    )
    assert measured["mean"]["ece"] == pytest.approx(0.45)
    assert measured["severity"]["5"]["ece"] == pytest.approx(0.7)
    assert measured["type"]["fog"]["ece"] == pytest.approx(0.3)
    assert measured["each"]["snow"]["1"] == {"ece": 0.3}
