"""Adversarial examples by projected gradient ascent."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_per_example
from calib_jax.augment._images import as_unit

Loss = Callable[[jax.Array, jax.Array], jax.Array]


def pgd(
    key: jax.Array,
    loss: Loss,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    eps: ArrayLike,
    steps: int = 10,
    step_size: ArrayLike | None = None,
    restarts: int = 1,
    unroll: bool | None = None,
) -> jax.Array:
    """Images within `eps` of the given ones, value by value, on which the loss is large.

    Begins at a random place of that box and takes steps along the sign of the gradient, never leaving
    the box or [0, 1]. No gradient flows back through the attack.

    Args:
      key: random key.
      loss: `(images, labels) -> [batch]`; each example's depends on its own image only.
      images: `[batch, h, w, c]`, floats in [0, 1]; uint8 is divided by 255.
      labels: `[batch]`, or whatever `loss` takes.
      eps: radius in the L∞ norm, scalar or `[batch]`.
      steps: of each attack.
      step_size: scalar or `[batch]`; by default `eps / 4`.
      restarts: attacks from different places; each example keeps the one that ended with the most loss.
      unroll: write the steps one after the other instead of as a loop. By default on the CPU, where XLA
        runs a convolution in a loop some nine times slower; compiling takes longer by the steps.

    Returns:
      Images in [0, 1], float32 or float64 if the given ones are.

    >>> images, loss = jnp.full((1, 1, 1, 1), 0.5), lambda x, _: jnp.sum(x, (1, 2, 3))
    >>> round(float(augment.pgd(jax.random.key(0), loss, images, [0], eps=0.1)[0, 0, 0, 0]), 3)
    0.6
    """
    if restarts < 1 or steps < 0:
        raise ValueError(f"restarts={restarts}, steps={steps}: expected at least 1 and 0")
    images = as_unit(jnp.asarray(images))
    unroll = jax.default_backend() == "cpu" if unroll is None else unroll

    def attack(key: jax.Array) -> jax.Array:
        def step(_: jax.Array | int, x: jax.Array) -> jax.Array:
            return pgd_step(loss, x, images, labels, eps=eps, step_size=step_size)

        start = pgd_start(key, images, eps=eps)
        return jax.lax.fori_loop(0, steps, step, start, unroll=unroll if steps else None)

    if restarts == 1:
        return jax.lax.stop_gradient(attack(key))

    def again(number: jax.Array | int, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        found = attack(jax.random.fold_in(key, number))
        value = loss(found, jnp.asarray(labels)).astype(images.dtype)
        better = value > best[1]
        return jnp.where(better[:, None, None, None], found, best[0]), jnp.maximum(value, best[1])

    nothing = images, jnp.full(images.shape[0], -jnp.inf, images.dtype)
    worst = jax.lax.fori_loop(0, restarts, again, nothing, unroll=unroll)[0]
    return jax.lax.stop_gradient(worst)


def pgd_start(key: jax.Array, images: jax.Array, *, eps: ArrayLike) -> jax.Array:
    """Return a random place within `eps` of images in [0, 1].

    >>> images = jnp.full((1, 1, 1, 1), 0.5)
    >>> bool(abs(augment.pgd_start(jax.random.key(0), images, eps=0.1)[0, 0, 0, 0] - 0.5) <= 0.1)
    True
    """
    images = as_unit(jnp.asarray(images))
    noise = jax.random.uniform(key, images.shape, images.dtype, minval=-1.0, maxval=1.0)
    return jnp.clip(images + _spread("eps", eps, images) * noise, 0.0, 1.0)


def pgd_step(
    loss: Loss,
    x: jax.Array,
    images: jax.Array,
    labels: ArrayLike,
    *,
    eps: ArrayLike,
    step_size: ArrayLike | None = None,
) -> jax.Array:
    """Take one step of the attack from `x`: see `pgd`.

    >>> images, loss = jnp.full((1, 1, 1, 1), 0.5), lambda x, _: jnp.sum(x, (1, 2, 3))
    >>> round(float(augment.pgd_step(loss, images, images, [0], eps=0.2)[0, 0, 0, 0]), 3)
    0.55
    """
    images = as_unit(jnp.asarray(images))
    x = jnp.asarray(x, images.dtype)
    radius = _spread("eps", eps, images)
    size = radius / 4 if step_size is None else _spread("step_size", step_size, images)
    slope = jax.grad(lambda x: jnp.sum(loss(x, jnp.asarray(labels))))(x)
    x = jnp.clip(x + size * jnp.sign(slope), images - radius, images + radius)
    return jnp.clip(x, 0.0, 1.0)


def _spread(name: str, value: ArrayLike, images: jax.Array) -> jax.Array:
    """A scalar or `[batch]` as something that broadcasts against the images."""
    value = as_per_example(name, value, images.shape[:1], images.dtype)
    return value[:, None, None, None] if value.ndim else value
