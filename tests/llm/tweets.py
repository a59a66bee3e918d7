"""Forty tweets to ask a language model about, and how the tests ask."""

import json
import pathlib
from typing import Any

from llm.stub_server import said

NAMES = ("anger", "anticipation", "disgust", "fear", "joy", "sadness", "surprise", "trust")


def write_tweets(folder: pathlib.Path) -> pathlib.Path:
    """A data folder with 40 tweets to ask about, and 16 of 320 to take examples from."""
    (folder / "ssec").mkdir()
    for part, n in (("train", 40), ("test", 5)):
        rows = [
            "\t".join(
                [*(e.capitalize() if e == name else "---" for e in NAMES), f"{name} {part} {i}"]
            )
            for i in range(n)
            for name in NAMES
        ]
        (folder / f"ssec/{part}-combined-0.66.csv").write_text("\n".join(rows) + "\n")
    return folder


def right(text: str, _: int) -> str:
    """The right answer to a tweet."""
    return said(text.split()[0], 0.9)


def flags_for(
    endpoint: str, tweets: pathlib.Path, workdir: pathlib.Path, more: str = ""
) -> list[str]:
    """The command line of `calib_jax.llm`."""
    flags = f"--data ssec --data_dir {tweets} --endpoint {endpoint} --model small"
    return [*flags.split(), "--workdir", str(workdir), *more.split()]


def results_of(workdir: pathlib.Path) -> dict[str, Any]:
    return json.loads((workdir / "results.json").read_text())
