"""The metric registry: complete, consistent, and in agreement with what is computed."""

import numpy as np
import pytest

from calib_jax import metrics


def test_all_of_a_summary_is_registered() -> None:
    rng = np.random.default_rng(0)
    summary = metrics.summary(rng.normal(size=(50, 3)), rng.integers(0, 3, 50))
    # The others come from elsewhere: 1 - accuracy, and the detection of another set.
    assert summary.keys() == metrics.METRICS.keys() - {"error", "auroc", "fpr95"}


def test_entries_are_complete_and_can_be_told_apart() -> None:
    entries = metrics.METRICS.values()
    assert [metric.key for metric in entries] == list(metrics.METRICS)
    for field in ("heading", "short_heading", "definition"):
        values = [getattr(metric, field) for metric in entries]
        assert all(values)
        assert len(set(values)) == len(values), field
    assert {metric.unit for metric in entries} == {"%", "nats", ""}


@pytest.mark.parametrize(
    "key", sorted(set(metrics.METRICS) - {"confidence", "error", "auroc", "fpr95"})
)
def test_direction_is_that_of_better_predictions(key: str) -> None:
    labels = np.random.default_rng(0).integers(0, 3, 300)
    right = 8.0 * np.eye(3)[labels]
    wrong = 8.0 * np.eye(3)[(labels + (np.arange(300) % 2)) % 3]
    wrong[0] += 1e-3  # no two rows are the same
    better, worse = (float(metrics.summary(x, labels)[key]) for x in (right, wrong))
    assert (better > worse) if metrics.METRICS[key].higher_is_better else (better < worse)


def test_percent_is_in_headings_and_scale() -> None:
    ece, nll = metrics.METRICS["ece"], metrics.METRICS["nll"]
    assert (ece.heading, ece.short_heading) == ("ECE-15 equal width %", "ECE equal width %")
    assert (ece.scale, ece.is_percent) == (100, True)
    assert (nll.heading, nll.short_heading, nll.scale) == ("NLL (nats)", "NLL", 1)
