"""Shifted images: a test set corrupted, or under an operation of RandAug."""

import functools
from collections.abc import Callable

import jax
import numpy as np

from calib_jax import augment

_BATCH = 256  # images changed together: one shape, one program


def corrupted_images(
    images: np.ndarray, ids: np.ndarray, corruption: str, severity: int
) -> np.ndarray:
    """Return corrupted images; the noise of each depends on its id only, not on the others.

    Args:
      images: Images, uint8 `[n, h, w, c]`.
      ids: Ids of the images `[n]`.
      corruption: One of `augment.CORRUPTIONS`.
      severity: Severity, 1 to 5.

    >>> import numpy as np
    >>> images = np.full((2, 32, 32, 3), 100, np.uint8)
    >>> bool(corrupted_images(images, np.arange(2), "brightness", 3).mean() > 100)
    True
    """
    return _in_batches(
        lambda rows: _corrupt(ids[rows], images[rows], corruption, severity), len(images)
    )


def operated_images(
    images: np.ndarray, ids: np.ndarray, operation: str, magnitude: int
) -> np.ndarray:
    """Return images under an operation of RandAug; the direction of a warp depends on the id.

    Args:
      images: Images, uint8 `[n, h, w, c]`.
      ids: Ids of the images `[n]`.
      operation: One of `augment.OPS`.
      magnitude: Magnitude, 1 to 10.

    >>> import numpy as np
    >>> images = np.full((2, 8, 8, 3), 200, np.uint8)
    >>> operated_images(images, np.arange(2), "solarize", 10).shape
    (2, 8, 8, 3)
    """
    number = augment.op_number(operation)
    return _in_batches(
        lambda rows: _operate(ids[rows], images[rows], number, magnitude), len(images)
    )


def _in_batches(change: Callable[[np.ndarray], jax.Array], number: int) -> np.ndarray:
    batches = [
        np.asarray(change(np.arange(first, first + _BATCH) % number))
        for first in range(0, number, _BATCH)
    ]
    return np.concatenate(batches)[:number]


@jax.jit
def _operate(ids: jax.Array, images: jax.Array, op: int, magnitude: int) -> jax.Array:
    def one(number: jax.Array, image: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(0), number)
        return augment.randaug(key, image[None], magnitude, op)[0]

    return jax.vmap(one)(ids, images)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _corrupt(ids: jax.Array, images: jax.Array, corruption: str, severity: int) -> jax.Array:
    def one(number: jax.Array, image: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(0), number)
        return augment.corrupt(key, image[None], corruption, severity)[0]

    return jax.vmap(one)(ids, images)
