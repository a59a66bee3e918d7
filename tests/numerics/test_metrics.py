"""Numerics of every metric: see `_harness.py`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numerics._harness import (
    Batch,
    Case,
    Suite,
    check_invalid_labels,
    check_many_classes,
    check_types,
)

from calib_jax import metrics


def hard(b: Batch) -> dict[str, Any]:
    return {"logits": b.logits, "labels": b.labels}


def soft(b: Batch) -> dict[str, Any]:
    return {"logits": b.logits, "labels": b.soft}


def of_probs(b: Batch) -> dict[str, Any]:
    return {"probs": b.probs, "labels": b.labels}


def binary(b: Batch) -> dict[str, Any]:
    return {"confidence": b.confidence, "correct": b.correct}


def scored(b: Batch) -> dict[str, Any]:
    """Both kinds in every scene, as soon as there are two examples."""
    return {"scores": b.confidence, "positives": np.arange(b.n) % 2 * 1.0}


def bins(b: Batch) -> dict[str, Any]:
    count = np.array([4.0, 0.0, 3.0, 5.0])
    edges = np.array([0.0, 0.2, 0.25, 0.7, 1.0])
    sums = count * [0.1, 0.0, 0.4, 0.9], count * [0.5, 0, 0.3, 0.6]
    return {"stats": metrics.BinStats(count, *sums, edges)}


def merged(stats: metrics.BinStats) -> dict[str, jax.Array]:
    both = stats + stats
    return {
        "ece": both.ece(),
        "rms": both.ece(2),
        "mce": both.mce(),
        "accuracy": both.accuracy,
        "confidence": both.mean_confidence,
    }


def area_under_risk(**inputs: jax.Array) -> jax.Array:
    """A curve has a point for a row of weight 0 too; its area has not."""
    coverage, risk = metrics.risk_coverage(**inputs)
    return jnp.sum(jnp.diff(coverage, prepend=0 * coverage[:1]) * risk)


def area_under_roc(**inputs: jax.Array) -> jax.Array:
    false, true = metrics.roc_curve(**inputs)
    return jnp.sum(jnp.diff(false) * (true[1:] + true[:-1]) / 2)


def curve(**inputs: jax.Array) -> tuple[jax.Array, ...]:
    """What depends on the examples; the grid does not."""
    found = metrics.smooth_curve(bandwidth=0.1, **inputs)
    # Where the density is about 0 the accuracy is but rounding.
    return found.accuracy * found.density, found.density, found.error


def interval(logits: jax.Array, labels: jax.Array) -> metrics.Interval:
    key = jax.random.key(0)
    return metrics.bootstrap(metrics.nll, logits, labels, key=key, num_samples=6, batch_size=3)


def odds(b: Batch) -> np.ndarray:
    """Log odds of each class against the first, as logits of labels; finite, and far from [0, 1]."""
    return np.clip(b.logits, -1e4, 1e4) - 3


def label(b: Batch) -> dict[str, Any]:
    return {"logits": odds(b)[:, 0], "labels": (b.labels % 2).astype(np.int32)}


def label_probs(b: Batch) -> dict[str, Any]:
    return {"probs": b.probs[:, 0], "labels": (b.labels % 2).astype(np.int32)}


def independent(b: Batch) -> dict[str, Any]:
    """Several labels; each is 0 and 1 at least once, or its AUROC would not be defined."""
    labels = (odds(b) > -2.5).astype(np.int32)
    labels[:1], labels[-1:] = 0, 1
    return {"logits": odds(b), "labels": labels}


def sets(b: Batch) -> dict[str, Any]:
    return {"sets": b.probs >= np.median(b.probs, axis=1)[:, None], "labels": b.labels}


def without_labels(b: Batch) -> dict[str, Any]:
    return {"sets": sets(b)["sets"]}


def consistency(confidence: jax.Array, correct: jax.Array, weights: Any = None) -> Any:
    return metrics.consistency_test(
        metrics.ece, confidence, correct, key=jax.random.key(0), num_samples=4, weights=weights
    )


def simulated(confidence: jax.Array, correct: jax.Array, weights: Any = None) -> jax.Array:
    """What does not depend on which rows there are: draws are by position."""
    return consistency(confidence, correct, weights).value


def collected(logits: jax.Array, labels: jax.Array, weights: Any = None) -> jax.Array:
    batch = metrics.CalibrationError.from_model_output(logits, labels, weights=weights)
    return batch.merge(batch).compute()


of_logits = functools.partial(Case, padded=("logits",), rows=False, empty=True)
of_confidence = functools.partial(
    Case, inputs=binary, padded=("confidence", "correct"), rows=False, empty=True, wide=False
)
of_scores = functools.partial(
    Case, inputs=scored, padded=("scores",), rows=False, empty=True, wide=False, least=2
)

of_labels = functools.partial(Case, padded=("logits",), rows=False, empty=True, wide=False)
of_sets = functools.partial(Case, rows=False, empty=True, result="float32")


def proper(function: Any, soft_is_slow: bool = False, **more: Any) -> tuple[Case, Case]:
    return (
        of_logits(function, hard, labels="labels", **more),
        of_logits(function, soft, variant="soft", slow=soft_is_slow, **more),
    )


MASS = {"scheme": "mass"}
RMS = {"norm": 2}
slopes = {"grad": ("confidence",)}


class TestMetrics(Suite):
    room = metrics
    # Tuples of arrays, and the table of all metrics.
    exempt = frozenset(
        {
            *(
                "BrierDecomposition",
                "ConsistencyTest",
                "Interval",
                "MultilabelSummary",
                "SmoothCurve",
            ),
            *("METRICS", "Metric"),
        }
    )
    invalid = "raises"
    cases = (
        *proper(metrics.accuracy),
        *proper(metrics.nll, grad=("logits",)),
        *proper(metrics.brier_score, grad=("logits",)),
        *proper(metrics.refinement, grad=("logits",), soft_is_slow=True),
        *proper(metrics.inverse_temperature, soft_is_slow=True),
        of_logits(
            metrics.true_calibration_error,
            lambda b: {"probs": b.probs, "true_probs": b.soft},
            padded=("probs", "true_probs"),
            grad=("probs",),
            options={"num_bins": 3},
        ),
        of_logits(
            metrics.truth_summary,
            lambda b: {"logits": b.logits, "true_probs": b.soft},
            padded=("logits", "true_probs"),
            grad=("logits",),
        ),
        of_logits(metrics.f1, hard, labels="labels"),
        of_logits(
            metrics.f1, hard, variant="weighted", labels="labels", options={"average": "weighted"}
        ),
        # K x K by definition.
        of_logits(metrics.confusion_matrix, hard, labels="labels", wide=False, no_weight="kept"),
        of_logits(metrics.summary, hard, labels="labels", rtol=1e-8, slow=True),
        Case(metrics.top_label, hard, grad=("logits",)),
        Case(
            lambda **inputs: metrics.top_label(**inputs)[1],
            hard,
            name="top_label",
            variant="correct",
            labels="labels",
        ),
        Case(metrics.top_label, soft, variant="soft", grad=("logits",)),
        Case(metrics.top_label_probs, of_probs, grad=("probs",)),
        Case(
            lambda **inputs: metrics.top_label_probs(**inputs)[1],
            of_probs,
            name="top_label_probs",
            variant="correct",
            labels="labels",
        ),
        Case(metrics.predictive_entropy, lambda b: {"logits": b.logits}, grad=("logits",)),
        of_logits(
            metrics.classwise_ece, of_probs, padded=("probs",), labels="labels", grad=("probs",)
        ),
        of_logits(
            metrics.classwise_ece,
            of_probs,
            variant="mass",
            padded=("probs",),
            labels="labels",
            grad=("probs",),
            options=MASS | RMS,
            slow=True,
        ),
        Case(merged, bins, name="BinStats", wide=False, empty=False),
        of_confidence(metrics.bin_stats, no_weight="kept", **slopes),
        of_confidence(
            metrics.bin_stats,
            variant="mass",
            options=MASS | {"num_bins": 3},
            no_weight="kept",
            slope=False,  # the edges are held constant
            **slopes,
        ),
        of_confidence(
            metrics.bin_stats,
            variant="many bins",
            options={"num_bins": 300},
            slow=True,
            no_weight="kept",
            **slopes,
        ),
        of_confidence(
            lambda edges, **inputs: metrics.bin_stats(edges=edges, **inputs),
            inputs=lambda b: binary(b) | {"edges": np.array([0.0, 0.3, 0.6, 1.0])},
            name="bin_stats",
            variant="edges",
            no_weight="kept",
            **slopes,
        ),
        of_confidence(metrics.ece, **slopes),
        of_confidence(metrics.ece, variant="mass", options=MASS | {"num_bins": 3}, **slopes),
        of_confidence(
            metrics.ece, variant="rms", options=RMS | {"closed": "left"}, slow=True, **slopes
        ),
        of_confidence(metrics.mce, **slopes),
        of_confidence(metrics.ece_debiased, options={"num_bins": 3}, **slopes),
        of_confidence(
            metrics.ece_debiased,
            variant="norm 1",
            options={"num_bins": 3, "norm": 1},
            slow=True,
            **slopes,
        ),
        of_confidence(metrics.ece_sweep),
        of_confidence(metrics.ece_sweep, variant="width", options={"scheme": "width"}, slow=True),
        of_confidence(metrics.brier_decomposition, **slopes),
        of_confidence(metrics.smooth_ece, rtol=1e-8),
        of_confidence(curve, name="smooth_curve", rtol=1e-8),
        of_confidence(metrics.aurc),
        of_confidence(metrics.e_aurc),
        of_confidence(area_under_risk, name="risk_coverage"),
        of_scores(metrics.auroc),
        of_scores(metrics.fpr_at_tpr),
        of_scores(area_under_roc, name="roc_curve"),
        of_confidence(
            functools.partial(metrics.risk_at_coverage, coverage=0.5), name="risk_at_coverage"
        ),
        of_confidence(
            functools.partial(metrics.coverage_at_risk, risk=0.5), name="coverage_at_risk"
        ),
        Case(metrics.energy_score, lambda b: {"logits": b.logits}, grad=("logits",)),
        Case(metrics.max_logit_score, lambda b: {"logits": b.logits}, grad=("logits",)),
        of_confidence(consistency, name="consistency_test", padded=(), wide=False),
        of_confidence(simulated, name="consistency_test", variant="padding", modes=("jit",)),
        of_logits(collected, hard, name="CalibrationError", labels="labels", grad=("logits",)),
        of_labels(metrics.binary_ece, label_probs, padded=("probs",), grad=("probs",)),
        of_labels(
            metrics.binary_ece, label_probs, variant="top", padded=("probs",), options={"of": "top"}
        ),
        of_labels(metrics.binary_summary, label, least=2, slow=True, rtol=1e-8),
        of_labels(
            metrics.multilabel_summary, independent, least=2, slow=True, rtol=1e-8, wide=True
        ),
        of_sets(metrics.coverage, sets, labels="labels"),
        of_sets(metrics.worst_class_coverage, sets, labels="labels"),
        of_sets(metrics.size_stratified_coverage, sets, labels="labels"),
        of_sets(metrics.set_size, without_labels),
        Case(interval, hard, name="bootstrap", labels="labels", rows=False, empty=True),
    )


def test_the_whole_summary() -> None:
    """Its parts have cases of their own, and the rest of the suite takes it with `-m slow`."""
    (case,) = (c for c in TestMetrics.cases if c.public_name == "summary")
    check_types(case)
    check_invalid_labels(case, "raises")
    check_many_classes(case)
