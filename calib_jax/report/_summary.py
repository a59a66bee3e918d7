"""Statistics over the seeds of all that the runs measured, method by method."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Record = Mapping[str, Any]  # content of a run's results.json
Summary = Mapping[str, Any]  # what `summarize` returns


def summarize(results: Sequence[Record]) -> dict[str, Any]:
    """Compute mean, standard deviation and number of runs of everything that was measured.

    Args:
      results: Contents of the runs' `results.json`, methods in the order of the tables.

    Returns:
      `{"methods": {method: {"seeds": [...], "num_parameters": s, "train_seconds": s}},
      "splits": {split: {method: {calibrator: {"metrics": {name: s}, "parameters": {name: s}}}}},
      "out_of_distribution": {set: {method: {score: {"before" | "after": {"auroc": s, "fpr95": s}}}}},
      "robustness": {method: what the runs hold of it}}`
      with `s = {"mean": ..., "std": ..., "n": ...}`; `std` divides by `n - 1` and is `None` for one
      seed; a parameter's mean and std are lists. With self-distillation there are also
      `{"generations": {split: {method: {generation: {calibrator: {"metrics": {name: s}}}}}}}` and, in
      `methods`, the generation that was chosen for each seed.

    Raises:
      ValueError: A method has a seed twice.
    """
    methods: dict[str, Any] = {}
    splits: dict[str, Any] = {}
    outside: dict[str, Any] = {}
    generations: dict[str, Any] = {}
    chosen: dict[str, dict[str, list[int]]] = {}
    robustness: dict[str, Any] = {}
    for record in results:
        name, seed = record["method"], record["seed"]
        method = methods.setdefault(name, {"seeds": []})
        if seed in method["seeds"]:
            raise ValueError(f"results: {name} with seed {seed} is there twice, expected once")
        method["seeds"].append(seed)
        costs = ("num_parameters", "train_seconds")  # unknown for a network from elsewhere
        _collect(method, {key: record[key] for key in costs if key in record})
        for split, evaluations in record["splits"].items():
            by_calibrator = splits.setdefault(split, {}).setdefault(name, {})
            for evaluation in evaluations:
                measured = {kind: evaluation[kind] for kind in ("metrics", "parameters")}
                _collect(by_calibrator.setdefault(evaluation["name"], {}), measured)
        for other, measured in record.get("out_of_distribution", {}).items():
            _collect(outside.setdefault(other, {}).setdefault(name, {}), measured)
        for generation in record.get("generations", ()):
            number = str(generation["generation"])
            for split, evaluations in generation["splits"].items():
                by_method = generations.setdefault(split, {}).setdefault(name, {})
                for evaluation in evaluations:
                    by_calibrator = by_method.setdefault(number, {})
                    measured = {"metrics": evaluation["metrics"]}
                    _collect(by_calibrator.setdefault(evaluation["name"], {}), measured)
        if "generation" in record:
            chosen.setdefault(name, {"chosen": []})["chosen"].append(record["generation"])
        if "robustness" in record:
            _collect(robustness.setdefault(name, {}), record["robustness"])
    seeds = {name: method.pop("seeds") for name, method in methods.items()}
    return {
        "methods": {
            name: {"seeds": seeds[name], **_reduce(methods[name]), **chosen.get(name, {})}
            for name in methods
        },
        "splits": _reduce(splits),
        "out_of_distribution": _reduce(outside),
        **({"generations": _reduce(generations)} if generations else {}),
        "robustness": _reduce(robustness),
    }


def temperature_scaling(summary: Summary) -> str:
    """Return the calibrator that tables show as `+T`: the first `temperature…`, or an empty text."""
    names = (
        calibrator
        for by_method in summary["splits"].values()
        for by_calibrator in by_method.values()
        for calibrator in by_calibrator
    )
    return next((name for name in names if name.startswith("temperature")), "")


def _collect(tree: dict[str, Any], measured: Mapping[str, Any]) -> None:
    """Append each number or name of a nested dict to the list at the same path of `tree`."""
    for key, value in measured.items():
        if isinstance(value, Mapping):
            _collect(tree.setdefault(key, {}), value)
        else:
            tree.setdefault(key, []).append(value)


def _reduce(tree: dict[str, Any]) -> dict[str, Any]:
    return {k: _reduce(v) if isinstance(v, dict) else _statistics(v) for k, v in tree.items()}


def _statistics(values: list[Any]) -> dict[str, Any] | list[str]:
    if isinstance(values[0], str):  # a name, not a number
        return sorted(set(values))
    array = np.asarray(values, float)
    std = np.std(array, axis=0, ddof=1).tolist() if len(values) > 1 else None
    return {"mean": np.mean(array, axis=0).tolist(), "std": std, "n": len(values)}
