"""Calibration metrics against torchmetrics, netcal, verified_calibration, relplot, scikit-learn."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks import _data, _plain_numpy
from benchmarks._harness import Call, Case, Contestant, on_device
from calib_jax import metrics

SECONDS = 42
_SMALL, _LARGE = 10_000, 1_000_000


def cases(quick: bool) -> Iterator[Case]:
    """The cases one by one, so that only one's data is in memory."""
    sizes = (_SMALL,) if quick else (_SMALL, _LARGE)
    for n in sizes:
        yield _ece(n)
    yield _mass_ece(_SMALL)
    for num_classes in (10, 100):
        yield _classwise(_SMALL, num_classes)
    for norm in (2, 1):
        yield _debiased(_SMALL, norm)
    yield _sweep(_SMALL)
    for n in sizes:
        yield _smooth(n)
    for n in sizes:
        yield _auroc(n)


def _ece(n: int) -> Case:
    logits, labels = _data.predictions(n, 10)
    probs = _data.probabilities(logits)
    target = 20.0 if n == _LARGE else None
    # torchmetrics adds up float32 one after the other, which costs it digits: 2e-4 off at N=1M.
    rounding = 5e-4 if n == _LARGE else None

    def ours(p: jax.Array, y: jax.Array) -> jax.Array:
        return metrics.ece(*metrics.top_label_probs(p, y))

    def torchmetrics() -> Call:
        from torchmetrics.functional.classification import multiclass_calibration_error

        p, y = _tensors(probs, labels)
        return lambda: multiclass_calibration_error(p, y, num_classes=10, n_bins=15)

    def netcal() -> Call:
        from netcal.metrics import ECE

        return lambda: ECE(15).measure(probs, labels)

    return Case(
        f"ECE-15 of probabilities, N={_short(n)}, K=10",
        _ours(ours, probs, labels),
        [
            Contestant(
                "torchmetrics", torchmetrics, tolerance=rounding, torch=True, at_least=target
            ),
            Contestant("netcal", netcal, at_least=target),
            Contestant("numpy bincount", lambda: lambda: _plain_numpy.ece(probs, labels)),
        ],
        tolerance=2e-5,
    )


def _mass_ece(n: int) -> Case:
    confidence, correct = _data.top_label(*_data.predictions(n, 10))

    def torch_masks() -> Call:
        from benchmarks import _plain_torch

        c, r = _tensors(confidence, correct)
        return lambda: _plain_torch.mass_ece(c, r)

    return Case(
        f"equal-mass ECE-15, N={_short(n)}",
        _ours(lambda c, r: metrics.ece(c, r, scheme="mass"), confidence, correct),
        [
            Contestant("torch, mask per bin", torch_masks, torch=True),
            Contestant(
                "numpy, mask per bin", lambda: lambda: _plain_numpy.mass_ece(confidence, correct)
            ),
        ],
        tolerance=1e-5,
    )


def _classwise(n: int, num_classes: int) -> Case:
    logits, labels = _data.predictions(n, num_classes)
    probs = _data.probabilities(logits)

    def torch_masks() -> Call:
        from benchmarks import _plain_torch

        p, y = _tensors(probs, labels)
        return lambda: _plain_torch.classwise_ece(p, y)

    target = 300.0 if num_classes == 100 else None
    return Case(
        f"classwise ECE-15, N={_short(n)}, K={num_classes}",
        _ours(metrics.classwise_ece, probs, labels),
        [Contestant("torch, mask per class and bin", torch_masks, torch=True, at_least=target)],
        tolerance=1e-6,
    )


def _debiased(n: int, norm: int) -> Case:
    logits, labels = _data.predictions(n, 10)
    probs = _data.probabilities(logits)

    def ours(p: jax.Array, y: jax.Array) -> jax.Array:
        return metrics.ece_debiased(*metrics.top_label_probs(p, y), num_bins=10, norm=norm)

    def verified() -> Call:
        from calibration.utils import lower_bound_scaling_ce

        def call() -> Any:
            np.random.seed(0)  # norm 1 draws a thousand times
            return lower_bound_scaling_ce(
                probs, labels, p=norm, debias=True, num_bins=10, mode="top-label"
            )

        return call

    return Case(
        # As many examples in each bin: the remainder would go to other bins there than here.
        f"debiased ECE, L{norm}, 10 equal-mass bins, N={_short(n)}, K=10",
        _ours(ours, probs, labels),
        [Contestant("verified_calibration", verified)],
        tolerance=1e-5 if norm == 2 else 5e-4,
    )


def _sweep(n: int) -> Case:
    confidence, correct = _data.top_label(*_data.predictions(n, 10))
    return Case(
        f"ECE sweep, N={_short(n)}",
        _ours(metrics.ece_sweep, confidence, correct),
        [Contestant("numpy bincount", lambda: lambda: _plain_numpy.sweep_ece(confidence, correct))],
        tolerance=1e-5,
    )


def _smooth(n: int) -> Case:
    # relplot loses the part of the kernel's mass that it rounds to the last grid point, so there
    # are no confidences next to 1 here.
    confidence, correct = _data.confidences(n)

    def relplot() -> Call:
        import relplot

        relplot.config.use_logit_scaling = False  # the reflected Gaussian, as ours
        f, y = confidence.astype(np.float64), correct.astype(np.float64)
        return lambda: relplot.smECE(f, y)

    return Case(
        f"smooth ECE, N={_short(n)}",
        _ours(metrics.smooth_ece, confidence, correct),
        [Contestant("relplot", relplot, at_least=5.0 if n == _LARGE else None)],
        tolerance=5e-4,  # relplot's bandwidth is a multiple of 1/1024
    )


def _auroc(n: int) -> Case:
    scores, positives = _data.top_label(*_data.predictions(n, 10))
    hit = positives.astype(np.int64)

    def torchmetrics() -> Call:
        from torchmetrics.functional.classification import binary_auroc

        s, p = _tensors(scores, hit)
        return lambda: binary_auroc(s, p)

    def sklearn() -> Call:
        from sklearn.metrics import roc_auc_score

        return lambda: roc_auc_score(hit, scores)

    return Case(
        f"AUROC of being right, N={_short(n)}",
        _ours(metrics.auroc, scores, positives),
        [
            Contestant("torchmetrics", torchmetrics, torch=True),
            Contestant("scikit-learn", sklearn),
        ],
        tolerance=1e-5,
    )


def _ours(function: Callable[..., Any], *arrays: np.ndarray) -> Contestant:
    return Contestant("calib_jax", lambda: on_device(jax.jit(function), *arrays))


def _tensors(*arrays: np.ndarray) -> list[Any]:
    import torch

    return [torch.from_numpy(a) for a in arrays]


def _short(n: int) -> str:
    return f"{n // 1_000_000}M" if n >= 1_000_000 else f"{n // 1000}k"
