"""Statistics over the seeds of all that the runs measured, method by method."""

from collections.abc import Mapping, Sequence

import numpy as np

from calib_jax.report._types import Json, Record, Summary

Tree = dict[str, Json]


def summarize(results: Sequence[Record]) -> Tree:
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

    >>> evaluation = {"name": "uncalibrated", "metrics": {"nll": 0.5}, "parameters": {}}
    >>> summary = summarize([{"method": "ce", "seed": 0, "splits": {"test": [evaluation]}}])
    >>> summary["splits"]["test"]["ce"]["uncalibrated"]["metrics"]["nll"]
    {'mean': 0.5, 'std': None, 'n': 1}
    """
    seeds: dict[str, list[int]] = {}
    chosen: dict[str, list[int]] = {}
    measured: Tree = {"methods": {}, "splits": {}, "out_of_distribution": {}}
    for record in results:
        name, seed = record["method"], record["seed"]
        if seed in seeds.setdefault(name, []):
            raise ValueError(f"results: {name} with seed {seed} is there twice, expected once")
        seeds[name].append(seed)
        if "generation" in record:
            chosen.setdefault(name, []).append(record["generation"])
        _collect(measured, _measured(record))
    summary = _reduce(measured | {"robustness": measured.get("robustness", {})})
    for name, entry in summary["methods"].items():
        entry["seeds"] = seeds[name]
        if name in chosen:
            entry["chosen"] = chosen[name]
    return summary


def _measured(record: Record) -> Tree:
    """Return the numbers of a run, nested as in a summary."""
    name = record["method"]
    costs = ("num_parameters", "train_seconds")  # unknown for a network from elsewhere
    tree: Tree = {
        "methods": {name: {key: record[key] for key in costs if key in record}},
        "splits": {
            split: {name: {e["name"]: _of_evaluation(e) for e in evaluations}}
            for split, evaluations in record["splits"].items()
        },
        "out_of_distribution": {
            other: {name: scores} for other, scores in record.get("out_of_distribution", {}).items()
        },
    }
    for generation in record.get("generations", ()):
        for split, evaluations in generation["splits"].items():
            by_calibrator = {e["name"]: {"metrics": e["metrics"]} for e in evaluations}
            by_method = tree.setdefault("generations", {}).setdefault(split, {})
            by_method.setdefault(name, {})[str(generation["generation"])] = by_calibrator
    if "robustness" in record:
        tree["robustness"] = {name: record["robustness"]}
    return tree


def _of_evaluation(evaluation: Record) -> Tree:
    return {
        "metrics": with_gap(evaluation["metrics"]),
        "parameters": evaluation["parameters"],
    }


def with_gap(measured: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics with `gap`, mean confidence less accuracy, if both were measured.

    A gap that was measured stays: accuracy and confidence may be of different examples.
    """
    if not {"accuracy", "confidence"} <= measured.keys():
        return dict(measured)
    return {"gap": measured["confidence"] - measured["accuracy"], **measured}


def summarize_ensembles(ensembles: Mapping[str, Mapping[str, Sequence[Record]]]) -> Tree:
    """Return the evaluations of ensembles in the form of a summary's `splits`.

    Args:
      ensembles: Evaluations by method and split.
    """
    tree: Tree = {}
    for method, splits in ensembles.items():
        for split, evaluations in splits.items():
            by_calibrator = {e["name"]: _of_evaluation(e) for e in evaluations}
            _collect(tree, {split: {method: by_calibrator}})
    return _reduce(tree)


def temperature_scaling(summary: Summary) -> str:
    """Return the calibrator that tables show as `+T`: the first `temperature…`, or an empty text."""
    names = (
        calibrator
        for by_method in summary["splits"].values()
        for by_calibrator in by_method.values()
        for calibrator in by_calibrator
    )
    return next((name for name in names if name.startswith("temperature")), "")


def _collect(tree: Tree, measured: Record) -> None:
    """Append each number or name of a nested dict to the list at the same path of `tree`."""
    for key, value in measured.items():
        if isinstance(value, Mapping):
            _collect(tree.setdefault(key, {}), value)
        else:
            tree.setdefault(key, []).append(value)


def _reduce(tree: Tree) -> Tree:
    return {k: _reduce(v) if isinstance(v, dict) else _statistics(v) for k, v in tree.items()}


def _statistics(values: list[Json]) -> Tree | list[str]:
    if isinstance(values[0], str):  # a name, not a number
        return sorted(set(values))
    array = np.asarray(values, float)
    std = np.std(array, axis=0, ddof=1).tolist() if len(values) > 1 else None
    return {"mean": np.mean(array, axis=0).tolist(), "std": std, "n": len(values)}
