"""The metric registry: complete, consistent, and in agreement with what is computed."""

import numpy as np
import pytest

from calib_jax import metrics

# Those of `summary`; the others come from elsewhere.
OF_A_DETECTION = {"error", "auroc", "fpr95"}
OF_REPORTS = {"gap", "disagreement", "mutual_information"}
OF_SETS = {"coverage", "set_size", "worst_class_coverage", "size_stratified_coverage"}
OF_LABELS = {
    *("base_rate", "mean_positive", "f1_positive", "brier_positive", "ece_positive"),
    *("ece_positive_mass", "smooth_ece_positive", "ece_top", "auroc_positive"),
}
OF_TRUTH = {
    *("true_accuracy", "true_ece", "true_ece_30", "true_gap", "expected_nll", "expected_brier"),
    "bayes_error",
}
OF_CLASSES = metrics.METRICS.keys() - OF_A_DETECTION - OF_REPORTS - OF_SETS - OF_LABELS - OF_TRUTH


def test_all_of_a_summary_is_registered() -> None:
    rng = np.random.default_rng(0)
    summary = metrics.summary(rng.normal(size=(50, 3)), rng.integers(0, 3, 50))
    assert summary.keys() == OF_CLASSES
    binary = metrics.binary_summary(rng.normal(size=50), rng.integers(0, 2, 50))
    assert binary.keys() - OF_CLASSES == OF_LABELS
    truth = metrics.truth_summary(rng.normal(size=(50, 3)), np.eye(3)[rng.integers(0, 3, 50)])
    assert truth.keys() == OF_TRUTH
    assert all(callable(getattr(metrics, name)) for name in OF_SETS)


def test_entries_are_complete_and_can_be_told_apart() -> None:
    entries = metrics.METRICS.values()
    assert [metric.key for metric in entries] == list(metrics.METRICS)
    for field in ("heading", "short_heading", "definition"):
        values = [getattr(metric, field) for metric in entries]
        assert all(values)
        assert len(set(values)) == len(values), field
    assert {metric.unit for metric in entries} == {"%", "nats", ""}


@pytest.mark.parametrize("key", sorted(OF_CLASSES - {"confidence"}))
def test_direction_is_that_of_better_predictions(key: str) -> None:
    labels = np.random.default_rng(0).integers(0, 3, 300)
    right = 8.0 * np.eye(3)[labels]
    wrong = 8.0 * np.eye(3)[(labels + (np.arange(300) % 2)) % 3]
    wrong[0] += 1e-3  # no two rows are the same
    better, worse = (float(metrics.summary(x, labels)[key]) for x in (right, wrong))
    assert (better > worse) if metrics.METRICS[key].higher_is_better else (better < worse)


def test_direction_of_labels() -> None:
    labels = np.random.default_rng(0).integers(0, 2, 300)
    right = 16.0 * labels - 8
    wrong = np.where(np.arange(300) % 2, right, -right)
    better, worse = metrics.binary_summary(right, labels), metrics.binary_summary(wrong, labels)
    for key in OF_LABELS:
        higher = metrics.METRICS[key].higher_is_better
        if higher is not None:
            assert (better[key] > worse[key]) if higher else (better[key] < worse[key]), key


def test_percent_is_in_headings_and_scale() -> None:
    ece, nll = metrics.METRICS["ece"], metrics.METRICS["nll"]
    assert (ece.heading, ece.short_heading) == ("ECE-15 equal width %", "ECE equal width %")
    assert (ece.scale, ece.is_percent) == (100, True)
    assert (nll.heading, nll.short_heading, nll.scale) == ("NLL (nats)", "NLL", 1)
