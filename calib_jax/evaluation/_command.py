"""What `python -m calib_jax.evaluate` does: read, evaluate, print, write."""

import pathlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

import numpy as np

from calib_jax import __version__, posthoc
from calib_jax._io import write_json, write_npz
from calib_jax.evaluation._align import align_classes
from calib_jax.evaluation._bootstrap import default_num_samples
from calib_jax.evaluation._calibrate import check_calibrators
from calib_jax.evaluation._evaluate import Evaluation, compare, evaluate
from calib_jax.evaluation._predictions import Predictions
from calib_jax.evaluation._read import load_predictions
from calib_jax.evaluation._warnings import validation_warnings

_PROGRESS_SECONDS = 2.0


def run_evaluation(
    paths: Sequence[str],
    *,
    validation: str | None = None,
    calibrators: Sequence[str] = (),
    out: pathlib.Path,
    seed: int = 0,
    num_bootstrap: int | None = None,
    save_calibrator: pathlib.Path | None = None,
    sets: float | None = None,
    interactive: bool = True,
    plot_format: str = "png",
) -> None:
    """Evaluate files of predictions, print tables and write results, plots and a page.

    Args:
      paths: One file, or several on the same examples, which are compared with the first.
      validation: File to fit the calibrators on.
      calibrators: Names of the calibrators.
      out: Folder to write to.
      seed: Seed of halves and bootstrap.
      num_bootstrap: Number of resamples; `None`: by the number of examples.
      save_calibrator: File to save the only calibrator to.
      sets: How often conformal sets may miss the label; `None`: no sets.
      interactive: Whether the page gets a figure with sliders.
      plot_format: `png`, `svg` or `pdf`.
    """
    check_calibrators(calibrators)
    _check_arguments(paths, validation, calibrators, num_bootstrap, save_calibrator)
    if sets is not None and not 0 < sets < 1:
        raise ValueError(f"--sets={sets}: expected a value between 0 and 1, such as 0.1")
    check_folder("--out", out)
    if save_calibrator is not None:
        check_folder("--save_calibrator", save_calibrator.parent)
    with Progress() as progress:
        files = {path: _load(path, path, progress) for path in paths}
        test = files[paths[0]]
        held_out = _load(validation, "validation", progress) if validation else None
        warnings = validation_warnings(test, held_out, calibrators) if held_out else []
        names = dict(zip(_short_names(paths), files.values(), strict=True))
        num_samples = num_bootstrap or default_num_samples(test.labels.size)
        if len(names) == 1:
            results = evaluate(
                test, held_out, calibrators, seed=seed, num_samples=num_samples, alpha=sets,
                progress=progress,
            )  # fmt: skip
        else:
            results = compare(
                names, calibrators, seed=seed, num_samples=num_samples, alpha=sets,
                progress=progress,
            )  # fmt: skip
        progress("plots and report")
        record = {
            "version": __version__,
            "predictions": list(map(str, paths)) if len(paths) > 1 else str(paths[0]),
            "validation": str(validation) if validation else None,
            "seed": seed,
            "num_bootstrap": num_samples,
            "num_examples": len(test.labels),
            "num_classes": test.num_classes,
            "independent_labels": test.is_independent,
            "alpha": sets,
            "notes": test.notes,
            "warnings": warnings,
            "results": [result.to_json() for result in results],
        }
        write_json(out / "results.json", record)
        written = ["results.json", *_write_pictures(out, test, results, interactive, plot_format)]
    for warning in warnings:
        print(f"warning: {warning}")
    _print_results(results, num_samples, cross_fitted=bool(calibrators) and held_out is None)
    _print_details(results, test, sets)
    if save_calibrator is not None:
        _save(save_calibrator, calibrators[0], test, held_out)
    print(f"\nwritten: {out}/{', '.join(written)}")


def run_apply(calibrator_path: str, path: str, out: pathlib.Path) -> None:
    """Calibrate predictions by a saved calibrator, and write `probs.npz` with `probs`.

    Args:
      calibrator_path: File that `posthoc.save` or `--save_calibrator` wrote.
      path: Predictions; labels are not needed.
      out: Folder to write to.
    """
    check_folder("--out", out)
    calibrator = posthoc.load(calibrator_path)
    with Progress() as progress:
        independent = getattr(calibrator, "independent", False)
        predictions = _load(path, path, progress, labeled=False, independent=independent)
        progress("calibrating")
        try:
            probs = np.asarray(calibrator(predictions.logits, check=False))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        write_npz(out / "probs.npz", probs=probs)
    if predictions.label_names:
        print(f"classes, in the order of the columns: {', '.join(predictions.label_names)}")
    print(f"written: {out}/probs.npz (probs {probs.shape}, by {type(calibrator).__name__})")


def check_folder(flag: str, folder: pathlib.Path) -> None:
    """Create a folder and raise a ValueError if nothing can be written there.

    Args:
      flag: Flag that named the folder.
      folder: Folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{flag} {folder}: cannot be written to ({error.strerror})") from None


class Progress:
    """A line on stderr about what takes more than two seconds; `progress(text)` says what it is."""

    def __init__(self) -> None:
        self.text = ""
        self.shown = ""
        self.start = time.monotonic()
        self.finished = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __call__(self, text: str) -> None:
        """Set what is being done."""
        self.text = text

    def __enter__(self) -> "Progress":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.finished.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.finished.wait(_PROGRESS_SECONDS):
            if self.text != self.shown:
                self.shown = self.text
                seconds = time.monotonic() - self.start
                print(f"[{seconds:.0f} s] {self.text}", file=sys.stderr, flush=True)


def _check_arguments(
    paths: Sequence[str],
    validation: str | None,
    calibrators: Sequence[str],
    num_bootstrap: int | None,
    save_calibrator: pathlib.Path | None,
) -> None:
    if len(set(paths)) < len(paths):
        raise ValueError("PREDICTIONS: expected different files to compare")
    if len(paths) > 1 and validation:
        raise ValueError(
            "--validation: expected one file of predictions; several are cross-fitted each"
        )
    if num_bootstrap is not None and num_bootstrap < 1:
        raise ValueError(f"--num_bootstrap={num_bootstrap}: expected at least 1")
    if save_calibrator is not None:
        if len(calibrators) != 1 or len(paths) > 1:
            raise ValueError(
                "--save_calibrator: expected one file of predictions and one calibrator in --calibrate"
            )
        if save_calibrator.suffix != ".npz":
            raise ValueError(f"--save_calibrator {save_calibrator}: expected a name ending in .npz")


def _load(
    path: str, title: str, progress: Progress, *, labeled: bool = True, independent: bool = False
) -> Predictions:
    progress(f"reading {path}")
    predictions = load_predictions(path, labeled=labeled, independent=independent)
    for note in predictions.notes:
        print(f"{title}: {note}")
    return predictions


def _short_names(paths: Sequence[str]) -> list[str]:
    """Return the names of files without folder and suffix, if that leaves them different."""
    stems = [pathlib.Path(path.partition(",")[0]).stem for path in paths]
    return stems if len(set(stems)) == len(stems) else list(paths)


def _write_pictures(
    out: pathlib.Path,
    test: Predictions,
    results: Sequence[Evaluation],
    interactive: bool,
    plot_format: str,
) -> list[str]:
    """Write plots, and a page unless several files are compared; return the names of the files."""
    from calib_jax import report  # imports matplotlib

    panels = [(r.name, r.confidence, r.correct) for r in results]
    if test.is_independent:
        figure = report.plot_reliability(panels, words=("P(y=1)", "share of y=1"))
        report.save_plot(figure, out / f"reliability.{plot_format}")
        report.write_label_page(out / "report.html", test, results, figure)
        return [f"reliability.{plot_format}", "report.html"]
    reliability, risk = report.plot_reliability(panels), report.plot_risk_coverage(panels)
    written = [f"{name}.{plot_format}" for name in ("reliability", "risk_coverage")]
    for name, figure in zip(written, (reliability, risk), strict=True):
        report.save_plot(figure, out / name)
    if results[0].name == "uncalibrated":
        report.write_evaluation_page(
            out / "report.html",
            test,
            results,
            interactive=interactive,
            figures=(reliability, risk),
        )
        written.append("report.html")
    return written


def _print_results(results: Sequence[Evaluation], num_samples: int, *, cross_fitted: bool) -> None:
    from calib_jax import report

    if cross_fitted:
        print("calibrators: no --validation, so each half is calibrated by a fit on the other half")
    for result in results:
        for warning in result.warnings:
            print(f"warning: {result.name}: {warning}")
    if results[0].name == "uncalibrated" and "ece" in results[0].metrics:
        print(f"\n{report.verdict(results)}")
    width = shutil.get_terminal_size().columns - 1 if sys.stdout.isatty() else None
    columns = [(r.name, r.metrics, r.intervals) for r in results]
    print("\n" + report.metric_table(columns, max_width=width))
    print(f"* best of the row; [95 % bootstrap interval, {num_samples} resamples of the examples]")
    print("resampling raises calibration errors by noise: a small one may lie below its interval")
    if len(results) > 1:
        print("\n" + report.difference_table(results, max_width=width))
        print("! the 95 % interval of the paired difference does not contain 0")
    for result in results:
        if result.reason:
            print(f"{result.name}: {result.reason}")
        for key, values in result.parameters.items():
            print(f"{result.name}: {key} = {', '.join(f'{v:.4g}' for v in values)}")


def _print_details(results: Sequence[Evaluation], test: Predictions, alpha: float | None) -> None:
    """Print the tables by label and of conformal sets, if there are any."""
    from calib_jax import report

    if results[0].per_label:
        print("\nthe metrics above are means over the labels; of each label:")
        for result in results:
            print(f"\n{report.label_table(result, test.label_names)}")
    if alpha is not None:
        print(f"\nconformal sets that may miss the label in {100 * alpha:g} % of the examples:")
        print(report.set_table(results))
        print("each half of the rows that a calibrator has not seen has the threshold of the other")


def _save(path: pathlib.Path, name: str, test: Predictions, validation: Predictions | None) -> None:
    """Fit the calibrator that is saved: on the validation data, or on all rows without them."""
    data = test if validation is None else align_classes(validation, test)
    posthoc.save(path, posthoc.CALIBRATORS[name](data.logits, data.labels, check=False))
    what = "all rows of the predictions" if validation is None else "the validation rows"
    print(f"saved: {path} ({name}, fitted on {what})")
