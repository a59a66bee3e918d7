"""Ways to change a training image, each with the distance by which it does so, in buckets.

Training and validation agree on the buckets: of distances in (0, 1] bucket n of N holds those in
((n - 1) / N, n / N], counted from 1 as in the paper and from 0 in arrays; distance 0 joins the first.
Paper: validation draws from U(n / N, (n + 1) / N), one bucket beside the one that training means.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import augment, losses, targets
from calib_jax.methods._base import Apply, Batch

_NO_MAGNITUDE = ("autocontrast", "equalize")  # operations that are the same at every magnitude

Drawn = Any  # what was drawn for each example, a pytree of arrays `[batch]`


class Augmentation(NamedTuple):
    """A random change of images.

    Attributes:
      shape: of the table of buckets; their number is its product.
      draw: `(key, batch_size) -> drawn`, as in training.
      draw_in: `(key, batch_size, bucket) -> drawn`, all in one bucket; the bucket may be traced.
      bucket: `(drawn) -> [batch]`, counted from 0.
      change: `(apply, params, batch, drawn, key) -> images`
      target: `(labels, drawn, confidence, num_classes) -> [batch, num_classes]`, given the label
        confidence of each example's bucket.
      same_as: for each bucket the first that changes images in the same way `[buckets]`, which is
        evaluated for all of them; empty if no two do.
      names: Names of the rows of the table of buckets; empty if it has one row.
      meaning: What a row and a bucket are, in one sentence for readers of a report.
    """

    shape: tuple[int, ...]
    draw: Callable[[jax.Array, int], Drawn]
    draw_in: Callable[[jax.Array, int, jax.Array], Drawn]
    bucket: Callable[[Drawn], jax.Array]
    change: Callable[[Any, Any, Batch, Drawn, jax.Array], jax.Array]
    target: Callable[[jax.Array, Drawn, jax.Array, int], jax.Array] = (
        lambda labels, _, confidence, num_classes: targets.autolabel(
            labels, confidence, num_classes
        )
    )
    same_as: Sequence[int] = ()
    names: Sequence[str] = ()
    meaning: str = "A later bucket is farther from the original image."


def bucket_of(distance: jax.Array, number: int) -> jax.Array:
    """The bucket, from 0, of a distance in [0, 1]: `⌈distance number⌉ - 1`, and 0 for distance 0."""
    return jnp.clip(jnp.ceil(distance * number).astype(jnp.int32), 1, number) - 1


def distance_in(key: jax.Array, batch_size: int, bucket: jax.Array, number: int) -> jax.Array:
    """Distances `[batch]` spread evenly over a bucket."""
    # Not from 0 on: what rounding takes to the lower edge would belong to the bucket before.
    within = jax.random.uniform(key, (batch_size,), minval=2.0**-12, maxval=1.0)
    return (bucket + within) / number


def images_of(batch: Batch) -> jax.Array:
    """The images of a batch."""
    if "image" not in batch.inputs:
        raise ValueError(f"inputs {', '.join(batch.inputs)}: expected images to augment")
    return batch.inputs["image"]


def randaug(max_magnitude: int, ops: str) -> Augmentation:
    """One random operation at a random magnitude; a bucket is an operation and a magnitude."""
    names = augment.OPS if ops == "all" else tuple(name.strip() for name in ops.split(","))
    numbers = [augment.op_number(name) for name in names]
    if not 1 <= max_magnitude <= 10:
        raise ValueError(f"max_magnitude={max_magnitude}: expected 1 to 10")
    shape = len(numbers), max_magnitude

    def draw(key: jax.Array, n: int) -> Drawn:
        return jax.random.randint(key, (n,), 0, shape[0] * shape[1])

    def change(_: Any, __: Any, batch: Batch, bucket: Drawn, key: jax.Array) -> jax.Array:
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
        lambda _, n, b: jnp.full((n,), b),
        lambda drawn: drawn,
        change,
        same_as=same_as,
        names=names,
        meaning="A panel is an operation, a bucket a magnitude.",
    )


def augmix(magnitude: float, num_buckets: int) -> Augmentation:
    """A chain of operations mixed with the original; a bucket is a depth and a range of weights."""

    def draw(key: jax.Array, n: int) -> Drawn:
        depth_key, lam_key = jax.random.split(key)
        depth = jax.random.randint(depth_key, (n,), 1, augment.MAX_DEPTH + 1)
        return depth, jax.random.uniform(lam_key, (n,))

    def draw_in(key: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        depth, part = jnp.divmod(bucket, num_buckets)
        return jnp.full((n,), depth + 1), distance_in(key, n, part, num_buckets)

    def bucket(drawn: Drawn) -> jax.Array:
        depth, lam = drawn
        return (depth - 1) * num_buckets + bucket_of(lam, num_buckets)

    def change(_: Any, __: Any, batch: Batch, drawn: Drawn, key: jax.Array) -> jax.Array:
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


def adversarial(eps: float, steps: int, num_buckets: int, *, fixed: bool = False) -> Augmentation:
    """PGD against the network as it is in evaluation; a bucket is a range of radii up to `eps`.

    Args:
      eps: the largest radius.
      steps: of `eps / 4` of the example's own radius.
      num_buckets: N.
      fixed: train at `eps` itself, not at radii from U(0, eps).
    """

    def draw(key: jax.Array, n: int) -> Drawn:
        return jnp.full((n,), eps) if fixed else eps * (1 - jax.random.uniform(key, (n,)))

    def draw_in(key: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        return eps * distance_in(key, n, bucket, num_buckets)

    def change(apply: Apply, params: Any, batch: Batch, drawn: Drawn, key: jax.Array) -> jax.Array:
        return attack(apply, params, batch, drawn, key, steps)

    return Augmentation(
        (num_buckets,), draw, draw_in, lambda drawn: bucket_of(drawn / eps, num_buckets), change
    )


def attack(
    apply: Apply, params: Any, batch: Batch, eps: jax.Array, key: jax.Array, steps: int
) -> jax.Array:
    """Images within `eps` that raise the cross entropy of the true labels."""
    frozen = jax.lax.stop_gradient(params)

    def loss(images: jax.Array, labels: jax.Array) -> jax.Array:
        return losses.cross_entropy(apply(frozen, {**batch.inputs, "image": images})[0], labels)

    return augment.pgd(key, loss, images_of(batch), batch.labels, eps=eps, steps=steps)


def mixup(beta: float, num_buckets: int) -> Augmentation:
    """Each image with a lighter share of another; a bucket is a range of shares up to 1/2.

    Paper: one share per step. Here: one per example, so that every step trains all buckets.
    """

    def partner(key: jax.Array, n: int) -> jax.Array:
        return jax.random.permutation(key, n)

    def draw(key: jax.Array, n: int) -> Drawn:
        lam_key, partner_key = jax.random.split(key)
        lam = jax.random.beta(lam_key, beta, beta, (n,))
        return jnp.minimum(lam, 1 - lam), partner(partner_key, n)

    def draw_in(key: jax.Array, n: int, bucket: jax.Array) -> Drawn:
        lam_key, partner_key = jax.random.split(key)
        return distance_in(lam_key, n, bucket, num_buckets) / 2, partner(partner_key, n)

    def change(_: Any, __: Any, batch: Batch, drawn: Drawn, key: jax.Array) -> jax.Array:
        lam, other = drawn
        images = images_of(batch)
        return targets.mix(images[other], images, lam)

    def target(
        labels: jax.Array, drawn: Drawn, confidence: jax.Array, num_classes: int
    ) -> jax.Array:
        lam, other = drawn
        return targets.autolabel_mixup(labels[other], labels, lam, confidence, num_classes)

    return Augmentation(
        (num_buckets,), draw, draw_in, lambda d: bucket_of(2 * d[0], num_buckets), change, target
    )
