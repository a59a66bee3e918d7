"""Metrics of predictions before and after post-hoc calibration, with bootstrap intervals."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import losses, metrics, posthoc
from calib_jax.evaluation._bootstrap import Rows, default_num_samples, percentiles, resample
from calib_jax.evaluation._predictions import Predictions
from calib_jax.evaluation._warnings import size_warning, temperature_warning

_LARGE = 10**6  # logits; of fewer, Python takes most of the time, on one core

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one set of predictions.

    Attributes:
      name: `uncalibrated` or the name of the calibrator.
      metrics: Values of `metrics.summary`.
      intervals: 95 % bootstrap intervals `(low, high)` over the examples, for some of the metrics.
      parameters: The few numbers of the calibrator, such as its temperature.
      confidence: Top-label confidence `[n]`.
      correct: Whether the prediction is right `[n]`.
      differences: 95 % intervals of the paired difference from the first evaluation, for the metrics
        that have intervals; of the first one, none.
      warnings: Reasons not to trust the calibrator, one sentence each.
      reason: Why `auto` chose its calibrator; empty for the others.
    """

    name: str
    metrics: dict[str, float]
    intervals: dict[str, Interval]
    parameters: dict[str, list[float]]
    confidence: np.ndarray
    correct: np.ndarray
    differences: dict[str, Interval] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return all fields but those with one entry per example."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {k: v for k, v in fields.items() if k not in ("confidence", "correct")}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Predictions that are evaluated side by side with others of the same examples.

    Attributes:
      name: Name of the evaluation.
      logits: Logits `[n, num_classes]`.
      parameters: The few numbers of the calibrator.
      warnings: Reasons not to trust the calibrator.
      reason: Why `auto` chose its calibrator.
    """

    name: str
    logits: jax.Array
    parameters: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reason: str = ""


def evaluate(
    test: Predictions,
    validation: Predictions | None = None,
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int | None = None,
    progress: Callable[[str], None] | None = None,
    check: bool = True,
) -> list[Evaluation]:
    """Compute the metrics of predictions as they are, then after each calibrator.

    Calibrators are fitted on `validation`. Without it they are cross-fitted: the predictions are split
    at random into two halves, and each half is calibrated by a fit on the other, so that all examples
    are evaluated and none by a calibrator that has seen it.

    Args:
      test: Predictions to evaluate.
      validation: Predictions on other data, to fit on.
      calibrators: Names from `posthoc.CALIBRATORS`.
      seed: Seed of the halves and of the bootstrap.
      num_samples: Number of bootstrap samples; `None`: 500, and fewer above 200,000 examples.
      progress: Function that is called with what is being done.
      check: Whether probabilities in place of logits are refused.

    Returns:
      The evaluation of the uncalibrated predictions, then one per calibrator.

    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], np.float32)
    >>> predictions = Predictions(logits, np.array([0, 1, 1], np.int32))
    >>> (uncalibrated,) = evaluate(predictions, num_samples=4)
    >>> round(uncalibrated.metrics["accuracy"], 3)
    0.667
    """
    if check:
        _check_not_probs({"test": test, "validation": validation})
    candidates = calibrated_candidates(test, validation, calibrators, seed, progress)
    return measure(
        candidates,
        test.labels,
        label_probs=test.label_probs,
        seed=seed,
        num_samples=num_samples,
        progress=progress,
    )


def compare(
    predictions: Mapping[str, Predictions],
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int | None = None,
    progress: Callable[[str], None] | None = None,
    check: bool = True,
) -> list[Evaluation]:
    """Evaluate several classifiers on the same examples, side by side.

    Args:
      predictions: Predictions of each classifier by its name; all are compared with the first.
      calibrators: Names from `posthoc.CALIBRATORS`, cross-fitted for each classifier.
      seed: As in `evaluate`.
      num_samples: As in `evaluate`.
      progress: As in `evaluate`.
      check: As in `evaluate`.

    Returns:
      For each classifier its evaluation as it is, then one per calibrator. `differences` has the
      intervals of the paired differences from the first evaluation.

    >>> import numpy as np
    >>> a, b = (np.array([[x, 0.0], [0.0, x]], np.float32) for x in (1.0, 2.0))
    >>> labels = np.array([0, 1], np.int32)
    >>> both = {"a": Predictions(a, labels), "b": Predictions(b, labels)}
    >>> low, high = compare(both, num_samples=4)[1].differences["nll"]
    >>> low < 0 and high < 0
    True
    """
    if check:
        _check_not_probs(predictions)
    first, reference = next(iter(predictions.items()))
    aligned = {name: align_classes(one, reference) for name, one in predictions.items()}
    for name, one in aligned.items():
        if not np.array_equal(one.labels, reference.labels):
            raise ValueError(_label_difference(first, reference.labels, name, one.labels))

    def candidates() -> Iterator[Candidate]:
        for name, one in aligned.items():
            for candidate in calibrated_candidates(one, None, calibrators, seed, progress):
                is_plain = candidate.name == "uncalibrated"
                title = name if is_plain else f"{name} + {candidate.name}"
                yield dataclasses.replace(candidate, name=title)

    labels = reference.labels
    return measure(candidates(), labels, seed=seed, num_samples=num_samples, progress=progress)


def _check_not_probs(predictions: Mapping[str, Predictions | None]) -> None:
    for name, one in predictions.items():
        if one is not None and posthoc.looks_like_probabilities(one.logits):
            raise ValueError(
                f"{name}: all entries are in [0, 1] and all rows sum to 1, so these are probabilities; "
                "use check_predictions('probs', probs, labels) (check=False skips this check)"
            )


def _label_difference(first: str, labels: np.ndarray, name: str, others: np.ndarray) -> str:
    if len(labels) != len(others):
        what = f"{first} has {len(labels)} rows, {name} {len(others)}"
    else:
        row = int(np.argmax(labels != others))
        what = f"in row {row} the label is {labels[row]} in {first}, {others[row]} in {name}"
    return f"{what}; expected predictions on the same examples in the same order"


def align_classes(predictions: Predictions, reference: Predictions) -> Predictions:
    """Return predictions with the classes in the order of others, or raise a ValueError.

    Args:
      predictions: Predictions to reorder.
      reference: Predictions with the order to take.

    >>> import numpy as np
    >>> a = Predictions(np.array([[1.0, 2.0]]), np.array([0]), label_names=("cat", "dog"))
    >>> b = Predictions(np.array([[3.0, 4.0]]), np.array([0]), label_names=("dog", "cat"))
    >>> align_classes(b, a).logits.tolist(), align_classes(b, a).labels.tolist()
    ([[4.0, 3.0]], [1])
    """
    old, new = predictions.label_names, reference.label_names
    if predictions.num_classes != reference.num_classes:
        raise ValueError(
            f"{predictions.num_classes} classes, but {reference.num_classes} in the predictions"
        )
    if not old or not new or old == new:
        return predictions
    if set(old) != set(new):
        raise ValueError(f"class {min(set(old) - set(new))!r} is not in the other predictions")
    order = [old.index(name) for name in new]
    return dataclasses.replace(
        predictions,
        logits=predictions.logits[:, order],
        labels=np.argsort(order).astype(np.int32)[predictions.labels],
        label_names=new,
        label_probs=None if predictions.label_probs is None else predictions.label_probs[:, order],
    )


def calibrated_candidates(
    test: Predictions,
    validation: Predictions | None,
    calibrators: Sequence[str],
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Candidate]:
    """Yield predictions as they are, then calibrated by each calibrator. Arguments as in `evaluate`."""
    check_calibrators(calibrators)
    if validation is not None:
        try:
            validation = align_classes(validation, test)
        except ValueError as error:
            raise ValueError(f"validation: {error}") from None
    yield Candidate("uncalibrated", jnp.asarray(test.logits))
    num_rows = len(test.labels) // 2 if validation is None else len(validation.labels)
    for name in calibrators:
        if progress is not None:
            progress(f"fitting {name}")
        fitted, probs = _calibrate(name, test, validation, seed)
        warnings = size_warning(name, fitted[0], num_rows, test.num_classes)
        for calibrator in fitted:
            warnings += temperature_warning(name, calibrator)
        reasons = [c.reason for c in fitted if isinstance(c, posthoc.Auto)]
        yield Candidate(
            name,
            posthoc.logits_from_probs(probs),
            _parameters(fitted),
            tuple(dict.fromkeys(warnings)),  # those of both halves once
            "; ".join(reasons),
        )


def check_calibrators(names: Sequence[str]) -> None:
    """Raise a ValueError for a name that is not in `posthoc.CALIBRATORS`.

    >>> check_calibrators(["temperature", "spline"])
    """
    for name in names:
        if name not in posthoc.CALIBRATORS:
            known = ", ".join(posthoc.CALIBRATORS)
            raise ValueError(f"calibrate={name!r}: expected some of {known}")


def measure(
    candidates: Iterable[Candidate],
    labels: ArrayLike,
    *,
    label_probs: ArrayLike | None = None,
    seed: int = 0,
    num_samples: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Evaluation]:
    """Compute the metrics of several predictions of the same examples, with shared resamples.

    Args:
      candidates: Predictions; all others are compared with the first. None is kept in memory after
        its metrics are computed.
      labels: Classes `[n]`.
      label_probs: True distribution p(y|x) of each label `[n, num_classes]`, if it is known: metrics
        against it are added.
      seed: Seed of the bootstrap.
      num_samples: As in `evaluate`.
      progress: As in `evaluate`.

    Returns:
      One evaluation per candidate.
    """
    note = progress or (lambda text: None)
    labels = jnp.asarray(labels)
    evaluations, rows = [], []
    for candidate in _ahead(candidates):
        note(f"metrics of {candidate.name}")
        summary = metrics.summary(candidate.logits, labels, check=False)
        if label_probs is not None:
            summary |= metrics.truth_summary(candidate.logits, label_probs, check=False)
        rows.append(Rows(*(np.asarray(x) for x in _row_statistics(candidate.logits, labels))))
        evaluations.append(
            Evaluation(
                name=candidate.name,
                metrics={key: float(value) for key, value in summary.items()},
                intervals={},
                parameters=candidate.parameters,
                confidence=rows[-1].confidence,
                correct=rows[-1].correct,
                warnings=candidate.warnings,
                reason=candidate.reason,
            )
        )
    num_samples = num_samples or default_num_samples(len(labels))
    samples = resample(
        rows,
        seed=seed,
        num_samples=num_samples,
        progress=lambda done: note(f"bootstrap: {done} of {num_samples} resamples"),
    )
    first, *others = samples
    differences = [{}, *({key: x[key] - first[key] for key in x} for x in others)]
    return [
        dataclasses.replace(e, intervals=percentiles(sample), differences=percentiles(difference))
        for e, sample, difference in zip(evaluations, samples, differences, strict=True)
    ]


def _ahead(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield candidates; while the caller works on a large one, the next is computed in a thread.

    Sorting, and much else, takes one core: a million rows with three calibrators gain a quarter.
    """
    iterator = iter(candidates)
    candidate = next(iterator, None)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        while candidate is not None:
            is_large = candidate.logits.size >= _LARGE
            following = executor.submit(next, iterator, None) if is_large else None
            yield candidate
            candidate = following.result() if following else next(iterator, None)


@jax.jit
def _row_statistics(
    logits: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    confidence, correct = metrics.top_label(logits, labels)
    nll, brier = losses.cross_entropy(logits, labels), losses.brier(logits, labels)
    return confidence, correct, nll, brier


def _as_jax(predictions: Predictions) -> tuple[jax.Array, jax.Array]:
    return jnp.asarray(predictions.logits), jnp.asarray(predictions.labels)


def _calibrate(
    name: str, test: Predictions, validation: Predictions | None, seed: int
) -> tuple[list[posthoc.Calibrator], jax.Array]:
    """Return the fitted calibrators, one or that of each half, and probabilities `[n, num_classes]`."""
    fit = posthoc.CALIBRATORS[name]
    logits, labels = _as_jax(test)
    if validation is not None:
        fitted = fit(*_as_jax(validation), check=False)
        return [fitted], fitted(logits, check=False)
    n = labels.shape[0]
    if n < 2:
        raise ValueError("one prediction cannot be cut in two halves: give --validation")
    halves = np.array_split(np.random.default_rng(seed).permutation(n), 2)
    probs = np.zeros(logits.shape, np.float32)
    calibrators = []
    for fit_on, use_on in (halves, halves[::-1]):
        calibrator = fit(logits[fit_on], labels[fit_on], check=False)
        probs[use_on] = calibrator(logits[use_on], check=False)
        calibrators.append(calibrator)
    return calibrators, jnp.asarray(probs)


def _parameters(fitted: Sequence[posthoc.Calibrator]) -> dict[str, list[float]]:
    """Return the scalars and triples of the fitted calibrators, those of one after the other."""
    fields = {f.name: getattr(fitted[0], f.name) for f in dataclasses.fields(fitted[0])}
    # The `nll` of `auto` is one per candidate: part of its reason.
    names = [name for name, x in fields.items() if isinstance(x, jax.Array) and name != "nll"]
    values = {n: [np.asarray(getattr(c, n)).ravel() for c in fitted] for n in names}
    return {n: [float(x) for x in np.concatenate(v)] for n, v in values.items() if v[0].size <= 3}
