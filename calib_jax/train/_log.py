"""metrics.jsonl: one line per evaluation, the truth about a run."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from calib_jax.train._processes import is_first


class Log:
    """Lines of a run, in the order of their steps.

    Args:
      path: of the file.
      tensorboard: write scalars to this folder as well.
    """

    def __init__(self, path: pathlib.Path, tensorboard: pathlib.Path | None = None) -> None:
        self.path = path
        self._tensorboard = tensorboard
        self._writer: Any = None

    def rows(self) -> list[dict[str, Any]]:
        """All complete lines; a last one that was cut off when the machine stopped is not one."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a line; it is on the disk before any checkpoint that knows of it."""
        if not is_first():
            return
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self._tensorboard is not None:
            self._show(row)

    def cut(self, step: int) -> None:
        """Drops the lines after `step`, which a resumed run will write again."""
        if not is_first():
            return
        kept = [json.dumps(row) + "\n" for row in self.rows() if row["step"] <= step]
        if self.path.exists():
            new = self.path.with_suffix(".tmp")
            new.write_text("".join(kept))
            new.replace(self.path)

    def _show(self, row: Mapping[str, Any]) -> None:
        if self._writer is None:
            import tensorboardX

            # What a killed run showed of the steps to come is taken back.
            self._writer = tensorboardX.SummaryWriter(
                str(self._tensorboard), purge_step=row["step"], flush_secs=10
            )
        for key, value in row.items():
            if isinstance(value, int | float) and key != "step":
                self._writer.add_scalar(key, value, row["step"])
