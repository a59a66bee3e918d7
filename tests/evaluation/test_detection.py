"""Out-of-distribution detection against scikit-learn, before and after temperature scaling."""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score, roc_curve

from calib_jax.evaluation import Evaluation, Predictions, detect
from calib_jax.posthoc import CALIBRATORS


def _predictions(n: int, scale: float, seed: int) -> Predictions:
    logits = scale * np.random.default_rng(seed).normal(size=(n, 4))
    return Predictions(logits.astype(np.float32), np.zeros(n, np.int32))


INSIDE, OUTSIDE = _predictions(120, 3.0, 0), _predictions(80, 1.5, 1)


def _evaluation(name: str, temperature: float) -> Evaluation:
    return Evaluation(name, {}, {}, {"temperature": [temperature]}, np.zeros(0), np.zeros(0))


def _expected(temperature: float, score: str) -> dict[str, float]:
    probs = softmax(np.concatenate([INSIDE.logits, OUTSIDE.logits]).astype(float) / temperature, 1)
    doubt = entropy(probs, axis=1) if score == "entropy" else 1 - probs.max(1)
    outside = np.repeat([0, 1], [120, 80])
    false, true, _ = roc_curve(outside, doubt, drop_intermediate=False)
    return {"auroc": roc_auc_score(outside, doubt), "fpr95": false[true >= 0.95 - 1e-9].min()}


def test_both_scores_before_and_after_the_first_temperature() -> None:
    evaluations = [
        _evaluation("uncalibrated", 9.0),
        _evaluation("focal_temperature", 8.0),
        _evaluation("temperature_ece_mass", 2.5),
        _evaluation("temperature", 7.0),
    ]
    found = detect(INSIDE, OUTSIDE, evaluations)
    assert found.keys() == {"entropy", "confidence"}
    for score, moments in found.items():
        assert list(moments) == ["before", "after"]
        for when, temperature in (("before", 1.0), ("after", 2.5)):
            assert moments[when] == pytest.approx(_expected(temperature, score), abs=1e-5)
            assert all(type(value) is float for value in moments[when].values())
    # The network is surer inside, and a temperature changes the order of examples of several classes.
    assert found["entropy"]["before"]["auroc"] > 0.6
    assert found["entropy"]["before"] != found["entropy"]["after"]


def test_without_temperature_there_is_no_after() -> None:
    for evaluations in ([], [_evaluation("uncalibrated", 9.0)]):
        found = detect(INSIDE, OUTSIDE, evaluations)
        assert [list(moments) for moments in found.values()] == [["before"], ["before"]]


def test_the_papers_temperature_is_the_best_of_its_grid() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 600).astype(np.int32)
    logits = (4 * (rng.normal(size=(600, 5)) + np.eye(5)[labels])).astype(np.float32)

    def ece_mass(temperature: float) -> float:
        probs = softmax(logits.astype(float) / temperature, 1)
        order = np.argsort(probs.max(1), kind="stable")
        gap = probs.max(1) - (probs.argmax(1) == labels)
        return sum(abs(part.sum()) for part in np.split(gap[order], 15)) / 600

    found = float(CALIBRATORS["temperature_ece_mass"](logits, labels).temperature)
    grid = np.arange(1, 101) / 10
    assert np.abs(grid - found).min() < 1e-6
    errors = [ece_mass(t) for t in grid]
    assert ece_mass(found) == pytest.approx(min(errors), abs=1e-5)
    assert found > 1.5, "these logits are too sure"
