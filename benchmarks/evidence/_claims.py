"""From finished runs to tested claims: paired over seeds, corrected for the number of claims."""

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from calib_jax._io import write_atomic

Json = dict[str, Any]
HYPOTHESES = pathlib.Path(__file__).with_name("hypotheses.json")
LEVEL = 0.05
MARGIN = 0.01  # equal accuracy: the 95 % interval of the difference is within one point
_KEPT = {
    "uncalibrated": (
        *("true_accuracy", "true_ece", "true_ece_30", "true_gap", "expected_nll", "ece_mass"),
    ),
    "temperature": ("true_ece", "expected_nll"),
}
_DIGITS = 5


def collect(runs: pathlib.Path, source: str) -> Json:
    """Return what the claims are tested on: values of each seed, by cell, method, split and calibrator.

    Args:
      runs: Folder of the workdirs, `SOURCE_SIZE_NOISE`.
      source: Source of the data.
    """
    cells, commits = {}, set()
    for workdir in sorted(runs.glob(f"{source}_*")):
        methods: Json = {}
        for path in sorted(workdir.glob("*/seed_*/results.json")):
            record = json.loads(path.read_text())
            commits.add(json.loads((path.parent / "config.json").read_text())["git"])
            _add(methods.setdefault(record["method"], {"seeds": []}), record)
        if methods:
            first = next(iter(methods.values()))
            bayes = first.pop("bayes_error")
            for method in methods.values():
                method.pop("bayes_error", None)
            cells[workdir.name] = {"bayes_error": bayes, "methods": methods}
    if not cells:
        raise ValueError(f"{runs}: expected finished runs in {source}_*; run evidence train first")
    if len(commits) > 1:
        raise ValueError(f"{runs}: runs of several commits, {', '.join(map(str, commits))}")
    return {"source": source, "commit": commits.pop(), "cells": cells}


def _add(method: Json, record: Json) -> None:
    """Append a run's numbers to those of its method; the mean over corruptions is one split."""
    method["seeds"].append(record["seed"])
    splits = {"test": [record["splits"]["test"]]}
    if shifted := [s for name, s in record["splits"].items() if name != "test"]:
        splits["corrupted"] = shifted
    for split, evaluated in splits.items():
        for i, evaluation in enumerate(evaluated[0]):
            kept = method.setdefault(split, {}).setdefault(evaluation["name"], {})
            for key in _KEPT[evaluation["name"]]:
                mean = np.mean([set_[i]["metrics"][key] for set_ in evaluated])
                kept.setdefault(key, []).append(round(float(mean), _DIGITS))
    bayes = record["splits"]["test"][0]["metrics"]["bayes_error"]
    method["bayes_error"] = round(bayes, _DIGITS)


class Paired(NamedTuple):
    """A paired difference over seeds.

    Attributes:
      mean: Mean difference.
      low, high: Its 95 % interval, by Student's t.
      size: Effect size, the mean over the standard deviation.
      p: Two-sided p-value.
      n: Number of pairs.
    """

    mean: float
    low: float
    high: float
    size: float
    p: float
    n: int


def paired(differences: Sequence[float] | np.ndarray) -> Paired:
    """Test whether the mean of paired differences is zero.

    >>> round(paired([1.0, 2.0, 3.0]).p, 4)
    0.0742
    """
    d = np.asarray(differences, float)
    n, mean, std = len(d), float(d.mean()), float(d.std(ddof=1))
    if std == 0:
        return Paired(mean, mean, mean, math.copysign(math.inf, mean), float(mean == 0), n)
    half = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    p = 2 * float(stats.t.sf(abs(mean) * math.sqrt(n) / std, n - 1))
    return Paired(mean, mean - half, mean + half, mean / std, p, n)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method.

    References:
      Holm (1979), Scandinavian Journal of Statistics 6.

    >>> [round(x, 3) for x in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    scaled = np.asarray(p, float)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()


def differences(data: Json, claim: Json, metric: str, calibrator: str) -> dict[str, np.ndarray]:
    """Return method less its rival by cell, for seeds that both have in all cells; `{}` if not run."""
    pairs, seeds = {}, None
    for name, cell in data["cells"].items():
        both = [cell["methods"].get(claim[side]) for side in ("method", "against")]
        if None in both:
            return {}
        values = [
            dict(zip(m["seeds"], m[claim["split"]][calibrator][metric], strict=True)) for m in both
        ]
        shared = values[0].keys() & values[1].keys()
        seeds = shared if seeds is None else seeds & shared
        pairs[name] = values
    order = sorted(seeds or ())
    return {name: np.array([a[s] - b[s] for s in order]) for name, (a, b) in pairs.items()}


def evaluate_claims(collected: Mapping[str, Json], hypotheses: Sequence[Json]) -> list[Json]:
    """Return the hypotheses with effect, test and verdict.

    A claim is tested once: the difference of a seed is its mean over the cells (sizes and noise), and
    Holm's correction is for all hypotheses, those that were not run included.

    Args:
      collected: What `collect` returns, by source.
      hypotheses: Content of `hypotheses.json`.
    """
    tested = []
    for claim in hypotheses:
        data = collected.get(claim["source"])
        effects = differences(data, claim, "true_ece", claim["calibrator"]) if data else {}
        row: Json = {**claim, "p": 1.0}
        if effects and len(next(iter(effects.values()))) > 1:
            accuracy = differences(data or {}, claim, "true_accuracy", "uncalibrated")
            effect, equal = (paired(np.mean(list(d.values()), axis=0)) for d in (effects, accuracy))
            row |= {**effect._asdict(), "accuracy": [equal.mean, equal.low, equal.high]}
            row["cells"] = {name: float(d.mean()) for name, d in effects.items()}
        tested.append(row)
    for row, adjusted in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["holm"] = adjusted
        row["verdict"] = verdict(row)
    return tested


def verdict(row: Json) -> str:
    """Return whether a tested claim holds.

    It holds if the difference is negative with an adjusted p below 0.05, and where equal accuracy is
    part of the claim, if that is so. It does not hold if the difference is positive with such a p, or
    accuracies are not equal. Anything else is inconclusive.
    """
    if "mean" not in row:
        return "not run"
    significant = row["holm"] < LEVEL
    if significant and row["mean"] > 0:
        return "does not hold"
    _, low, high = row["accuracy"]
    if row["equal_accuracy"] and (low > MARGIN or high < -MARGIN):
        return "does not hold"
    is_equal = low >= -MARGIN and high <= MARGIN
    if significant and (is_equal or not row["equal_accuracy"]):
        return "holds"
    return "inconclusive"


def claims_table(tested: Sequence[Json]) -> str:
    """Return the claims as a Markdown table, in percentage points."""
    lines = [
        "| claim | data | verdict | true ECE, difference [95 %] | effect size | p (Holm) | "
        "accuracy, difference [95 %] | seeds × cells |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in tested:
        data = row["source"] + (", corrupted" if row["split"] == "corrupted" else "")
        if "mean" not in row:
            lines.append(f"| {row['claim']} | {data} | not run | – | – | – | – | – |")
            continue
        effect = _interval(row["mean"], row["low"], row["high"])
        p = "< 0.001" if row["holm"] < 0.001 else f"{row['holm']:.3f}"
        lines.append(
            f"| {row['claim']} | {data} | {row['verdict']} | {effect} | {row['size']:+.1f} | {p} | "
            f"{_interval(*row['accuracy'])} | {row['n']} × {len(row['cells'])} |"
        )
    return "\n".join(lines) + "\n"


def _interval(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"


def methods_table(data: Json) -> str:
    """Return mean ± std over seeds of the true ECE, before and after T, and accuracy, cell by cell."""
    cells = data["cells"]
    bayes = " · ".join(f"{100 * c['bayes_error']:.1f}" for c in cells.values())
    methods = list(dict.fromkeys(m for cell in cells.values() for m in cell["methods"]))
    if "cross_entropy" in methods:
        methods.sort(key=lambda name: name != "cross_entropy")
    titles = [name.removeprefix(f"{data['source']}_").replace("_", ", noise ") for name in cells]
    head = " | ".join(f"{title}: true ECE | + T | accuracy" for title in titles)
    lines = [f"| method | {head} |", "|---|" + "---:|" * (3 * len(cells))]
    for method in methods:
        shown = []
        for cell in cells.values():
            if found := cell["methods"].get(method):
                test = found["test"]
                shown += [
                    _spread(test["uncalibrated"]["true_ece"]),
                    _spread(test["temperature"]["true_ece"]),
                    _spread(test["uncalibrated"]["true_accuracy"]),
                ]
            else:
                shown += ["–"] * 3
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines) + f"\n\nBayes error, in the order of the columns: {bayes} %.\n"


def _spread(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.2f}±{100 * np.std(values, ddof=1):.2f}"


def read(folder: pathlib.Path) -> dict[str, Json]:
    """Read the collected numbers of all sources that were run."""
    files = sorted(folder.glob("known_truth_*.json"))
    collected = [json.loads(path.read_text()) for path in files]
    return {data["source"]: data for data in collected}


def write_claims(folder: pathlib.Path) -> str:
    """Test all hypotheses on the numbers in a folder, write `claims.json`, return the table."""
    tested = evaluate_claims(read(folder), json.loads(HYPOTHESES.read_text()))
    lines = ",\n".join(json.dumps(row) for row in tested)
    write_atomic(folder / "claims.json", f"[\n{lines}\n]\n")
    return claims_table(tested)
