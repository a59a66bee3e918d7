"""How far estimates of calibration error are from the truth; calibrators by size of validation set."""

import functools
import json
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from calib_jax import metrics, posthoc
from calib_jax._io import write_atomic
from calib_jax.data import load

Json = dict[str, Any]
_POPULATION = 1_000_000
_FINE = 1000  # bins of the population's true error
# Number of examples -> how many samples of that size.
SIZES = {100: 200, 300: 200, 1000: 200, 3000: 100, 10_000: 50, 30_000: 20, 100_000: 10}
FIT_SIZES = {100: 10, 300: 10, 1000: 5, 3000: 5, 10_000: 3}
_NUM_TEST, _POOL = 50_000, 200_000
CALIBRATORS = [name for name in posthoc.CALIBRATORS if name not in ("platt", "beta")]  # two classes
# Sharpness of the logarithm of the true posterior, and weight of a random function added to it.
PREDICTORS = {"overconfident": (1.8, 0.7), "calibrated": (1.0, 0.0)}
_Estimator = Callable[[jax.Array, jax.Array], jax.Array]
ESTIMATORS: dict[str, _Estimator] = {
    "ece": metrics.ece,
    "ece_10": functools.partial(metrics.ece, num_bins=10, closed="left"),
    "ece_mass": functools.partial(metrics.ece, scheme="mass"),
    "ece_debiased": metrics.ece_debiased,
    "ece_sweep": metrics.ece_sweep,
    "ece_sweep_width": functools.partial(metrics.ece_sweep, scheme="width"),
    "smooth_ece": metrics.smooth_ece,
    "mce": metrics.mce,
}


def predictions(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities of a predictor and p(y|x) of fresh draws from five Gaussians.

    Args:
      name: One of `PREDICTORS`.
      n: Number of examples.
      seed: Seed of the examples; distribution and predictor are the same for all.
    """
    sharpness, confusion = PREDICTORS[name]
    x, truth = _population()
    rows = np.random.default_rng(seed).choice(_POPULATION, n, replace=False)
    x, truth = x[rows], truth[rows]
    rng = np.random.default_rng(0)
    waves = np.tanh(x @ rng.normal(size=(20, 32)) / 4) @ rng.normal(size=(32, 5)) / 4
    scores = sharpness * (np.log(truth + 1e-12) + confusion * waves)
    return np.asarray(jax.nn.log_softmax(jnp.asarray(scores, jnp.float32))), truth


@functools.cache
def _population() -> tuple[np.ndarray, np.ndarray]:
    """Return features and p(y|x): one large draw, as the reader's seed is the distribution's, too."""
    drawn = load("known_truth", "test", noise=0.0, num_test=_POPULATION)
    assert drawn.label_probs is not None
    return drawn.inputs["features"], drawn.label_probs


def true_errors(logits: np.ndarray, truth: np.ndarray) -> Json:
    """Return the population's error that each kind of estimator estimates."""
    probs = np.exp(logits)
    top = probs.argmax(axis=1)
    confidence, right = probs.max(axis=1), truth[np.arange(len(top)), top]
    bins = {
        k: metrics.bin_stats(confidence, right, num_bins=k, scheme="mass") for k in (_FINE, 2000)
    }
    return {
        "l1": float(bins[_FINE].ece()),
        "l1_doubled": float(bins[2000].ece()),
        "l2": float(bins[_FINE].ece(2)),
        "gap": float(np.abs(confidence - right).mean()),
        "accuracy": float(right.mean()),
    }


def estimator_errors() -> Json:
    """Return mean and standard deviation of each estimator, by predictor and number of examples."""
    found: Json = {}
    for name in PREDICTORS:
        logits, truth = predictions(name, _POPULATION, seed=0)
        entry: Json = {"truth": true_errors(logits, truth), "estimates": {}}
        confidence = np.exp(logits.max(axis=1))
        right = truth[np.arange(_POPULATION), logits.argmax(axis=1)]
        rng = np.random.default_rng(1)
        for n, repeats in SIZES.items():
            values: dict[str, list[float]] = {key: [] for key in ESTIMATORS}
            for _ in range(repeats):
                rows = rng.integers(_POPULATION, size=n)
                correct = (rng.random(n) < right[rows]).astype(np.float32)
                for key, estimate in ESTIMATORS.items():
                    values[key].append(float(estimate(confidence[rows], correct)))
            entry["estimates"][str(n)] = {
                key: {"mean": float(np.mean(v)), "std": float(np.std(v, ddof=1))}
                for key, v in values.items()
            }
        found[name] = entry
    return found


def calibrator_errors() -> Json:
    """Return the true error after each calibrator, by number of validation examples."""
    logits, truth = predictions("overconfident", _NUM_TEST, seed=2)
    measure = functools.partial(metrics.truth_summary, true_probs=truth, check=False)
    found: Json = {"uncalibrated": {"true_ece": [float(measure(logits)["true_ece"])]}}
    pool, pool_truth = predictions("overconfident", _POOL, seed=3)
    rng = np.random.default_rng(4)
    for n, repeats in FIT_SIZES.items():
        for _ in range(repeats):
            rows = rng.choice(len(pool), n, replace=False)
            below = pool_truth[rows].cumsum(axis=1)[:, :-1] <= rng.random((n, 1))
            labels = below.sum(axis=1).astype(np.int32)
            for name in CALIBRATORS:
                fit = posthoc.CALIBRATORS[name]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    probs = fit(pool[rows], labels, check=False)(logits, check=False)
                values = measure(jnp.log(jnp.maximum(probs, 1e-30)))
                entry = found.setdefault(name, {}).setdefault(str(n), {})
                for key in ("true_ece", "expected_nll"):
                    entry.setdefault(key, []).append(round(float(values[key]), 5))
    found["uncalibrated"]["expected_nll"] = [float(measure(logits)["expected_nll"])]
    return found


def estimators_table(found: Json, name: str) -> str:
    """Return bias ± standard deviation in percentage points as a Markdown table."""
    entry = found[name]
    lines = ["| n | " + " | ".join(metrics.METRICS[key].title for key in ESTIMATORS) + " |"]
    lines.append("|---:|" + "---:|" * len(ESTIMATORS))
    for n, estimates in entry["estimates"].items():
        cells = []
        for key in ESTIMATORS:
            target = entry["truth"]["l2" if key == "ece_debiased" else "l1"]
            mean, std = estimates[key]["mean"], estimates[key]["std"]
            cells.append(f"{100 * (mean - target):+.2f}±{100 * std:.2f}")
        lines.append(f"| {int(n):,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def calibrators_table(found: Json) -> str:
    """Return the mean true ECE ± standard deviation after each calibrator as a Markdown table."""
    sizes = [str(n) for n in FIT_SIZES]
    lines = ["| calibrator | " + " | ".join(f"n = {int(n):,}" for n in sizes) + " |"]
    lines.append("|---|" + "---:|" * len(sizes))
    for name in found:
        if name != "uncalibrated":
            values = [found[name][n]["true_ece"] for n in sizes]
            cells = [f"{100 * np.mean(v):.2f}±{100 * np.std(v, ddof=1):.2f}" for v in values]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(out: pathlib.Path) -> None:
    """Measure everything, write `estimators.json` and `estimators.png`, print the tables."""
    found = {"estimators": estimator_errors(), "calibrators": calibrator_errors()}
    write_atomic(out / "estimators.json", json.dumps(found, separators=(",", ":")) + "\n")
    draw(found, out / "estimators.png")
    for name in PREDICTORS:
        print(f"{name}\n{estimators_table(found['estimators'], name)}")
    print(calibrators_table(found["calibrators"]))


def draw(found: Json, path: pathlib.Path) -> None:
    """Draw estimates against the truth, and the true error after calibrators by size."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for ax, name in zip(axes, PREDICTORS, strict=False):
        entry = found["estimators"][name]
        sizes = [int(n) for n in entry["estimates"]]
        for i, key in enumerate(k for k in ESTIMATORS if k != "mce"):
            of_key = [entry["estimates"][str(n)][key] for n in sizes]
            mean, std = (np.array([100 * v[s] for v in of_key]) for s in ("mean", "std"))
            (line,) = ax.plot(sizes, mean, label=metrics.METRICS[key].title, color=f"C{i}")
            ax.fill_between(sizes, mean - std, mean + std, alpha=0.12, color=line.get_color())
        ax.axhline(100 * entry["truth"]["l1"], color="black", linestyle="--", label="true ECE")
        if entry["truth"]["l2"] > 1e-3:
            ax.axhline(
                100 * entry["truth"]["l2"], color="gray", linestyle=":", label="true L2 error"
            )
        ax.set(xscale="log", title=f"{name} predictor", xlabel="examples", ylabel="estimate, %")
        ax.set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    for i, (name, entry) in enumerate(found["calibrators"].items()):
        if name != "uncalibrated":
            sizes = [int(n) for n in entry]
            means = [100 * np.mean(entry[str(n)]["true_ece"]) for n in sizes]
            axes[2].plot(sizes, means, label=name, color=f"C{i % 10}", linestyle="-:"[i > 10])
    before = found["calibrators"]["uncalibrated"]["true_ece"][0]
    axes[2].axhline(100 * before, color="black", linestyle="--", label="uncalibrated")
    axes[2].set(xscale="log", yscale="log", title="after calibrators")
    axes[2].set(xlabel="validation examples", ylabel="true ECE, %")
    axes[2].legend(fontsize=7, ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)
