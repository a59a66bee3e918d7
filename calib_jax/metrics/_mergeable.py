"""A calibration error that is collected batch by batch."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_labels, as_logits, check_labels, check_not_probs
from calib_jax.metrics._binning import BinStats, bin_stats
from calib_jax.metrics._top_label import top_label_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CalibrationError:
    """The ECE of a data set that arrives in batches: a pytree of sums, merged by addition.

    The interface is that of metrics in training loops: `empty`, `from_model_output`, `merge`, `compute`.
    It may be made and merged inside jit, carried through `lax.scan`, summed over devices, or held by a
    stateful metric such as one of Flax NNX (an example is in docs/metrics.md). The result is that of
    `ece(*top_label(logits, labels))` on all batches at once.

    Attributes:
      bins: sums per bin of equal width.

    >>> metric = metrics.CalibrationError.empty()
    >>> for logits, labels in [([[2.0, 0.0]], [0]), ([[0.0, 1.0]], [0])]:
    ...     metric = metric.merge(metrics.CalibrationError.from_model_output(logits, labels))
    >>> round(float(metric.compute()), 4)
    0.4251
    """

    bins: BinStats

    @classmethod
    def empty(cls, *, num_bins: int = 15) -> "CalibrationError":
        """Return the metric of no examples, whose value is NaN."""
        nothing = jnp.zeros(1)
        return cls(bin_stats(nothing, nothing, num_bins=num_bins, weights=nothing))

    @classmethod
    def from_model_output(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        num_bins: int = 15,
        closed: str = "right",
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "CalibrationError":
        """Return the metric of one batch.

        Args:
          logits: `[batch, num_classes]`.
          labels: integers `[batch]` or soft `[batch, num_classes]` (their largest class counts).
          num_bins, closed: as in `bin_stats`; the same for all batches.
          weights: `[batch]`, 0 for padding.
          check: whether probabilities in place of logits are refused; inside jit they never are.
        """
        logits = as_logits(logits)
        labels = as_labels(labels, logits)
        check_labels(labels, logits, weights)
        if check:
            check_not_probs(logits, weights)
        confidence, correct = top_label_of(logits, labels)
        return cls(
            bin_stats(confidence, correct, num_bins=num_bins, closed=closed, weights=weights)
        )

    def merge(self, other: "CalibrationError") -> "CalibrationError":
        """Return the metric of the examples of both."""
        return CalibrationError(self.bins + other.bins)

    def compute(self) -> jax.Array:
        """Return the ECE, a scalar in [0, 1]; NaN without examples."""
        return self.bins.ece()
