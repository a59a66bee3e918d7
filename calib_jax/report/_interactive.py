"""The predictions that a page carries for its interactive reliability diagram (interactive.js)."""

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calib_jax.report._types import Json

MAX_ROWS = 5000  # of all samples of a page
_NUM_TOP = 10  # classes of a row; the others are summed


class Sample(NamedTuple):
    """A random part of a set of predictions, from which any temperature can be computed.

    Attributes:
      title: Name of the predictions.
      num_rows: Number of rows of the whole set.
      names: Names of the classes.
      logits: Largest logits of each row, in descending order, float32 `[rows, top]`.
      classes: Their classes, int32 `[rows, top]`.
      labels: Labels, int32 `[rows]`.
      label_logits: Logits of the labels, float32 `[rows]`.
      rest: Logsumexp of the other classes' logits at temperatures 2, 1 and 0.5, float32 `[rows, 3]`;
        zeros if there are none.
      temperatures: Fitted temperatures by name.
    """

    title: str
    num_rows: int
    names: Sequence[str]
    logits: np.ndarray
    classes: np.ndarray
    labels: np.ndarray
    label_logits: np.ndarray
    rest: np.ndarray
    temperatures: Mapping[str, float]

    def to_json(self) -> dict[str, Json]:
        """Return the fields for interactive.js, arrays as base64 of little-endian numbers."""
        fields = self._asdict()
        arrays = {key: x for key, x in fields.items() if isinstance(x, np.ndarray)}
        encoded = {
            key: base64.b64encode(x.astype(x.dtype.newbyteorder("<")).tobytes()).decode("ascii")
            for key, x in arrays.items()
        }
        predicted = set(self.classes[:, 0].tolist())
        names = {str(c): str(name) for c, name in enumerate(self.names) if c in predicted}
        sizes = {"num_classes": len(self.names), "num_top": self.logits.shape[1]}
        return fields | encoded | sizes | {"names": names}


def take_sample(
    title: str,
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    names: Sequence[str] | None = None,
    temperatures: Mapping[str, float] | None = None,
    max_rows: int = MAX_ROWS,
    seed: int = 0,
) -> Sample:
    """Draw the rows of the interactive figure.

    Of more than twelve classes, each row keeps the ten largest logits; the others are known by their
    logsumexp at three temperatures, between which the page interpolates.

    Args:
      title: Name of the predictions.
      logits: Logits `[n, num_classes]`.
      labels: Labels `[n]`.
      names: Names of the classes; their numbers if there are none.
      temperatures: Fitted temperatures by name.
      max_rows: Number of rows to keep of a larger set.
      seed: Seed of the draw.
    """
    n, num_classes = logits.shape
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:max_rows])
    logits, labels = np.asarray(logits, np.float32)[rows], np.asarray(labels, np.int32)[rows]
    num_top = num_classes if num_classes <= _NUM_TOP + 2 else _NUM_TOP
    order = np.argsort(-logits, axis=1, kind="stable").astype(np.int32)
    ranked = np.take_along_axis(logits, order, axis=1)
    rest = np.zeros((len(rows), 3), np.float32)
    if num_top < num_classes:
        others = ranked[:, num_top:].astype(np.float64)
        rest = np.stack([_logsumexp(others / t) for t in (2, 1, 0.5)], axis=1)
    return Sample(
        title=title,
        num_rows=n,
        names=names or [str(c) for c in range(num_classes)],
        logits=np.ascontiguousarray(ranked[:, :num_top]),
        classes=np.ascontiguousarray(order[:, :num_top]),
        labels=labels,
        label_logits=logits[np.arange(len(rows)), labels],
        rest=rest.astype(np.float32),
        temperatures=temperatures or {},
    )


def _logsumexp(descending: np.ndarray) -> np.ndarray:
    """Return the logsumexp of rows whose largest entry is the first, `[n]`."""
    largest = descending[:, :1]
    return largest[:, 0] + np.log(np.exp(descending - largest).sum(axis=1))
