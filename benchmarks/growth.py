"""How cost grows with examples N, classes K, batch B and bins: the exponent of the best power law."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _data, _harness
from benchmarks._harness import Call, Fact, on_device
from calib_jax import augment, losses, metrics, posthoc

SECONDS = 60

_N = (10_000, 40_000, 160_000, 640_000)
_K = (10, 50, 200, 1000)
_B = (256, 1024, 4096)
_BINS = (10, 50, 250, 1000)
_LINEAR = 1.2  # caches, and the logarithm of a sort, are allowed for


class _Piece(NamedTuple):
    name: str
    along: str
    sizes: Sequence[int]
    make: Callable[[int], Call]
    at_most: float = _LINEAR


def cases(quick: bool) -> Iterator[Fact]:
    """Piece by piece; the sizes of a piece take turns."""
    rounds = _harness.QUICK_ROUNDS if quick else _harness.ROUNDS
    for piece in _PIECES:
        sizes = piece.sizes[:2] if quick else piece.sizes
        calls = {size: piece.make(size) for size in sizes}
        for call in calls.values():
            call()
        samples = _harness.take_turns(calls, rounds)
        seconds = [float(np.median(samples[size])) for size in sizes]
        power = exponent(sizes, seconds)
        yield Fact(
            "Medians at the smallest and at the largest size, and the slope of log time over log size "
            "(least squares over all sizes; where the call itself counts it is smaller).",
            {
                "piece": piece.name,
                "along": piece.along,
                "sizes": " → ".join(f"{size:,}" for size in (sizes[0], sizes[-1])),
                "ms at smallest": 1e3 * seconds[0],
                "ms at largest": 1e3 * seconds[-1],
                "exponent": power,
            },
            target=f"<= {piece.at_most:g}",
            reached=power <= piece.at_most,
            details={"sizes": list(sizes), "seconds": seconds},
        )


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """`p` of the `c size^p` that is nearest in least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _on_confidences(function: Callable[..., Any]) -> Callable[[int], Call]:
    return lambda n: on_device(jax.jit(function), *_data.confidences(n))


def _on_predictions(
    function: Callable[..., Any], *, n: int = 0, num_classes: int = 10
) -> Callable[[int], Call]:
    """Along `n`, or if it is given along the number of classes."""

    def make(size: int) -> Call:
        arrays = _data.predictions(n, size) if n else _data.predictions(size, num_classes)
        return on_device(jax.jit(function), *arrays)

    return make


def _of_bins(function: Callable[..., Any]) -> Callable[[int], Call]:
    return lambda bins: on_device(
        jax.jit(lambda c, r: function(c, r, bins)), *_data.confidences(100_000)
    )


def _slope(loss: Callable[..., Any]) -> Callable[..., Any]:
    return jax.value_and_grad(lambda z, y: jnp.mean(loss(z, y)))


def _adafocal(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return losses.adafocal(logits, labels, losses.adafocal_init())


def _update(confidence: jax.Array, correct: jax.Array, bins: int = 15) -> Any:
    return losses.adafocal_update(losses.adafocal_init(bins), confidence, correct)


def _ece(confidence: jax.Array, correct: jax.Array, bins: int = 15) -> jax.Array:
    return metrics.ece(confidence, correct, num_bins=bins)


def _mass_ece(confidence: jax.Array, correct: jax.Array, bins: int = 15) -> jax.Array:
    return metrics.ece(confidence, correct, num_bins=bins, scheme="mass")


def _classwise(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return metrics.classwise_ece(jax.nn.softmax(logits), labels)


def _temperature(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return posthoc.Temperature.fit(logits, labels).temperature


def _partners(logits: jax.Array, labels: jax.Array) -> Any:
    saliency = augment.saliency(logits, labels)
    return augment.partners(saliency[:16], saliency)


_PIECES = (
    _Piece("ECE-15", "N", _N, _on_confidences(_ece)),
    _Piece("equal-mass ECE-15", "N", _N, _on_confidences(_mass_ece)),
    _Piece("smooth ECE", "N", _N, _on_confidences(metrics.smooth_ece)),
    _Piece("AdaFocal's update", "N", _N, _on_confidences(_update)),
    _Piece("temperature by NLL", "N", _N, _on_predictions(_temperature)),
    _Piece("spline", "N", _N, _on_predictions(posthoc.Spline.fit)),
    _Piece("partners of 16", "N", _N, _on_predictions(_partners)),
    _Piece("classwise ECE-15, N=5k", "K", _K, _on_predictions(_classwise, n=5000)),
    _Piece("temperature by NLL, N=5k", "K", _K, _on_predictions(_temperature, n=5000)),
    _Piece("cross entropy, B=1024", "K", _K,
           _on_predictions(_slope(losses.cross_entropy), n=1024)),
    _Piece("AdaFocal, B=1024", "K", _K, _on_predictions(_slope(_adafocal), n=1024)),
    _Piece("cross entropy, K=100", "B", _B,
           _on_predictions(_slope(losses.cross_entropy), num_classes=100)),
    _Piece("AdaFocal, K=100", "B", _B, _on_predictions(_slope(_adafocal), num_classes=100)),
    _Piece("MMCE_w, K=100: all pairs", "B", _B,
           _on_predictions(_slope(losses.mmce_weighted), num_classes=100), at_most=2.2),
    _Piece("ECE, N=100k", "bins", _BINS, _of_bins(_ece), at_most=0.5),
    _Piece("equal-mass ECE, N=100k", "bins", _BINS, _of_bins(_mass_ece), at_most=0.5),
    _Piece("AdaFocal's update, N=100k", "bins", _BINS, _of_bins(_update), at_most=0.5),
)  # fmt: skip
