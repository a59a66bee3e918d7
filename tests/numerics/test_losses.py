"""Numerics of every loss: see `_harness.py`."""

import functools
from typing import Any

import numpy as np
from numerics._harness import Batch, Case, Suite

from calib_jax import losses, metrics


def hard(b: Batch) -> dict[str, Any]:
    return {"logits": b.logits, "labels": b.labels}


def soft(b: Batch) -> dict[str, Any]:
    return {"logits": b.logits, "labels": b.soft}


def state(b: Batch) -> losses.AdaFocalState:
    gamma = np.array([-2.0, 0.2, 1.0, 20.0, -0.2])
    return losses.AdaFocalState(edges=np.array([0.1, 0.3, 0.35, 0.8]), gamma=gamma)


def bins(b: Batch) -> metrics.BinStats:
    count = np.array([4.0, 0.0, 3.0, 5.0])
    edges = np.array([0.0, 0.2, 0.25, 0.7, 1.0])
    return metrics.BinStats(count, count * [0.1, 0.0, 0.4, 0.9], count * [0.5, 0, 0.3, 0.6], edges)


def snapshot(b: Batch) -> dict[str, Any]:
    return {"state": state(b), "confidence": b.confidence, "correct": b.correct}


def snapshots(b: Batch) -> dict[str, Any]:
    confidences = np.stack([b.confidence, b.confidence**2, b.confidence[::-1]])
    return {
        "state": state(b),
        "confidences": confidences,
        "corrects": np.stack([b.correct, b.correct, 1 - b.correct]),
    }


def with_gamma(b: Batch) -> dict[str, Any]:
    return hard(b) | {"gamma": np.resize([0.5, 3.0, -2.0, 0.0], b.n)}


def answers(b: Batch) -> dict[str, Any]:
    """Yes/no labels: one for each class."""
    return {"logits": b.logits, "labels": (b.labels[:, None] + np.arange(b.num_classes)) % 2}


def soft_answers(b: Batch) -> dict[str, Any]:
    """One yes/no label, soft."""
    return {"logits": b.logits[:, 0], "labels": b.soft[:, 0]}


def views(b: Batch) -> dict[str, Any]:
    return {"logits": np.stack([b.logits, b.logits[:, ::-1], 0.5 * b.logits], axis=1)}


def taught(b: Batch) -> dict[str, Any]:
    return {
        "student_logits": b.logits,
        "teacher_logits": 0.7 * b.logits,
        "labels": b.labels,
        "weight": np.linspace(0.0, 1.0, b.n),
    }


def pairs(b: Batch) -> dict[str, Any]:
    features = b.rng.normal(size=(b.n, 5))
    return {"features": features, "labels": b.labels, "helper_logits": b.logits}


def loss(function: Any, **more: Any) -> tuple[Case, Case]:
    """A loss of logits and labels, with hard ones and with soft ones."""
    both = functools.partial(Case, function, grad=("logits",), **more)
    return both(hard, labels="labels"), both(soft, variant="soft", modes=("jit",))


class TestLosses(Suite):
    room = losses
    exempt = frozenset({"AdaFocalState"})  # a tuple of arrays
    cases = (
        *loss(losses.cross_entropy),
        *loss(losses.brier),
        *loss(losses.bsce_gra, slope=False),
        *loss(losses.logit_norm),
        *loss(losses.flsd53),
        *loss(losses.dual_focal),
        *loss(losses.mmce, rows=False, padded=("logits",)),
        *loss(losses.mmce_weighted, rows=False, padded=("logits",)),
        *loss(losses.mdca, rows=False, padded=("logits",)),
        *loss(losses.mbls, rows=False, padded=("logits",), options={"margin": 1.0}),
        Case(losses.focal, with_gamma, grad=("logits",), labels="labels"),
        Case(
            losses.focal,
            soft,
            variant="soft",
            grad=("logits",),
            options={"gamma": 0.5},
            modes=("jit",),
        ),
        Case(losses.inverse_focal, hard, grad=("logits",), labels="labels", options={"gamma": 2.0}),
        Case(
            losses.calfocal,
            lambda b: hard(b) | {"bins": bins(b)},
            variant="eq. 2",
            grad=("logits",),
            slope=False,
            labels="labels",
            options={"lam": 5.0, "per_sample": True},
        ),
        Case(
            losses.calfocal,
            lambda b: soft(b) | {"bins": bins(b)},
            variant="eq. 3",
            grad=("logits",),
            modes=("jit",),
            options={"lam": 5.0, "per_sample": False},
        ),
        Case(
            losses.adafocal,
            lambda b: hard(b) | {"state": state(b)},
            grad=("logits",),
            labels="labels",
        ),
        Case(
            losses.adafocal,
            lambda b: soft(b) | {"state": state(b)},
            variant="soft",
            grad=("logits",),
            modes=("jit",),
        ),
        Case(
            lambda zero: losses.adafocal_init(3, 2.0),
            lambda b: {"zero": np.zeros(1, np.int32)},
            name="adafocal_init",
            result="float32",
            empty=False,
            wide=False,
        ),
        Case(
            losses.adafocal_update,
            snapshot,
            carry="state",
            result="state",
            padded=("confidence", "correct"),
            no_weight="kept",
            rows=False,
        ),
        Case(losses.adafocal_trajectory, snapshots, rows=False, result="state"),
        Case(losses.jensen_shannon, views, grad=("logits",), memory=3 * 16),
        Case(
            losses.distillation,
            taught,
            grad=("student_logits",),
            labels="labels",
            options={"temperature": 2.0, "scale_student": True},
        ),
        Case(
            losses.teacher_annealing,
            lambda b: {"step": np.arange(b.n) / 2},
            empty=False,
            options={"total_steps": 5},
            wide=False,
        ),
        Case(
            losses.sigmoid_focal,
            lambda b: answers(b) | {"gamma": np.resize([0.5, 3.0, -2.0, 0.0], b.logits.shape)},
            grad=("logits",),
            labels="labels",
        ),
        Case(
            losses.sigmoid_focal,
            soft_answers,
            variant="soft",
            grad=("logits",),
            options={"gamma": 0.5},
            modes=("jit",),
        ),
        Case(
            losses.sigmoid_adafocal,
            lambda b: answers(b) | {"state": state(b)},
            grad=("logits",),
            labels="labels",
        ),
        Case(
            losses.sigmoid_adafocal,
            lambda b: soft_answers(b) | {"state": state(b)},
            variant="soft",
            grad=("logits",),
            modes=("jit",),
        ),
        Case(
            losses.label_aware_contrastive,
            pairs,
            grad=("features", "helper_logits"),
            padded=("features", "helper_logits"),
            labels="labels",
            alone=False,
            options={"tau": 0.3},
        ),
    )
