"""Requests to stop: SIGTERM from a scheduler, SIGINT from the keyboard."""

import os
import signal
import types


class Stopped(Exception):  # noqa: N818 - it is no error
    """A run stopped because it was asked to; the message says where it can continue."""


class StopRequest:
    """Turn the first SIGTERM or SIGINT into a request and let a second one through.

    A context manager: the previous handlers are restored at its end.

    Attributes:
      signal: Number of the signal received; `None` before.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def requested(self) -> bool:
        """Return whether a signal has been received."""
        return self.signal is not None

    def _handle(self, number: int, _: types.FrameType | None) -> None:
        self.signal = number
        # Not print: it may be what was interrupted.
        os.write(2, b"\nstopping after this step; the same signal again stops at once\n")
        signal.signal(number, self._previous[number])  # type: ignore[arg-type]
