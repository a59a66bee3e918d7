"""Evaluate saved predictions of any framework.

    python -m calib_jax.evaluate predictions.npz
    python -m calib_jax.evaluate test.npz --validation val.npz --calibrate temperature,ets,svs
    python -m calib_jax.evaluate a.npz b.npz                          compare two classifiers
    python -m calib_jax.evaluate val.npz --calibrate svs --save_calibrator svs.npz
    python -m calib_jax.evaluate apply svs.npz new.npz --out calibrated

PREDICTIONS is an .npz with `logits` or `probs` [n, num_classes] and `labels` [n] (of labels that are 0
or 1, all [n] or [n, num_labels]), a .csv, .jsonl or .parquet with a `label` column and one per class,
or a pair logits.npy,labels.npy; docs/evaluate.md has the rules. Calibrators are fitted on --validation;
without it on two random halves, each calibrated by a fit on the other.

Prints a table with 95 % bootstrap intervals and writes results.json, report.html and plots.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Iterable

from calib_jax import _startup


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is None:  # of stdout: nothing more goes there, at exit neither
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader, such as head, has seen enough
            return 141
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        return 1
    except MemoryError:
        print("error: not enough memory", file=sys.stderr)
        return 1
    return 0


def _run(argv: list[str]) -> None:
    with _startup.interruptible_imports():
        from calib_jax import evaluation, posthoc

    _startup.keep_memory()
    _startup.keep_compiled(least_seconds=0.0)  # many small programs: a second of four
    if argv[:1] == ["apply"]:
        arguments = _apply_parser().parse_args(argv[1:])
        evaluation.run_apply(arguments.calibrator, arguments.predictions, arguments.out)
        return
    options = vars(_parser(posthoc.CALIBRATORS).parse_args(argv))
    paths = options.pop("predictions")
    names = list(dict.fromkeys(filter(None, map(str.strip, options.pop("calibrate").split(",")))))
    options["out"] = options["out"] or pathlib.Path("runs", pathlib.Path(paths[0]).stem)
    evaluation.run_evaluation(paths, calibrators=names, **options)


def _parser(calibrators: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m calib_jax.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("predictions", metavar="PREDICTIONS", nargs="+", help="a file; several are compared")
    add("--validation", metavar="VAL", help="file to fit the calibrators on")
    known = f"comma-separated, of: {', '.join(calibrators)}"
    add("--calibrate", default="", metavar="NAMES", help=known)
    add("--out", type=pathlib.Path, metavar="DIR", help="default: runs/<file name>")
    add("--seed", type=int, default=0, help="of halves and bootstrap (default 0)")
    add("--num_bootstrap", type=int, metavar="N", help="resamples (default: by the number of rows)")
    add("--save_calibrator", type=pathlib.Path, metavar="FILE.npz", help="for `apply`")
    add("--sets", type=float, metavar="ALPHA", help="conformal sets that miss the label so often")
    no_interactive = "a report.html without the figure that has sliders and embeds a sample of rows"
    add("--no_interactive", dest="interactive", action="store_false", help=no_interactive)
    add("--plot_format", choices=("png", "svg", "pdf"), default="png", help="default: png")
    return parser


def _apply_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calib_jax.evaluate apply")
    parser.add_argument("calibrator", metavar="CALIBRATOR.npz", help="from --save_calibrator")
    parser.add_argument("predictions", metavar="PREDICTIONS", help="logits or probs")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
