"""Adversarial examples by projected gradient ascent."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import _cpu
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
    """Return images within `eps` of the given ones, value by value, on which the loss is large.

    Starts at a random point of that box and takes steps along the sign of the gradient, never leaving
    the box or [0, 1]. No gradient flows back through the attack.

    Args:
      key: Random key.
      loss: Function `(images, labels) -> [batch]`; an example's loss depends on its image only.
      images: Images `[batch, h, w, c]`, floats in [0, 1]; uint8 is divided by 255.
      labels: Labels `[batch]`, or whatever `loss` takes.
      eps: Radius in the L∞ norm, scalar or `[batch]`.
      steps: Number of steps of each attack.
      step_size: Size of a step, scalar or `[batch]`; by default `eps / 4`.
      restarts: Number of attacks from different points; each example keeps the one with the largest loss.
      unroll: Whether to unroll the loop over steps; by default on the CPU, where XLA runs a convolution
        in a loop some nine times slower. Compiling then takes longer.

    Returns:
      Images in [0, 1], float32 or float64 if the given ones are.

    References:
      Madry, Makelov, Schmidt, Tsipras and Vladu (2018), arXiv:1706.06083.

    >>> images, loss = jnp.full((1, 1, 1, 1), 0.5), lambda x, _: jnp.sum(x, (1, 2, 3))
    >>> round(float(augment.pgd(jax.random.key(0), loss, images, [0], eps=0.1)[0, 0, 0, 0]), 3)
    0.6
    """
    if restarts < 1 or steps < 0:
        raise ValueError(f"restarts={restarts}, steps={steps}: expected at least 1 and 0")
    images = as_unit(jnp.asarray(images))
    unroll = _cpu.is_cpu() if unroll is None else unroll

    def attack(key: jax.Array) -> jax.Array:
        def step(_: jax.Array | int, x: jax.Array) -> jax.Array:
            return pgd_step(loss, x, images, labels, eps=eps, step_size=step_size)

        start = pgd_start(key, images, eps=eps)
        return jax.lax.fori_loop(0, steps, step, start, unroll=unroll if steps else None)

    if restarts == 1:
        return jax.lax.stop_gradient(attack(key))

    def again(number: jax.Array | int, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        best_images, best_loss = best
        attacked = attack(jax.random.fold_in(key, number))
        value = loss(attacked, jnp.asarray(labels)).astype(images.dtype)
        is_better = (value > best_loss)[:, None, None, None]
        return jnp.where(is_better, attacked, best_images), jnp.maximum(value, best_loss)

    start = images, jnp.full(images.shape[0], -jnp.inf, images.dtype)
    attacked, _ = jax.lax.fori_loop(0, restarts, again, start, unroll=unroll)
    return jax.lax.stop_gradient(attacked)


def pgd_start(key: jax.Array, images: jax.Array, *, eps: ArrayLike) -> jax.Array:
    """Return a random point within `eps` of images in [0, 1].

    Args:
      key: Random key.
      images: Images `[batch, h, w, c]`, floats in [0, 1]; uint8 is divided by 255.
      eps: Radius in the L∞ norm, scalar or `[batch]`.

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
    """Take one step of the attack of `pgd`.

    Args:
      loss: Function `(images, labels) -> [batch]`.
      x: Present images of the attack, like `images`.
      images: Images `[batch, h, w, c]`, floats in [0, 1]; uint8 is divided by 255.
      labels: Labels `[batch]`, or whatever `loss` takes.
      eps: Radius in the L∞ norm, scalar or `[batch]`.
      step_size: Size of the step, scalar or `[batch]`; by default `eps / 4`.

    References:
      Madry, Makelov, Schmidt, Tsipras and Vladu (2018), arXiv:1706.06083.

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
    """Return a scalar or `[batch]` so that it broadcasts against the images."""
    value = as_per_example(name, value, images.shape[:1], images.dtype)
    return value[:, None, None, None] if value.ndim else value
