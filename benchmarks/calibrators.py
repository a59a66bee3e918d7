"""All calibrators on the outputs of two networks: `python -m benchmarks.calibrators [FOLDER]`.

Fits each to the first half of the rows and measures NLL and ECE on the other half. The time is the CPU
time of a second fit, when everything is compiled. FOLDER has the softmax outputs; the default is
`softmax_outputs` of the folder that CALIB_JAX_DATA names. A third table is of two classes: the first five
of CIFAR-10 against the others. Prints the tables of docs/calibrators.md.
"""

import os
import pathlib
import sys
import time

import jax
import numpy as np

from calib_jax import metrics, posthoc

_NETWORKS = {
    "wideresnet-16-4-cifar-10": "WideResNet-16-4, CIFAR-10",
    "densenet-bc-100-cifar-100": "DenseNet-BC-100, CIFAR-100",
}
_BINARY = ("platt", "beta")  # for two classes
_HALF = 5  # classes of CIFAR-10 in the first of two


def main() -> None:
    """Print a table for each network, and one of two classes."""
    folder = pathlib.Path(os.environ.get("CALIB_JAX_DATA", "."), "softmax_outputs")
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder
    tables = []
    for name, title in _NETWORKS.items():
        if not (folder / f"{name}.npz").is_file():
            sys.exit(f"benchmarks.calibrators: {folder / f'{name}.npz'}: no such file")
        with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
            tables.append((title, archive["predictions"], archive["ground_truth"]))
    title, probs, labels = tables[0]
    two = np.stack([probs[:, :_HALF].sum(axis=1), probs[:, _HALF:].sum(axis=1)], axis=1)
    tables.append((f"{title}, classes 0 to 4 against 5 to 9", two, labels // _HALF))
    for title, probs, labels in tables:
        _print_table(title, np.asarray(posthoc.logits_from_probs(probs)), labels)


def _print_table(title: str, logits: np.ndarray, labels: np.ndarray) -> None:
    half = len(labels) // 2
    print(f"\n{title}: {half} rows to fit, {len(labels) - half} held out\n")
    print("| calibrator | held-out NLL | held-out ECE-15 % | fit, CPU seconds |")
    print("|---|---|---|---|")
    print(_row("none", jax.nn.softmax(logits[half:]), labels[half:], ""))
    for name, fit in posthoc.CALIBRATORS.items():
        if name in _BINARY and logits.shape[1] != 2:
            continue
        jax.block_until_ready(fit(logits[:half], labels[:half]))
        start = time.process_time()
        calibrator = jax.block_until_ready(fit(logits[:half], labels[:half]))
        seconds = f"{time.process_time() - start:.2f}"
        shown = f"{name} ({calibrator.chosen})" if isinstance(calibrator, posthoc.Auto) else name
        print(_row(shown, calibrator(logits[half:]), labels[half:], seconds), flush=True)


def _row(name: str, probs: jax.Array, labels: np.ndarray, seconds: str) -> str:
    """Return a line of the table; a probability of 0 is taken as 1e-30."""
    nll = metrics.nll(posthoc.logits_from_probs(probs), labels)
    ece = metrics.ece(*metrics.top_label_probs(probs, labels))
    return f"| {name} | {float(nll):.4f} | {100 * float(ece):.2f} | {seconds} |"


if __name__ == "__main__":
    main()
