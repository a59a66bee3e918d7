"""`python -m calib_jax.evaluate` against a script of torchmetrics, netcal and scikit-learn.

Both start from the same npz files, fit a temperature, print accuracy, NLL, Brier score and ECE before and
after with bootstrap intervals over the same number of resamples, and count as processes, imports too.
The command also does what the script does not (more metrics, plots, a page, checks of probabilities and
logits). Both have run once before they are timed, the script on the smaller file, so that compiled
programs and libraries are at hand. Numbers that differ end the suite.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks import _data
from benchmarks._harness import NOT_INSTALLED, Fact

SECONDS = 75
_KEYS = ("accuracy", "nll", "brier", "ece")
_RESAMPLES = 100
_TOLERANCE = {"uncalibrated": 1e-5, "temperature": 1e-3}  # netcal's temperature has fewer digits
_LEAST_RATIO = 5.0
_ROUNDS = 3

_SCRIPT = """
import json, sys
import numpy as np, torch
from netcal.scaling import TemperatureScaling
from sklearn.metrics import accuracy_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

test, validation, resamples = np.load(sys.argv[1]), np.load(sys.argv[2]), int(sys.argv[3])

def softmax(logits):
    e = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)

def metrics(probs, labels):
    k = probs.shape[1]
    onehot = np.eye(k)[labels]
    ece = multiclass_calibration_error(
        torch.from_numpy(probs).float(), torch.from_numpy(labels).long(), num_classes=k, n_bins=15
    )
    return {
        "accuracy": accuracy_score(labels, probs.argmax(1)),
        "nll": log_loss(labels, probs, labels=np.arange(k)),
        "brier": float(np.mean(np.sum((probs - onehot) ** 2, axis=1))),
        "ece": float(ece),
    }

def with_intervals(probs, labels):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, len(labels), len(labels)) for _ in range(resamples)]
    samples = [metrics(probs[r], labels[r]) for r in rows]
    values = metrics(probs, labels)
    ends = {key: np.quantile([s[key] for s in samples], (0.025, 0.975)).tolist() for key in values}
    return {"metrics": values, "intervals": ends}

probs, labels = softmax(test["logits"]), test["labels"]
calibrator = TemperatureScaling()
calibrator.fit(softmax(validation["logits"]), validation["labels"])
temperature = 1 / float(calibrator.temperature[0])
results = {
    "uncalibrated": with_intervals(probs, labels),
    "temperature": with_intervals(softmax(test["logits"] / temperature), labels),
}
print(json.dumps(results))
"""


class _Run(NamedTuple):
    """A finished process: seconds, megabytes at its peak, and what it printed."""

    seconds: float
    megabytes: float
    output: str


def cases(quick: bool) -> Iterator[Fact]:
    """Yield two measurements per size."""
    sizes = (1000,) if quick else (5000, 200_000)
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            yield from _facts(pathlib.Path(folder), n, 10, with_target=n == max(sizes))


def _facts(folder: pathlib.Path, n: int, k: int, *, with_target: bool) -> Iterator[Fact]:
    for name, seed in (("test", 0), ("validation", 1)):
        logits, labels = _data.predictions(n, k, seed)
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    files = [str(folder / "test.npz"), str(folder / "validation.npz")]
    ours = [
        *(sys.executable, "-m", "calib_jax.evaluate", files[0], "--validation", files[1]),
        *("--calibrate", "temperature", "--num_bootstrap", str(_RESAMPLES), "--out", str(folder)),
    ]
    theirs = [sys.executable, "-c", _SCRIPT, *files, str(_RESAMPLES)]
    caption = f"Evaluation with a temperature and {_RESAMPLES} resamples, from file to table"
    size = f"{n:,} × {k}"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")}
    environment.pop("JAX_ENABLE_COMPILATION_CACHE", None)
    _process(ours, environment)  # compiles
    our_runs = [_process(ours, environment) for _ in range(_ROUNDS if with_target else 1)]
    their_run = _process(theirs, environment)
    if "ModuleNotFoundError" in their_run.output:
        yield Fact(caption, {"size": size, "of": "script", "note": NOT_INSTALLED})
        return
    record = json.loads((folder / "results.json").read_text())
    difference = _largest_difference(record, json.loads(their_run.output.splitlines()[-1]))
    if difference > 1:
        raise RuntimeError(f"{size}: the numbers differ by {difference:.2g} times the tolerance")
    seconds = statistics.median(run.seconds for run in our_runs)
    rows = (("calib_jax.evaluate", our_runs), ("torchmetrics + netcal + sklearn", [their_run]))
    for name, runs in rows:
        its_seconds = statistics.median(run.seconds for run in runs)
        is_target = with_target and runs is not our_runs
        yield Fact(
            caption,
            {
                "size": size,
                "of": name,
                "seconds": round(its_seconds, 2),
                "peak MB": round(max(run.megabytes for run in runs)),
                "ratio": round(its_seconds / seconds, 2),
                "largest difference (share of its tolerance)": f"{difference:.2g}",
            },
            target=f">= {_LEAST_RATIO:g}" if is_target else None,
            reached=its_seconds / seconds >= _LEAST_RATIO if is_target else None,
        )


def _process(command: list[str], environment: dict[str, str]) -> _Run:
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    seconds = time.perf_counter() - start
    if process.returncode and "ModuleNotFoundError" not in output:
        raise RuntimeError(f"{command[:4]} failed: {output.strip().splitlines()[-1:]}")
    return _Run(seconds, usage.ru_maxrss / 1024, output)


def _largest_difference(record: dict, other: dict) -> float:
    """Return the largest difference of a metric as a share of what is allowed."""
    ours = {result["name"]: result["metrics"] for result in record["results"]}
    return max(
        abs(ours[name][key] - other[name]["metrics"][key]) / tolerance
        for name, tolerance in _TOLERANCE.items()
        for key in _KEYS
    )
