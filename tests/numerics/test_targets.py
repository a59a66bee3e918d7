"""Numerics of every target: see `_harness.py`."""

from typing import Any

import numpy as np
from numerics._harness import Batch, Case, Suite

from calib_jax import targets


def confident(b: Batch) -> dict[str, Any]:
    return {"labels": b.labels, "confidence": np.linspace(0.1, 1.0, b.n)}


def one_hot(labels: Any, like: Any) -> Any:
    return targets.one_hot(labels, like.shape[-1])


def smooth(labels: Any, smoothing: Any, like: Any, kind: str) -> Any:
    return targets.smooth(labels, like.shape[-1], smoothing, kind)


def autolabel(labels: Any, confidence: Any, like: Any) -> Any:
    return targets.autolabel(labels, confidence, like.shape[-1])


def autolabel_mixup(like: Any, **arrays: Any) -> Any:
    return targets.autolabel_mixup(**arrays, num_classes=like.shape[-1])


def ccat(labels: Any, distance: Any, like: Any) -> Any:
    return targets.ccat(labels, distance, 0.3, like.shape[-1])


def bare(b: Batch) -> dict[str, Any]:
    """An array of no content that carries the number of classes."""
    return {"like": np.zeros((1, b.num_classes), bool)}


class TestTargets(Suite):
    room = targets
    cases = (
        Case(
            one_hot,
            lambda b: {"labels": b.labels} | bare(b),
            labels="labels",
            result="float32",
        ),
        Case(one_hot, lambda b: {"labels": b.soft} | bare(b), variant="soft", grad=("labels",)),
        Case(
            smooth,
            lambda b: {"labels": b.labels, "smoothing": np.linspace(0, 1, b.n)} | bare(b),
            variant="others",
            options={"kind": "others"},
            grad=("smoothing",),
            labels="labels",
        ),
        Case(
            smooth,
            lambda b: {"labels": b.soft, "smoothing": np.array(0.05)} | bare(b),
            variant="all",
            options={"kind": "all"},
            grad=("labels", "smoothing"),
        ),
        Case(
            targets.mix,
            lambda b: {"a": b.soft, "b": b.probs, "lam": np.linspace(0, 1, b.n)},
            grad=("a", "b", "lam"),
        ),
        Case(
            targets.mix,
            lambda b: {"a": b.rng.normal(size=(b.n, 2, 3, 1)), "b": np.ones((b.n, 2, 3, 1))},
            variant="images",
            options={"lam": 0.3},
            grad=("a", "b"),
            wide=False,
        ),
        Case(
            autolabel,
            lambda b: confident(b) | bare(b),
            grad=("confidence",),
            labels="labels",
        ),
        Case(
            autolabel_mixup,
            lambda b: (
                {
                    "labels_minor": b.labels[::-1].copy(),
                    "labels_major": b.labels,
                    "lam_minor": np.linspace(0.01, 0.49, b.n),
                    "confidence": np.linspace(0.1, 0.97, b.n),
                }
                | bare(b)
            ),
            grad=("lam_minor", "confidence"),
            labels="labels_major",
        ),
        Case(
            ccat,
            lambda b: {"labels": b.labels, "distance": np.linspace(0, 0.4, b.n)} | bare(b),
            grad=("distance",),
            labels="labels",
        ),
        Case(
            targets.autolabel_update,
            lambda b: {
                "confidence": np.linspace(0.7, 0.9, 6),
                "ece": np.linspace(0.0, 0.3, 6),
                "mean_confidence": np.linspace(0.5, 0.8, 6),
                "accuracy": np.array([0.5, 0.6, 0.55, 0.9, 0.2, 0.1]),
            },
            options={"alpha": 0.5},
            grad=("confidence", "ece"),
            empty=False,
            wide=False,
        ),
    )
