"""Classify new inputs with a trained network, with calibrated confidence.

    python -m calib_jax.predict runs/mine/adafocal/seed_0 new.csv --out predictions.csv
    python -m calib_jax.predict runs/mine/adafocal/seed_0 photos/ --abstain_below 0.7
    python -m calib_jax.predict runs/mine/adafocal/seed_0 --export exported/

RUN is the folder of a finished run. INPUT is a .csv, .jsonl or .parquet file with the columns that the
network was trained on (or text, pair, choices, image), an .npz with the array image or features, or a
folder of images. The output has a row for each row of the input, in its order: the line (or row, or
image), the label, its confidence and the probability of each class. A malformed row is reported, and
has no prediction.
"""

import argparse
import os
import pathlib
import sys

from absl import logging

from calib_jax import experiment


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    logging.set_verbosity(logging.FATAL)  # orbax tells of every checkpoint
    try:
        _run(arguments)
        return 0
    except BrokenPipeError:
        # Nobody reads on. What Python still has for the standard output goes nowhere, silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _stop("stopped: the reader of the output has closed it", 141)
    except KeyboardInterrupt:
        return _stop("stopped; no output file was written", 130)
    except (ValueError, OSError) as error:
        return _stop(f"error: {error}", 2)


def _stop(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m calib_jax.predict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="folder of a run: WORKDIR/METHOD/seed_N")
    parser.add_argument("input", metavar="INPUT", nargs="?", help="file, or folder of images")
    parser.add_argument(
        "--calibrator", metavar="NAME",
        help="one of the run's, or uncalibrated (default: the first of config.calibrate)",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="FILE", help=".csv, .jsonl or .parquet (default: csv, standard output)"
    )
    parser.add_argument(
        "--abstain_below", type=float, default=0.0, metavar="CONFIDENCE",
        help="leave the label empty where the confidence is lower",
    )  # fmt: skip
    parser.add_argument(
        "--network", metavar="FILE", help="config file whose get_network made the network"
    )
    parser.add_argument(
        "--export", metavar="FOLDER",
        help="write the classifier as a jax.export program and, if it is an encoder, for PyTorch",
    )  # fmt: skip
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if not arguments.input and not arguments.export:
        raise ValueError("what is to be done? Give INPUT to classify, or --export FOLDER")
    experiment.keep_compiled()
    network = None
    if arguments.network:
        network = experiment.network_from_file(arguments.network, arguments.run)
    classifier = experiment.load(arguments.run, network)
    if arguments.export:
        folder = pathlib.Path(arguments.export)
        for line in experiment.export(classifier, folder, arguments.calibrator):
            print(line, file=sys.stderr)
    if arguments.input:
        out = pathlib.Path(arguments.out) if arguments.out else None
        summary = experiment.predict_file(
            classifier, pathlib.Path(arguments.input), out,
            calibrator=arguments.calibrator, abstain_below=arguments.abstain_below,
        )  # fmt: skip
        for count, what in ((summary.malformed, "malformed"), (summary.abstained, "abstained")):
            if count:
                print(f"{count:,} of {summary.rows:,} rows {what}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
