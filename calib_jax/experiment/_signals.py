"""Asking a run to stop: SIGTERM from a scheduler, SIGINT from the keyboard."""

import os
import signal
import types


class StopRequest:
    """As a context: turns the first SIGTERM or SIGINT into a request, and lets a second one through."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def requested(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, _: types.FrameType | None) -> None:
        self.signal = number
        # Not print: it may be what was interrupted.
        os.write(2, b"\nstopping after this step; the same signal again stops at once\n")
        signal.signal(number, self._before[number])  # type: ignore[arg-type]
