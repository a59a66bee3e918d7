"""RandAug and AugMix on the device."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from calib_jax._arrays import float_dtype
from calib_jax._hints import check_choice
from calib_jax.augment._images import as_bytes, like
from calib_jax.augment._ops import IDENTITY, OPS, transform

MAX_DEPTH = 3  # operations of an AugMix chain
_CHAIN_LEAST = 0.1  # smallest magnitude in the original AugMix


def randaug(
    key: jax.Array, images: ArrayLike, magnitude: ArrayLike, op: ArrayLike | str, *, fill: int = 128
) -> jax.Array:
    """Apply one operation to each image, equal to Pillow's with nearest neighbors.

    The distortion grows with the magnitude m: rotate by 3 m degrees, shear by 0.03 m, translate by m / 30
    of the image in whole pixels, posterize to 4 - ⌊0.4 m⌋ bits (at least 1), solarize from level
    256 - ⌊25.6 m⌋ on, color by a factor of 1 ± 0.09 m. Half of the warps go the other way. Autocontrast
    and equalize have no magnitude, and images of other than three channels no color.

    AutoLabel paper: some of its operations get weaker as m grows; here all get stronger, as its figure 2
    needs it. The color factor is 1 at m = 0 and not at m = 5, for the same reason.

    Args:
      key: Random key, for the directions.
      images: Images `[batch, h, w, c]`, uint8 or floats in [0, 1]; the latter are rounded to 8 bits.
      magnitude: Magnitude, 0 to 10, scalar or `[batch]`.
      op: Name in `OPS`, or indices into it, scalar or `[batch]`; `len(OPS)` is none.
      fill: Gray level of pixels from outside the image.

    Returns:
      Images of the same shape and type.

    References:
      Cubuk, Zoph, Shlens and Le (2020), arXiv:1909.13719.

    >>> images = np.full((1, 8, 8, 3), 200, np.uint8)
    >>> int(augment.randaug(jax.random.key(0), images, 10.0, "solarize")[0, 0, 0, 0])
    55
    """
    if isinstance(op, str):
        op = op_number(op)
    images = jnp.asarray(images)
    levels = as_bytes(images)
    batch = images.shape[:1]
    sign = jnp.where(jax.random.bernoulli(key, shape=batch), 1.0, -1.0).astype(jnp.float32)
    ops = _per_image("op", op, batch, jnp.int32)
    magnitudes = _per_image("magnitude", magnitude, batch, jnp.float32)
    return like(transform(levels, ops, magnitudes, sign, fill), images)


def augmix(
    key: jax.Array,
    images: ArrayLike,
    *,
    magnitude: float = 3.0,
    depth: ArrayLike | None = None,
    lam: ArrayLike | None = None,
    chains: int = 1,
    fill: int = 128,
) -> jax.Array:
    """Return `lam x + (1 - lam) x'` with `x'` the image after a chain of random operations.

    With several chains, as in the original AugMix, `x'` is their mean with Dirichlet(1) weights, each
    chain has a random depth and each operation a magnitude from U(0.1, magnitude).

    Args:
      key: Random key.
      images: Images `[batch, h, w, c]`, uint8 or floats in [0, 1].
      magnitude: Magnitude of every operation; see `randaug`.
      depth: Number of operations of the only chain, 1 to 3, scalar or `[batch]`; by default random.
      lam: Weight of the original image, scalar or `[batch]`; by default from U(0, 1).
      chains: Number of chains, 1, or 3 as in the original.
      fill: Gray level of pixels from outside the image.

    Returns:
      Images of the same shape and type.

    References:
      Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan (2020), arXiv:1912.02781.

    >>> images = np.full((1, 8, 8, 3), 200, np.uint8)
    >>> int(augment.augmix(jax.random.key(0), images, lam=1.0)[0, 0, 0, 0])
    200
    """
    if chains < 1 or (chains > 1 and depth is not None):
        raise ValueError(f"chains={chains}: expected 1, or more than 1 without a depth")
    images = jnp.asarray(images)
    levels = as_bytes(images)
    batch = images.shape[:1]
    depth_key, lam_key, weight_key, chain_key = jax.random.split(key, 4)
    if depth is None:
        depth = jax.random.randint(depth_key, (chains, *batch), 1, MAX_DEPTH + 1, jnp.int32)
    else:
        depth = _per_image("depth", depth, batch, jnp.int32)[None]
    if lam is None:
        lam = jax.random.uniform(lam_key, batch, jnp.float32)
    dtype = float_dtype(images)  # of the mixture
    least = magnitude if chains == 1 else _CHAIN_LEAST

    def one_chain(number: int) -> jax.Array:
        def step(i: jax.Array, chain: jax.Array) -> jax.Array:
            step_key = jax.random.fold_in(jax.random.fold_in(chain_key, number), i)
            op_key, m_key, sign_key = jax.random.split(step_key, 3)
            op = jax.random.randint(op_key, batch, 0, len(OPS), jnp.int32)
            op = jnp.where(i < depth[number], op, IDENTITY)
            m = jax.random.uniform(m_key, batch, jnp.float32, minval=least, maxval=magnitude)
            return randaug(sign_key, chain, m, op, fill=fill)

        # A loop of XLA: as long as the longest chain, and the result of a step is computed once, not
        # again for every pixel that the next step reads.
        return jax.lax.fori_loop(0, jnp.max(depth[number]), step, levels)

    def spread(x: jax.Array) -> jax.Array:
        return x[:, None, None, None]

    mixed = one_chain(0).astype(dtype)
    if chains > 1:
        equal = jnp.ones(chains, jnp.float32)
        weights = jax.random.dirichlet(weight_key, equal, batch, jnp.float32).astype(dtype)
        mixed = spread(weights[:, 0]) * mixed
        for i in range(1, chains):
            mixed += spread(weights[:, i]) * one_chain(i).astype(dtype)
    lam = spread(_per_image("lam", lam, batch, dtype))
    result = lam * levels.astype(dtype) + (1 - lam) * mixed
    return like(result, images)


def op_number(name: str) -> int:
    """Return the index of an operation in `OPS`.

    Args:
      name: Name of the operation.

    >>> augment.op_number("shear_x")
    1
    """
    check_choice("op", name, OPS)
    return OPS.index(name)


def _per_image(name: str, x: ArrayLike, batch: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Return a scalar or `[batch]`, the argument called `name`, as `[batch]`."""
    x = jnp.asarray(x, dtype)
    if x.shape not in ((), batch):
        raise ValueError(f"{name}: expected a scalar or shape {batch}, got {x.shape}")
    return jnp.broadcast_to(x, batch)
