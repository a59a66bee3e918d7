"""What a user sees while training: a bar on a terminal, now and then a line elsewhere."""

import sys
import time
from typing import Any

import tqdm

from calib_jax.train._processes import is_first

_SECONDS = 10.0  # between lines, where there is no terminal


class Progress:
    """Progress of one run.

    Args:
      title: of the run.
      total: steps.
      start: steps that were done before.
      batch_size: for examples per second.
    """

    def __init__(self, title: str, total: int, start: int, batch_size: int) -> None:
        self.title, self.total, self.start, self.batch_size = title, total, start, batch_size
        self.step, self.began, self._shown = start, time.monotonic(), time.monotonic()
        self._facts: dict[str, str] = {}
        self._bar: Any = None
        self._quiet = not is_first()
        if sys.stderr.isatty() and not self._quiet:
            self._bar = tqdm.tqdm(
                total=total, initial=start, desc=title, unit="step", dynamic_ncols=True, leave=False
            )

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        tqdm.tqdm.write(f"{self.title}: {line}", file=sys.stderr)

    def update(self, step: int, **facts: float) -> None:
        """Shows where the run is; `facts` stay until they are replaced."""
        self._facts |= {key: f"{value:.4g}" for key, value in facts.items()}
        done, self.step = step - self.step, step
        if self._bar is not None:
            self._bar.set_postfix(self._facts | {"ex/s": f"{self.rate():.0f}"}, refresh=False)
            self._bar.update(done)
            return
        now = time.monotonic()
        if now - self._shown >= _SECONDS or (step == self.total and done):
            self._shown = now
            self.say(self._line(now))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def rate(self) -> float:
        """Examples per second since the start, compilation included."""
        return self.batch_size * (self.step - self.start) / max(time.monotonic() - self.began, 1e-9)

    def _line(self, now: float) -> str:
        left = (now - self.began) / max(self.step - self.start, 1) * (self.total - self.step)
        facts = "".join(f", {key} {value}" for key, value in self._facts.items())
        ahead = f", {left:.0f} s to go" if self.step < self.total else ""
        return f"step {self.step}/{self.total}{facts}, {self.rate():.0f} examples/s{ahead}"
