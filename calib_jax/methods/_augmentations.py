"""Image augmentations with a distance from the original image, in buckets.

Training and validation agree on the buckets: of distances in (0, 1] bucket n of N holds those in
((n - 1) / N, n / N], counted from 1 as in the AutoLabel paper and from 0 in arrays; distance 0 joins
the first. Paper: validation draws from U(n / N, (n + 1) / N), the bucket after the one of training.

References:
  Qin, Wang, Lakshminarayanan, Chi and Beutel (2023), arXiv:2302.11188.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import augment, losses, targets
from calib_jax.methods._base import Apply, Batch, ModelState, Params, PyTree

_NO_MAGNITUDE = ("autocontrast", "equalize")  # operations that are the same at every magnitude

Drawn = PyTree  # random numbers of each example, arrays `[batch]`


def _autolabel_target(
    labels: jax.Array, _: Drawn, confidence: jax.Array, num_classes: int
) -> jax.Array:
    return targets.autolabel(labels, confidence, num_classes)


class Augmentation(NamedTuple):
    """A random change of images.

    Attributes:
      shape: Shape of the table of buckets; their number is its product.
      draw: `(key, batch_size) -> drawn`, for training.
      draw_in: `(key, batch_size, bucket) -> drawn`, all in one bucket, which may be traced.
      bucket: `(drawn) -> [batch]`, counted from 0.
      change: `(apply, params, batch, drawn, key) -> images`
      target: `(labels, drawn, confidence, num_classes) -> [batch, num_classes]`, given the label
        confidence of each example's bucket.
      same_as: For each bucket the first that changes images in the same way `[buckets]`, which is
        evaluated for all of them; empty if no two do.
      names: Names of the rows of the table of buckets; empty if it has one row.
      meaning: Sentence for readers of a report about what a row and a bucket are.
    """

    shape: tuple[int, ...]
    draw: Callable[[jax.Array, int], Drawn]
    draw_in: Callable[[jax.Array, int, jax.Array], Drawn]
    bucket: Callable[[Drawn], jax.Array]
    change: Callable[[Apply, Params, Batch, Drawn, jax.Array], jax.Array]
    target: Callable[[jax.Array, Drawn, jax.Array, int], jax.Array] = _autolabel_target
    same_as: Sequence[int] = ()
    names: Sequence[str] = ()
    meaning: str = "A later bucket is farther from the original image."


def forward(
    augmentation: Augmentation, apply: Apply, params: Params, batch: Batch, key: jax.Array
) -> tuple[jax.Array, ModelState, Drawn]:
    """Return logits of augmented images, the model state, and the augmentation's random numbers."""
    draw_key, change_key, network_key = jax.random.split(key, 3)
    drawn = augmentation.draw(draw_key, batch.labels.shape[0])
    images = augmentation.change(apply, params, batch, drawn, change_key)
    logits, model_state = apply(params, {**batch.inputs, "image": images}, network_key)
    return logits, model_state, drawn


def bucket_of(distance: jax.Array, number: int) -> jax.Array:
    """Return the bucket, from 0, of a distance in [0, 1]: `⌈distance number⌉ - 1`, and 0 for 0."""
    return jnp.clip(jnp.ceil(distance * number).astype(jnp.int32), 1, number) - 1


def distance_in(key: jax.Array, batch_size: int, bucket: jax.Array, number: int) -> jax.Array:
    """Draw distances `[batch]` uniformly from a bucket."""
    # Not from 0 on: what rounding takes to the lower edge would belong to the bucket before.
    within = jax.random.uniform(key, (batch_size,), minval=2.0**-12, maxval=1.0)
    return (bucket + within) / number


def images_of(batch: Batch) -> jax.Array:
    """Return the images of a batch, or raise a ValueError if it has none."""
    if "image" not in batch.inputs:
        raise ValueError(f"inputs {', '.join(batch.inputs)}: expected images to augment")
    return batch.inputs["image"]


def randaug(max_magnitude: int = 10, ops: str = "all") -> Augmentation:
    """Return RandAug: one random operation; a bucket is an operation and a magnitude.

    Args:
      max_magnitude: Largest magnitude, 1 to 10.
      ops: Names of `augment.OPS`, separated by commas, or `'all'`.

    References:
      Cubuk, Zoph, Shlens and Le (2020), arXiv:1909.13719.
    """
    names = augment.OPS if ops == "all" else tuple(name.strip() for name in ops.split(","))
    numbers = [augment.op_number(name) for name in names]
    if not 1 <= max_magnitude <= 10:
        raise ValueError(f"max_magnitude={max_magnitude}: expected 1 to 10")
    shape = len(numbers), max_magnitude

    def draw(key: jax.Array, n: int) -> Drawn:
        return jax.random.randint(key, (n,), 0, shape[0] * shape[1])

    def draw_in(_: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        return jnp.full((n,), bucket)

    def change(_: Apply, __: Params, batch: Batch, bucket: Drawn, key: jax.Array) -> jax.Array:
        op, magnitude = jnp.divmod(bucket, max_magnitude)
        op = jnp.asarray(numbers)[op]
        return augment.randaug(key, images_of(batch), magnitude + 1, op)

    same_as = [
        max_magnitude * i + (0 if name in _NO_MAGNITUDE else magnitude)
        for i, name in enumerate(names)
        for magnitude in range(max_magnitude)
    ]
    return Augmentation(
        shape,
        draw,
        draw_in,
        bucket=lambda drawn: drawn,
        change=change,
        same_as=same_as,
        names=names,
        meaning="A panel is an operation, a bucket a magnitude.",
    )


def augmix(magnitude: float = 3.0, num_buckets: int = 5) -> Augmentation:
    """Return AugMix with one chain; a bucket is a depth and a range of the original's weight.

    Args:
      magnitude: Magnitude of every operation of the chain.
      num_buckets: Number of ranges of weights.

    References:
      Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan (2020), arXiv:1912.02781.
    """

    def draw(key: jax.Array, n: int) -> Drawn:
        depth_key, lam_key = jax.random.split(key)
        depth = jax.random.randint(depth_key, (n,), 1, augment.MAX_DEPTH + 1)
        return depth, jax.random.uniform(lam_key, (n,))

    def draw_in(key: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        depth, weight_range = jnp.divmod(bucket, num_buckets)
        return jnp.full((n,), depth + 1), distance_in(key, n, weight_range, num_buckets)

    def bucket(drawn: Drawn) -> jax.Array:
        depth, lam = drawn
        return (depth - 1) * num_buckets + bucket_of(lam, num_buckets)

    def change(_: Apply, __: Params, batch: Batch, drawn: Drawn, key: jax.Array) -> jax.Array:
        depth, lam = drawn
        return augment.augmix(key, images_of(batch), magnitude=magnitude, depth=depth, lam=lam)

    return Augmentation(
        (augment.MAX_DEPTH, num_buckets),
        draw,
        draw_in,
        bucket,
        change,
        names=[f"depth {depth}" for depth in range(1, augment.MAX_DEPTH + 1)],
        meaning="A panel is a depth of the chain; the more, the heavier the original image.",
    )


def adversarial(
    eps: float = 0.01, steps: int = 10, num_buckets: int = 10, *, multiple: bool = True
) -> Augmentation:
    """Return PGD against the network in evaluation mode; a bucket is a range of radii up to `eps`.

    Args:
      eps: Largest radius in the L∞ norm, for pixels in [0, 1].
      steps: Number of steps, each a quarter of the example's radius.
      num_buckets: Number of ranges of radii.
      multiple: Whether training draws radii from U(0, eps) instead of using `eps` for all.

    References:
      Madry, Makelov, Schmidt, Tsipras and Vladu (2018), arXiv:1706.06083.
    """

    def draw(key: jax.Array, n: int) -> Drawn:
        if not multiple:
            return jnp.full((n,), eps)
        return eps * (1 - jax.random.uniform(key, (n,)))

    def draw_in(key: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        return eps * distance_in(key, n, bucket, num_buckets)

    def bucket(radius: Drawn) -> jax.Array:
        return bucket_of(radius / eps, num_buckets)

    def change(
        apply: Apply, params: Params, batch: Batch, radius: Drawn, key: jax.Array
    ) -> jax.Array:
        return attack(apply, params, batch, radius, key, steps)

    return Augmentation((num_buckets,), draw, draw_in, bucket, change)


def attack(
    apply: Apply, params: Params, batch: Batch, eps: jax.Array, key: jax.Array, steps: int
) -> jax.Array:
    """Return images within `eps` `[batch]` that raise the cross entropy of the true labels."""
    frozen = jax.lax.stop_gradient(params)

    def loss(images: jax.Array, labels: jax.Array) -> jax.Array:
        return losses.cross_entropy(apply(frozen, {**batch.inputs, "image": images})[0], labels)

    return augment.pgd(key, loss, images_of(batch), batch.labels, eps=eps, steps=steps)


def mixup(beta: float = 1.0, num_buckets: int = 5) -> Augmentation:
    """Return mixup with a lighter share of another image; a bucket is a range of shares up to 1/2.

    Paper: one share per step. Here: one per example, so that every step trains all buckets.

    Args:
      beta: Parameter of the Beta distribution of the shares.
      num_buckets: Number of ranges of shares.

    References:
      Zhang, Cisse, Dauphin and Lopez-Paz (2018), arXiv:1710.09412.
    """

    def draw(key: jax.Array, n: int) -> Drawn:
        lam_key, partner_key = jax.random.split(key)
        lam = jax.random.beta(lam_key, beta, beta, (n,))
        return jnp.minimum(lam, 1 - lam), jax.random.permutation(partner_key, n)

    def draw_in(key: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        lam_key, partner_key = jax.random.split(key)
        lam = distance_in(lam_key, n, bucket, num_buckets) / 2
        return lam, jax.random.permutation(partner_key, n)

    def bucket(drawn: Drawn) -> jax.Array:
        lam, _ = drawn
        return bucket_of(2 * lam, num_buckets)

    def change(_: Apply, __: Params, batch: Batch, drawn: Drawn, key: jax.Array) -> jax.Array:
        lam, partner = drawn
        images = images_of(batch)
        return targets.mix(images[partner], images, lam)

    def target(
        labels: jax.Array, drawn: Drawn, confidence: jax.Array, num_classes: int
    ) -> jax.Array:
        lam, partner = drawn
        return targets.autolabel_mixup(labels[partner], labels, lam, confidence, num_classes)

    return Augmentation((num_buckets,), draw, draw_in, bucket, change, target)
