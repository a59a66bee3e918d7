"""The calibrator that predicts best what it was not fitted to."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax._arrays import take_label, weighted_mean
from calib_jax._hints import check_choice
from calib_jax.posthoc._binary import Beta, Platt
from calib_jax.posthoc._common import Calibrator, FittingData, fitting_data
from calib_jax.posthoc._ensemble import EnsembleTemperature
from calib_jax.posthoc._scaling import VectorScaling
from calib_jax.posthoc._structured import StructuredMatrixScaling, StructuredVectorScaling
from calib_jax.posthoc._temperature import Temperature

_FITS: dict[str, Callable[..., Calibrator]] = {
    "temperature": Temperature.fit,
    "ets": EnsembleTemperature.fit,
    "vector": VectorScaling.fit,
    "svs": StructuredVectorScaling.fit,
    "sms": StructuredMatrixScaling.fit,
    "platt": Platt.fit,
    "beta": Beta.fit,
}
_MOST_CLASSES_OF_A_MATRIX = 200  # six fits of `sms` take a minute there


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Auto(Calibrator):
    """The candidate with the lowest cross-fitted NLL, fitted to all examples.

    Attributes:
      calibrator: what was chosen.
      nll: cross-fitted NLL of each candidate `[candidates]`, in nats.
      names: the candidates' names in `CALIBRATORS`.

    >>> calibrator = posthoc.Auto.fit([[2.0, 0.0], [0.0, 1.0]] * 20, [0, 0, 0, 1] * 10,
    ...                               candidates=["temperature", "platt"])
    >>> calibrator.reason
    'platt: lowest cross-fitted NLL (temperature 0.4758, platt 0.3869)'
    """

    calibrator: Calibrator
    nll: jax.Array
    names: tuple[str, ...] = dataclasses.field(metadata={"static": True})

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        candidates: Sequence[str] | None = None,
        folds: int = 5,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "Auto":
        """Fit each candidate to all folds but one, measure its NLL on that one, and choose.

        The folds are random, always the same ones for the same number of examples. The choice depends
        on values, so it cannot be part of a jitted function (calling the result can).

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          candidates: names of `temperature`, `ets`, `vector`, `svs`, `sms`, `platt`, `beta`; `None` takes
            all that apply: the last two for two classes, `sms` for 200 classes at most.
          folds: number of folds, at most one per example.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.
        """
        data = fitting_data(logits, labels, weights, check)
        names = _candidates(data.num_classes) if candidates is None else tuple(candidates)
        if not names:
            raise ValueError("candidates: expected at least one name")
        for name in names:
            check_choice("candidates", name, _FITS)
        fold = _folds(data, folds)
        nll = jnp.stack([_cross_fitted_nll(_FITS[name], data, fold) for name in names])
        best = _FITS[names[int(jnp.argmin(nll))]]
        chosen = best(data.logits, data.labels, weights=data.weights, check=False)
        return cls(chosen, nll, names, num_classes=data.num_classes)

    @property
    def chosen(self) -> str:
        """Return the name of the candidate that was chosen."""
        return self.names[int(jnp.argmin(self.nll))]

    @property
    def reason(self) -> str:
        """Return why, in one line: the cross-fitted NLL of each candidate."""
        scores = ", ".join(f"{n} {float(x):.4f}" for n, x in zip(self.names, self.nll, strict=True))
        return f"{self.chosen}: lowest cross-fitted NLL ({scores})"

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`."""
        return self.calibrator(self._as_logits(logits, check), check=False)


def _candidates(num_classes: int) -> tuple[str, ...]:
    """Return the names of the candidates that apply."""
    left_out = set() if num_classes == 2 else {"platt", "beta"}
    if num_classes > _MOST_CLASSES_OF_A_MATRIX:
        left_out.add("sms")
    return tuple(name for name in _FITS if name not in left_out)


def _folds(data: FittingData, folds: int) -> np.ndarray:
    """Return the fold of each example `[n]`, -1 for one of weight 0."""
    n = data.labels.shape[0]
    counted = np.flatnonzero(np.ones(n) if data.weights is None else np.asarray(data.weights))
    if folds < 2 or len(counted) < 2:
        raise ValueError(f"folds={folds} of {len(counted)} examples: expected at least 2 of each")
    fold = np.full(n, -1)
    shuffled = np.random.default_rng(0).permutation(len(counted))
    fold[counted[shuffled]] = np.arange(len(counted)) % min(folds, len(counted))
    return fold


def _cross_fitted_nll(
    fit: Callable[..., Calibrator], data: FittingData, fold: np.ndarray
) -> jax.Array:
    """Return the mean NLL of examples by the calibrator that was fitted without their fold."""
    weights = jnp.ones_like(data.logits[:, 0]) if data.weights is None else data.weights
    surprise = jnp.zeros_like(weights)
    for i in range(fold.max() + 1):
        left_out = jnp.asarray(fold == i)
        others = jnp.where(left_out, 0.0, weights)
        calibrator = fit(data.logits, data.labels, weights=others, check=False)
        probs = take_label(calibrator(data.logits, check=False), data.labels)
        # A probability of 0 counts as 1e-30, as in an evaluation.
        surprise = jnp.where(left_out, -jnp.log(jnp.maximum(probs, 1e-30)), surprise)
    nll = weighted_mean(surprise, weights)
    return jnp.where(jnp.isnan(nll), jnp.inf, nll)  # argmin would choose what is no number
