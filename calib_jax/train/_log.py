"""metrics.jsonl: one line per evaluation, the truth about a run."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


class Log:
    """Lines of a run, in the order of their steps."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        """All complete lines; a last one that was cut off when the machine stopped is not one."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a line; it is on the disk before any checkpoint that knows of it."""
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def cut(self, step: int) -> None:
        """Drops the lines after `step`, which a resumed run will write again."""
        kept = [json.dumps(row) + "\n" for row in self.rows() if row["step"] <= step]
        if self.path.exists():
            new = self.path.with_suffix(".tmp")
            new.write_text("".join(kept))
            new.replace(self.path)
