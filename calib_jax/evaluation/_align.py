"""Predictions in several files: the same examples, the same classes in the same order."""

import dataclasses

import numpy as np

from calib_jax.evaluation._predictions import Predictions


def label_difference(first: str, labels: np.ndarray, name: str, others: np.ndarray) -> str:
    """Return the message for two files whose labels differ.

    Args:
      first: Name of a file.
      labels: Its labels.
      name: Name of the other file.
      others: Its labels.
    """
    if len(labels) != len(others):
        what = f"{first} has {len(labels)} rows, {name} {len(others)}"
    else:
        row = int(np.argmax((labels != others).reshape(len(labels), -1).any(axis=1)))
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
    if predictions.is_independent != reference.is_independent:
        raise ValueError("independent labels in one file and classes in the other")
    if predictions.num_classes != reference.num_classes:
        raise ValueError(
            f"{predictions.num_classes} classes, but {reference.num_classes} in the predictions"
        )
    if not old or not new or old == new:
        return predictions
    if set(old) != set(new):
        raise ValueError(f"class {min(set(old) - set(new))!r} is not in the other predictions")
    order = [old.index(name) for name in new]
    if predictions.is_independent:
        labels = predictions.labels[:, order]
    else:
        labels = np.argsort(order).astype(np.int32)[predictions.labels]
    logits = predictions.logits[:, order]
    truth = predictions.label_probs
    return dataclasses.replace(
        predictions,
        logits=logits,
        labels=labels,
        label_names=new,
        label_probs=None if truth is None else truth[:, order],
    )
