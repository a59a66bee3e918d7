"""Numerics of augmentation: see `_harness.py`. Corruptions one by one are in the slow grid."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numerics._harness import Batch, Case, Suite, batch, strict

from calib_jax import augment, losses

Image = functools.partial(Case, wide=False, scenes=("spread",))


def images(b: Batch) -> dict[str, Any]:
    return {"images": b.rng.uniform(size=(b.n, 8, 8, 3))}


def drawn(b: Batch) -> dict[str, Any]:
    return images(b) | {"key": jax.random.key(b.seed)}


def as_bytes(b: Batch) -> dict[str, Any]:
    return drawn(b) | {"images": b.rng.integers(0, 256, (b.n, 8, 8, 3)).astype(np.uint8)}


def loss(images: jax.Array, labels: jax.Array) -> jax.Array:
    """A loss that has a slope everywhere."""
    weight = 1 + labels.astype(images.dtype)[:, None, None, None]
    return jnp.sum(jnp.sin(5 * weight * images), axis=(1, 2, 3))


def attacked(b: Batch) -> dict[str, Any]:
    return images(b) | {"labels": b.labels}


ATTACK = {"loss": loss, "eps": 0.1}


class TestAugment(Suite):
    room = augment
    # Nothing of arrays.
    exempt = frozenset({"CORRUPTIONS", "MAX_DEPTH", "OPS", "corruption_strengths", "op_number"})
    cases = (
        *(
            Image(
                augment.corrupt,
                drawn,
                variant=name,
                options={"name": name, "severity": 3},
                result="same",
                # Pixels that a random draw moves or keeps may differ between programs by rounding.
                modes=("eager", "jit"),
                slow=name != "brightness",
            )
            for name in augment.CORRUPTIONS
        ),
        Image(augment.randaug, drawn, options={"magnitude": 4.0, "op": "color"}, result="same"),
        Image(
            augment.randaug,
            lambda b: as_bytes(b)
            | {
                "magnitude": np.linspace(0, 10, b.n),
                "op": np.arange(b.n, dtype=np.int32) % 11,
            },
            variant="bytes",
        ),
        Image(augment.augmix, drawn, result="same"),
        Image(augment.augmix, as_bytes, variant="original", options={"chains": 3}, slow=True),
        Image(augment.flip, drawn, result="same"),
        Image(augment.pad_crop, drawn, options={"padding": 2}, result="same"),
        Image(
            augment.pgd,
            lambda b: attacked(b) | {"key": jax.random.key(b.seed)},
            options=ATTACK | {"steps": 2, "restarts": 2},
        ),
        Image(augment.pgd_start, drawn, options={"eps": 0.1}),
        Image(
            augment.pgd_step,
            lambda b: attacked(b) | {"x": 0.9 * images(b)["images"]},
            options=ATTACK,
        ),
        Case(
            augment.saliency,
            lambda b: {"logits": b.logits, "labels": b.labels},
            labels="labels",
        ),
        Case(augment.saliency, lambda b: {"logits": b.logits, "labels": b.soft}, variant="soft"),
        Case(
            augment.partners,
            lambda b: {"saliency": b.probs, "candidates": b.probs[::-1].copy()},
        ),
        Case(
            augment.partners,
            lambda b: {
                "saliency": b.rng.normal(size=(b.n, 5)),
                "candidates": b.rng.normal(size=(6, 5)),
                "valid": np.arange(6) < 4,
            },
            variant="valid",
            wide=False,
        ),
        Case(
            augment.partners,
            lambda b: {
                "saliency": b.rng.normal(size=(b.n, 5)),
                "candidates": np.ones((6, 5)),
                "key": jax.random.key(b.seed),
            },
            variant="key",
            options={"eps": 1e-6},
            wide=False,
        ),
        Case(
            augment.gradient_saliency,
            lambda b: {"inputs": b.logits, "labels": b.labels},
            options={"loss": lambda z, y: losses.cross_entropy(z[None], y[None])[0]},
            result="same",
            empty=False,
        ),
    )  # fmt: skip


# The grid above is slow for most of these. Tracing finds what fails by its types: severity 1 and 5 are
# both liquids of spatter.
TYPED = {
    **{
        f"{name} {severity}": functools.partial(augment.corrupt, name=name, severity=severity)
        for name in augment.CORRUPTIONS
        for severity in (1, 5)
    },
    "augmix": functools.partial(augment.augmix, chains=3),
    **{
        f"randaug {dtype}": functools.partial(
            augment.randaug, magnitude=np.arange(8, dtype=dtype), op=np.arange(8, dtype=dtype)
        )
        for dtype in ("int32", "int64")
    },
}


@pytest.mark.parametrize("name", TYPED)
def test_types_under_strict_promotion(name: str) -> None:
    with strict():
        for dtype in (jnp.uint8, jnp.float32, jnp.float64):
            made = jax.eval_shape(
                TYPED[name], jax.random.key(0), jnp.asarray(images(batch())["images"], dtype)
            )
            assert made.dtype == dtype
