"""Train on known truth, test the claims, measure the estimators: `python -m benchmarks.evidence`."""

import argparse
import json
import pathlib

from benchmarks.evidence import _claims, _docs, _estimators, _fresh, _train
from calib_jax._io import write_atomic

_RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "results"
_EPILOG = """\
examples:
  python -m benchmarks.evidence train runs/evidence              all sources, sizes and noise levels
  python -m benchmarks.evidence train runs/evidence --source texts  one of them
  python -m benchmarks.evidence claims runs/evidence             tested claims to docs/results
  python -m benchmarks.evidence fresh runs/evidence              test rows against a million fresh draws
  python -m benchmarks.evidence estimators                       ECE estimators and calibrators by size
  python -m benchmarks.evidence docs                             their tables to docs/results.md
"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("train", "claims", "fresh", "estimators", "docs"))
    parser.add_argument("runs", nargs="?", type=pathlib.Path, default=pathlib.Path("runs/evidence"))
    parser.add_argument("--source", choices=_train.SOURCES, action="append", help="default: all")
    parser.add_argument("--cell", type=int, choices=range(4), help="size and noise; default: all")
    parser.add_argument("--out", type=pathlib.Path, default=_RESULTS, help="default: docs/results")
    options = parser.parse_args(arguments)
    sources = options.source or list(_train.SOURCES)
    if options.command == "train":
        _train.train(options.runs, sources, options.cell)
        return
    if options.command == "docs":
        path = _docs.DOCS / "results.md"
        write_atomic(path, _docs.with_tables(path.read_text(), _docs.tables(options.out)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if options.command == "fresh":
        print(_fresh.write(options.runs, options.out))
        return
    if options.command == "estimators":
        _estimators.write(options.out)
        return
    for source in sources:
        if any(options.runs.glob(f"{source}_*")):
            content = json.dumps(_claims.collect(options.runs, source), separators=(",", ":"))
            write_atomic(options.out / f"known_truth_{source}.json", content + "\n")
    print(_claims.write_claims(options.out))


if __name__ == "__main__":
    main()
