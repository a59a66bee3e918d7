"""Tests of claims: the statistics against scipy's and numbers by hand, the tables of docs/results.md."""

import json
import pathlib
import runpy

import numpy as np
import pytest
from scipy import stats

from benchmarks.evidence import _claims, _docs, _train

ROOT = pathlib.Path(__file__).parent.parent


def test_paired_is_students_test() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 10))
    got, expected = _claims.paired(a - b), stats.ttest_rel(a, b)
    interval = expected.confidence_interval()
    np.testing.assert_allclose((got.p, got.low, got.high), (expected.pvalue, *interval))
    np.testing.assert_allclose(got.size, (a - b).mean() / (a - b).std(ddof=1))
    assert _claims.paired([0.5, 0.5]).p == 0.0
    assert _claims.paired([0.0, 0.0]).p == 1.0


def test_holm_by_hand() -> None:
    # In order: 0.01 x 4, 0.02 x 3, then 0.04 x 2 and 0.03 x ... at least as large as the one before.
    np.testing.assert_allclose(_claims.holm([0.02, 0.01, 0.9, 0.03]), [0.06, 0.04, 0.9, 0.06])


def _claim(mean: float, holm: float, accuracy: tuple[float, float], equal: bool) -> dict:
    row = {"mean": mean, "holm": holm, "equal_accuracy": equal}
    return row | {"accuracy": [sum(accuracy) / 2, *accuracy]}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (_claim(-0.1, 0.01, (-0.009, 0.009), True), "holds"),
        (_claim(-0.1, 0.01, (-0.02, 0.0), True), "inconclusive"),
        (_claim(-0.1, 0.01, (-0.03, -0.011), True), "does not hold"),
        (_claim(-0.1, 0.01, (-0.03, -0.011), False), "holds"),
        (_claim(-0.1, 0.06, (-0.001, 0.001), True), "inconclusive"),
        (_claim(0.1, 0.01, (-0.001, 0.001), False), "does not hold"),
        ({"p": 1.0}, "not run"),
    ],
)
def test_verdicts(row: dict, expected: str) -> None:
    assert _claims.verdict(row) == expected


def _collected(shift: float) -> dict:
    rng = np.random.default_rng(0)

    def method(mean: float) -> dict:
        values = {
            "true_ece": list(mean + 0.001 * rng.normal(size=10)),
            "true_accuracy": list(0.8 + 0.001 * rng.normal(size=10)),
        }
        return {"seeds": list(range(10)), "test": {"uncalibrated": values}}

    cells = {
        f"x_{i}": {"methods": {"a": method(0.05 + shift), "b": method(0.05)}} for i in range(2)
    }
    return {"source": "x", "cells": cells}


def test_a_claim_is_tested_on_the_mean_over_cells() -> None:
    claim = {"claim": "", "source": "x", "method": "a", "against": "b", "split": "test"}
    claim |= {"calibrator": "uncalibrated", "equal_accuracy": True}
    data = _collected(-0.02)
    other = claim | {"source": "y"}
    first, second = _claims.evaluate_claims({"x": data}, [claim, other])
    seeds = [
        np.subtract(*(c["methods"][m]["test"]["uncalibrated"]["true_ece"] for m in "ab"))
        for c in data["cells"].values()
    ]
    np.testing.assert_allclose(first["mean"], np.mean(seeds))
    np.testing.assert_allclose(first["p"], stats.ttest_1samp(np.mean(seeds, axis=0), 0).pvalue)
    assert first["holm"] == pytest.approx(2 * first["p"])
    assert (first["verdict"], second["verdict"]) == ("holds", "not run")
    (worse,) = _claims.evaluate_claims({"x": _collected(0.02)}, [claim])
    assert worse["verdict"] == "does not hold"


def test_hypotheses_name_methods_of_the_config() -> None:
    get_config = runpy.run_path(str(_train._CONFIG))["get_config"]
    hypotheses = json.loads(_claims.HYPOTHESES.read_text())
    assert len({claim["id"] for claim in hypotheses}) == len(hypotheses)
    for claim in hypotheses:
        config = get_config(claim["source"])
        names = config.method.name.split(",")
        assert {claim["method"], claim["against"]} <= set(names), claim["id"]
        assert claim["split"] == "test" or config.data.shift


def test_tables_of_the_docs_are_those_of_the_numbers() -> None:
    folder, text = ROOT / "docs" / "results", (ROOT / "docs" / "results.md").read_text()
    tested = _claims.evaluate_claims(
        _claims.read(folder), json.loads(_claims.HYPOTHESES.read_text())
    )
    stored = json.loads((folder / "claims.json").read_text())
    assert json.loads(json.dumps(tested)) == stored
    assert _docs.with_tables(text, _docs.tables(folder)) == text
