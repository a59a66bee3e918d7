"""How many rows a calibrator needs: `python -m benchmarks.validation_size [FOLDER]`.

Fits each calibrator to a few of the first half of the rows, five random draws of each size, and measures
NLL and ECE on the other half. Then the ECE that perfectly calibrated predictions show on so many rows.
FOLDER is that of `benchmarks.calibrators`. Prints the tables of docs/guides/validation_size.md.
"""

import os
import pathlib
import sys

import jax
import numpy as np

from calib_jax import metrics, posthoc

_NETWORKS = {"wideresnet-16-4-cifar-10": "CIFAR-10", "densenet-bc-100-cifar-100": "CIFAR-100"}
_CALIBRATORS = ("temperature", "ets", "vector", "svs", "sms", "isotonic")
_SIZES = (100, 300, 1_000, 5_000)
_DRAWS = 5


def main() -> None:
    """Print the tables of each network."""
    folder = pathlib.Path(os.environ.get("CALIB_JAX_DATA", "."), "softmax_outputs")
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder
    for name, title in _NETWORKS.items():
        if not (folder / f"{name}.npz").is_file():
            sys.exit(f"benchmarks.validation_size: {folder / f'{name}.npz'}: no such file")
        with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
            probs, labels = archive["predictions"], archive["ground_truth"]
        _print_calibrators(title, np.asarray(posthoc.logits_from_probs(probs)), labels)
        _print_expected(title, probs)


def _print_calibrators(title: str, logits: np.ndarray, labels: np.ndarray) -> None:
    half = len(labels) // 2
    nll, ece = _scores(jax.nn.softmax(logits[half:]), labels[half:])
    print(f"\n{title}; uncalibrated: NLL {nll:.3f}, ECE {100 * ece:.1f} %\n")
    print(f"| calibrator | {' | '.join(f'{n:,} rows' for n in _SIZES)} |")
    print("|---" * (1 + len(_SIZES)) + "|")
    for name in _CALIBRATORS:
        cells = []
        for size in _SIZES:
            scores = []
            for draw in range(_DRAWS if size < half else 1):
                rows = np.random.default_rng(draw).permutation(half)[:size]
                calibrator = posthoc.CALIBRATORS[name](logits[rows], labels[rows])
                scores.append(_scores(calibrator(logits[half:]), labels[half:]))
            nll, ece = np.mean(scores, axis=0)
            cells.append(f"{nll:.3f}, {100 * ece:.1f} %")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _scores(probs: jax.Array, labels: np.ndarray) -> tuple[float, float]:
    """Return NLL, a probability of 0 taken as 1e-30, and the ECE of 15 bins of equal width."""
    nll = metrics.nll(posthoc.logits_from_probs(probs), labels)
    return float(nll), float(metrics.ece(*metrics.top_label_probs(probs, labels)))


def _print_expected(title: str, probs: np.ndarray) -> None:
    confidence = probs.max(axis=-1)
    rng = np.random.default_rng(0)
    for size in _SIZES:
        draws = []
        for _ in range(100):
            some = rng.choice(confidence, size, replace=False)
            draws.append(float(metrics.ece(some, rng.random(size) < some)))
        low, high = np.percentile(draws, [2.5, 97.5])
        print(
            f"{title}, {size:,} rows, perfectly calibrated: ECE {100 * np.mean(draws):.1f} % "
            f"({100 * low:.1f} to {100 * high:.1f})"
        )


if __name__ == "__main__":
    main()
