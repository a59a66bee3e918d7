"""The log of a run: metrics.jsonl, one line per evaluation, and the progress shown to a user."""

import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import tqdm

from calib_jax._io import write_atomic
from calib_jax.train._distributed import is_primary

if TYPE_CHECKING:
    import tensorboardX

Row: TypeAlias = dict[str, Any]  # a line of the log: JSON values by name
# Functions of the path of a log and a new line of it, by name: for trackers other than TensorBoard.
LOG_HOOKS: dict[str, Callable[[pathlib.Path, Row], None]] = {}
_SECONDS = 10.0  # between lines, where there is no terminal


class Log:
    """Lines of a run in the order of their steps: the source of truth.

    Args:
      path: File of the log.
      tensorboard: Folder to write scalars to as well.
    """

    def __init__(self, path: pathlib.Path, tensorboard: pathlib.Path | None = None) -> None:
        self.path = path
        self._tensorboard = tensorboard
        self._writer: tensorboardX.SummaryWriter | None = None

    def rows(self) -> list[Row]:
        """Return all complete lines, without a last one that was cut off when the machine stopped."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def append(self, row: Row) -> None:
        """Write a line; it is on the disk before any checkpoint of a later step."""
        if not is_primary():
            return
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self._tensorboard is not None:
            self._add_scalars(row)
        for hook in LOG_HOOKS.values():
            hook(self.path, row)

    def truncate(self, step: int) -> None:
        """Drop the lines after `step`, which a resumed run will write again."""
        if not is_primary():
            return
        kept = [json.dumps(row) + "\n" for row in self.rows() if row["step"] <= step]
        if self.path.exists():
            write_atomic(self.path, "".join(kept))

    def _add_scalars(self, row: Row) -> None:
        if self._writer is None:
            import tensorboardX

            # What a killed run wrote of later steps is removed.
            self._writer = tensorboardX.SummaryWriter(
                str(self._tensorboard), purge_step=row["step"], flush_secs=10
            )
        for key, value in row.items():
            if isinstance(value, int | float) and key != "step":
                self._writer.add_scalar(key, value, row["step"])


class Progress:
    """Progress of one run: a bar on a terminal, a line now and then elsewhere.

    A context manager: the bar is closed at its end.

    Args:
      title: Title of the run.
      total: Number of steps.
      start: Number of steps done before.
      batch_size: Examples of a step, for examples per second.
    """

    def __init__(self, title: str, total: int, start: int, batch_size: int) -> None:
        self.title, self.total, self.start, self.batch_size = title, total, start, batch_size
        self.step, self.began, self._shown = start, time.monotonic(), time.monotonic()
        self._facts: dict[str, str] = {}
        self._bar: tqdm.tqdm | None = None
        self._quiet = not is_primary()
        if sys.stderr.isatty() and not self._quiet:
            self._bar = tqdm.tqdm(
                total=total, initial=start, desc=title, unit="step", dynamic_ncols=True, leave=False
            )

    def __enter__(self) -> "Progress":
        if 0 < self.start < self.total:
            self.log(f"resumed at step {self.start} of {self.total}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def log(self, line: str) -> None:
        """Print a line."""
        if self._quiet:
            return
        tqdm.tqdm.write(f"{self.title}: {line}", file=sys.stderr)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Print a line before and after the first call of a program."""
        self.log("compiling the training step ...")
        start = time.monotonic()
        yield
        self.log(f"first step after {time.monotonic() - start:.1f} s")

    def update(self, step: int, **facts: float) -> None:
        """Show the step; `facts` are shown until they are replaced."""
        self._facts |= {key: f"{value:.4g}" for key, value in facts.items()}
        done, self.step = step - self.step, step
        if self._bar is not None:
            self._bar.set_postfix(self._facts | {"ex/s": f"{self.rate():.0f}"}, refresh=False)
            self._bar.update(done)
            return
        now = time.monotonic()
        if now - self._shown >= _SECONDS or (step == self.total and done):
            self._shown = now
            self.log(self._line(now))

    def rate(self) -> float:
        """Return examples per second since the start, compilation included."""
        return self.batch_size * (self.step - self.start) / max(time.monotonic() - self.began, 1e-9)

    def _line(self, now: float) -> str:
        left = (now - self.began) / max(self.step - self.start, 1) * (self.total - self.step)
        facts = "".join(f", {key} {value}" for key, value in self._facts.items())
        ahead = f", {left:.0f} s to go" if self.step < self.total else ""
        return f"step {self.step}/{self.total}{facts}, {self.rate():.0f} examples/s{ahead}"
