"""Fitting calibrators against probmetrics, netcal, torch L-BFGS, numpy and scipy."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks import _data, _plain_numpy
from benchmarks._harness import Call, Case, Contestant, on_device
from calib_jax import posthoc

SECONDS = 50
_GRID = np.arange(1, 501) / 100


def cases(quick: bool) -> Iterator[Case]:
    """The cases one by one."""
    logits, labels = _data.predictions(10_000, 10)
    yield _nll_temperature(logits, labels)
    yield _grid_temperature(logits, labels)
    yield _ensemble(logits, labels)
    yield _spline(logits, labels)


def _nll_temperature(logits: np.ndarray, labels: np.ndarray) -> Case:
    def fit(z: jax.Array, y: jax.Array) -> jax.Array:
        return posthoc.Temperature.fit(z, y).temperature

    def probmetrics() -> Call:
        import torch
        from probmetrics.calibrators import TemperatureScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        z = CategoricalLogits(torch.from_numpy(logits))
        y = torch.from_numpy(labels.astype(np.int64))

        def call() -> float:
            calibrator = TemperatureScalingCalibrator()
            calibrator.fit_torch(z, y)
            return 1 / calibrator.invtemp_

        return call

    def netcal() -> Call:
        from netcal.scaling import TemperatureScaling

        probs = _data.probabilities(logits.astype(np.float64))  # in float32 it returns 1

        def call() -> Any:
            calibrator = TemperatureScaling()
            calibrator.fit(probs, labels)
            return 1 / calibrator.temperature[0]

        return call

    def torch_lbfgs() -> Call:
        import torch

        from benchmarks import _plain_torch

        z, y = torch.from_numpy(logits), torch.from_numpy(labels.astype(np.int64))
        return lambda: _plain_torch.temperature(z, y, lr=0.1, max_iter=100)

    return Case(
        "temperature by NLL, N=10k, K=10",
        _ours(fit, logits, labels),
        [
            _ours_in_jit(fit, logits, labels),
            Contestant("probmetrics", probmetrics, torch=True, at_least=1.0),
            Contestant("netcal, float64", netcal, tolerance=1e-3, torch=True),
            Contestant("torch L-BFGS, lr 0.1, 100 steps", torch_lbfgs, tolerance=1e-2, torch=True),
        ],
        tolerance=1e-4,
        relative=True,
    )


def _grid_temperature(logits: np.ndarray, labels: np.ndarray) -> Case:
    def fit(z: jax.Array, y: jax.Array) -> jax.Array:
        return posthoc.Temperature.fit(z, y, criterion="ece", grid=_GRID).temperature

    def torch_loop() -> Call:
        import torch

        from benchmarks import _plain_torch

        z, y = torch.from_numpy(logits), torch.from_numpy(labels)
        grid = _GRID.tolist()
        return lambda: _plain_torch.grid_temperature(z, y, grid)

    return Case(
        "temperature by ECE-15 on 500 grid points, N=10k, K=10",
        _ours(fit, logits, labels),
        [
            _ours_in_jit(fit, logits, labels),
            Contestant(
                "numpy, vectorized",
                lambda: lambda: _plain_numpy.grid_temperature(logits, labels, _GRID),
                at_least=8.0,
            ),
            Contestant(
                "numpy, vectorized and tuned",
                lambda: lambda: _plain_numpy.grid_temperature_tuned(logits, labels, _GRID),
            ),
            Contestant("torch, loop over grid and bins", torch_loop, torch=True),
        ],
        tolerance=0.0101,  # one grid point: the curve is flat to the last digits of float32
    )


def _ensemble(logits: np.ndarray, labels: np.ndarray) -> Case:
    def fit(z: jax.Array, y: jax.Array) -> posthoc.EnsembleTemperature:
        return posthoc.EnsembleTemperature.fit(z, y)

    def our_probabilities(calibrator: posthoc.EnsembleTemperature) -> jax.Array:
        return calibrator(logits)

    def their_probabilities(result: tuple[float, np.ndarray]) -> np.ndarray:
        t, (first, second, third) = result
        scaled, plain = (_data.probabilities(logits / s) for s in (t, 1.0))
        return first * scaled + second * plain + third / logits.shape[1]

    return Case(
        "ETS, N=10k, K=10 (probabilities compared)",
        Contestant("calib_jax", lambda: on_device(fit, logits, labels), our_probabilities),
        [
            Contestant(
                "scipy L-BFGS-B, then SLSQP",
                lambda: lambda: _plain_numpy.ensemble_temperature(logits, labels),
                their_probabilities,
            )
        ],
        tolerance=1e-3,
    )


def _spline(logits: np.ndarray, labels: np.ndarray) -> Case:
    def fit(z: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        calibrator = posthoc.Spline.fit(z, y)
        return calibrator.scores, calibrator.values

    return Case(
        "spline, 6 knots, N=10k, K=10",
        _ours(fit, logits, labels),
        [Contestant("numpy lstsq", lambda: lambda: _plain_numpy.spline(logits, labels))],
        tolerance=1e-3,
    )


def _ours(fit: Any, *arrays: np.ndarray) -> Contestant:
    """`fit` as it stands: its input checks run outside jit and count."""
    return Contestant("calib_jax", lambda: on_device(fit, *arrays))


def _ours_in_jit(fit: Any, *arrays: np.ndarray) -> Contestant:
    return Contestant("calib_jax, inside jax.jit", lambda: on_device(jax.jit(fit), *arrays))
