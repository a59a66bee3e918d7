"""Evaluate saved predictions of any framework.

    python -m calib_jax.evaluate predictions.npz
    python -m calib_jax.evaluate test.npz --validation val.npz --calibrate temperature,ets,spline

PREDICTIONS is an .npz with `logits` or `probs` [n, num_classes] and `labels` [n], or a .csv with a
header, a `label` column and one column per class. Calibrators are fitted on --validation; without it
the predictions are split into two random halves, each calibrated by a fit on the other.

Prints a table with 95 % bootstrap intervals and writes results.json, reliability.png and
risk_coverage.png.
"""

import argparse
import pathlib
import sys

from calib_jax import __version__, evaluation, posthoc, report
from calib_jax._io import write_json
from calib_jax._startup import keep_compiled


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m calib_jax.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("predictions", metavar="PREDICTIONS", help=".npz or .csv file")
    parser.add_argument("--validation", metavar="VAL", help="file to fit the calibrators on")
    parser.add_argument(
        "--calibrate", default="", metavar="NAMES",
        help=f"comma-separated, of: {', '.join(posthoc.CALIBRATORS)}",
    )  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="where to write (default runs/<file name>)")
    parser.add_argument("--seed", type=int, default=0, help="of halves and bootstrap (default 0)")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    keep_compiled()
    names = [name.strip() for name in arguments.calibrate.split(",") if name.strip()]
    path, validation_path = arguments.predictions, arguments.validation
    out = pathlib.Path(arguments.out or f"runs/{pathlib.Path(path).stem}")
    test = evaluation.load_predictions(path)
    validation = evaluation.load_predictions(validation_path) if validation_path else None
    for title, predictions in (("predictions", test), ("validation", validation)):
        for note in predictions.notes if predictions else ():
            print(f"{title}: {note}")
    if names and validation is None:
        print("calibrators: no --validation, so each half is calibrated by a fit on the other half")
    results = evaluation.evaluate(test, validation, names, seed=arguments.seed)

    print("\n" + report.metric_table([(r.name, r.metrics, r.intervals) for r in results]))
    print("* best of the row; [95 % bootstrap interval over the examples]")
    print(
        "resampling adds noise, which raises any calibration error: a small one may lie below its own"
    )
    for result in results:
        for key, values in result.parameters.items():
            print(f"{result.name}: {key} = {', '.join(f'{v:.4g}' for v in values)}")

    out.mkdir(parents=True, exist_ok=True)
    panels = [(r.name, r.confidence, r.correct) for r in results]
    report.plot_reliability(panels).savefig(out / "reliability.png", dpi=130)
    report.plot_risk_coverage(panels).savefig(out / "risk_coverage.png", dpi=130)
    record = {
        "version": __version__,
        "predictions": str(path),
        "validation": str(validation_path) if validation_path else None,
        "seed": arguments.seed,
        "num_examples": len(test.labels),
        "num_classes": test.num_classes,
        "notes": test.notes,
        "results": [result.to_json() for result in results],
    }
    write_json(out / "results.json", record)
    print(f"\nwritten: {out}/results.json, reliability.png, risk_coverage.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
