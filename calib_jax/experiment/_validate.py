"""Checks of data and network before anything is trained: one clear line for each mistake."""

import inspect
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import models, train
from calib_jax.data import Dataset
from calib_jax.methods import Params, PyTree

_SHOWN = 5  # names in a message


def check_dataset(dataset: Dataset) -> None:
    """Raise a ValueError if a set is empty or has labels or inputs that no network can learn from.

    Args:
      dataset: Data set.
    """
    title, labels = f"{dataset.name} {dataset.split}", np.asarray(dataset.labels)
    if not len(dataset):
        raise ValueError(f"{title}: expected at least one example, got none")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{title}: labels are {labels.dtype} {list(labels.shape)}: expected integers [n]"
        )
    if labels.min() < 0 or labels.max() >= dataset.num_classes:
        raise ValueError(
            f"{title}: labels are {labels.min()} to {labels.max()}: expected 0 to "
            f"{dataset.num_classes - 1}, the positions of {_names(dataset.label_names)}"
        )
    for name, rows in dataset.inputs.items():
        if np.issubdtype(rows.dtype, np.floating):
            _check_numbers(title, name, rows)


def _check_numbers(title: str, name: str, rows: np.ndarray) -> None:
    finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{title}: {name} is not finite in {np.sum(~finite)} of {len(rows)} examples, the first "
            f"at position {np.argmin(finite)}"
        )
    if name == "image" and (rows.min() < 0 or rows.max() > 1):
        raise ValueError(
            f"{title}: image has values {rows.min():g} to {rows.max():g}: expected floats in [0, 1], "
            "or uint8 from 0 to 255"
        )


def check_classes(training: Dataset, others: Iterable[Dataset]) -> None:
    """Raise a ValueError if other splits have other classes than the training set.

    Args:
      training: Training set.
      others: Validation and test set.
    """
    for dataset in others:
        if dataset.label_names != training.label_names:
            raise ValueError(
                f"{dataset.name} {dataset.split}: label_names are {_names(dataset.label_names)}: "
                f"expected those of the training set, {_names(training.label_names)}"
            )


def missing_classes(dataset: Dataset) -> str:
    """Return a line on the classes that a set has no example of; '' if there are none.

    Args:
      dataset: Data set.
    """
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    missing = [name for name, count in zip(dataset.label_names, counts, strict=True) if not count]
    if not missing:
        return ""
    warning = f"warning: no example of {_names(missing)}"
    if dataset.split == "test":
        return warning
    classes = "this class" if len(missing) == 1 else "these classes"
    return f"{warning}; what is fitted on it knows nothing of {classes}"


def takes_text(module: object) -> bool:
    """Return whether a Flax module takes tokens: whether its call has an argument `input_ids`."""
    return "input_ids" in inspect.signature(type(module).__call__).parameters


def check_kind(key: str, module: object, dataset: Dataset) -> None:
    """Raise a ValueError if a network for texts is given images, or vice versa.

    Args:
      key: Key and value of the config that name the network.
      module: Flax module of the network.
      dataset: Training set.
    """
    has_text = any(name in dataset.inputs for name in ("text", "choices", "input_ids"))
    if has_text == takes_text(module):
        return
    kinds = {True: "texts", False: "images or features"}
    names = [name for name in models.NAMES if takes_text(models.create(name, 2)) == has_text]
    raise ValueError(
        f"{key} takes {kinds[not has_text]}, but {dataset.name} has {kinds[has_text]}; expected one of "
        f"{', '.join(names)}"
    )


def check_network(network: train.Network, sets: Iterable[Dataset]) -> Params:
    """Return the shapes of a network's parameters after a call that computes nothing.

    Args:
      network: Network.
      sets: Data sets, the training set first.

    Raises:
      ValueError: If the network cannot take the inputs, has another number of classes, or has fewer
        embeddings than there are tokens.
    """
    training, *_ = sets = list(sets)
    example = {name: jnp.asarray(x) for name, x in train.zero_example(training).items()}
    title = f"network {network.module_type.__name__}"
    try:
        params, model_state = jax.eval_shape(network.init, jax.random.key(0), example)
        state = {**model_state, **network.model_state}
        logits = jax.eval_shape(lambda p, s: network.bind(s)(p, example)[0], params, state)
    except Exception as error:  # whatever a module raises for inputs that it cannot take
        shapes = ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in example.items())
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{title} cannot take {shapes}: {reason}") from error
    if logits.shape != (1, training.num_classes):
        raise ValueError(
            f"{title} returns {list(logits.shape)} for one example: expected "
            f"[1, {training.num_classes}], a logit for each class of {training.name}"
        )
    _check_tokens(params, sets)
    return params


def _check_tokens(params: PyTree, sets: Iterable[Dataset]) -> None:
    """Raise if a token has no row in the largest embedding: its lookup would give NaN."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    rows = [
        leaf.shape[0] for path, leaf in leaves if "embedding" in jax.tree_util.keystr(path[-1:])
    ]
    for dataset in sets:
        ids = dataset.inputs.get("input_ids")
        if ids is not None and rows and ids.max() >= max(rows):
            raise ValueError(
                f"{dataset.name} {dataset.split}: token {ids.max()}: expected less than {max(rows)}, the "
                "rows of the network's embedding; is config.data.tokenizer that of this network?"
            )


def _names(names: Iterable[str]) -> str:
    first, number = list(names)[:_SHOWN], len(list(names))
    return ", ".join(map(repr, first)) + (f", … ({number})" if number > _SHOWN else "")
