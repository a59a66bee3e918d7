"""RandAug, AugMix and PGD on the device: against Pillow in two processes, and against a torch loop."""

import multiprocessing
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._harness import Call, Case, Contestant, on_device
from calib_jax import augment, losses, models, train

SECONDS = 42
_PROCESSES = 2
_FILL = 128


def cases(quick: bool) -> Iterator[Case]:
    """Images of 32 x 32; each with a random operation and magnitude."""
    number = 64 if quick else 1024
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (number, 32, 32, 3)).astype(np.uint8)
    ops = rng.integers(0, len(augment.OPS), number)
    magnitudes = rng.integers(1, 11, number)
    signs = _signs(number)
    yield Case(
        f"RandAug, {number} images",
        Contestant(
            "calib_jax",
            lambda: on_device(jax.jit(_randaug), images, magnitudes, ops),
            value=lambda x: np.asarray(x, np.int32),
        ),
        [
            Contestant(
                "Pillow, 2 processes",
                partial(_pillow, images, ops[:, None], magnitudes, signs[:, None]),
                value=lambda x: np.asarray(x, np.int32),
                at_least=5.0,
            )
        ],
        tolerance=1.0,  # a gray level; warps agree pixel by pixel at these sizes
    )
    chains = np.where(np.arange(3) < rng.integers(1, 4, number)[:, None], 0, len(augment.OPS))
    chains = np.where(chains == 0, rng.integers(0, len(augment.OPS), (number, 3)), chains)
    signs = np.ones((number, 3))
    yield Case(
        f"AugMix, {number} images",
        Contestant(
            "calib_jax",
            lambda: on_device(jax.jit(partial(augment.augmix, jax.random.key(0))), images),
        ),
        [
            # Other random draws, hence other images: only the time compares.
            Contestant(
                "Pillow, 2 processes",
                partial(_pillow, images, chains, np.full(number, 3), signs, mix=True),
                compared=False,
                at_least=5.0,
            )
        ],
        tolerance=0.0,
    )
    batch, steps = (8, 2) if quick else (64, 4)
    yield Case(
        f"PGD, {steps} steps, ResNet-20, B={batch}",
        Contestant("calib_jax", partial(_pgd, batch, steps)),
        [
            Contestant("torch, a loop", partial(_torch_pgd, batch, steps), compared=False, torch=True),
            Contestant("calib_jax, as lax.fori_loop", partial(_pgd, batch, 2, unroll=False),
                       compared=False),
        ],
        tolerance=0.0,
    )  # fmt: skip


def _randaug(images: jax.Array, magnitudes: jax.Array, ops: jax.Array) -> jax.Array:
    return augment.randaug(jax.random.key(0), images, magnitudes, ops, fill=_FILL)


def _signs(number: int) -> np.ndarray:
    """The directions that `_randaug` draws."""
    return np.where(np.asarray(jax.random.bernoulli(jax.random.key(0), shape=(number,))), 1, -1)


def _pillow(
    images: np.ndarray,
    ops: np.ndarray,
    magnitudes: np.ndarray,
    signs: np.ndarray,
    mix: bool = False,
) -> Call:
    import PIL  # noqa: F401 - whether it is there is to be known here, not in a process

    # Not forked: a fork of a process that runs jax may hang.
    pool = multiprocessing.get_context("spawn").Pool(_PROCESSES)
    parts = [np.array_split(a, _PROCESSES) for a in (images, ops, magnitudes, signs)]
    jobs = [(*part, mix) for part in zip(*parts, strict=True)]
    return lambda: np.concatenate(pool.starmap(_pillow_part, jobs))


def _pillow_part(
    images: np.ndarray, ops: np.ndarray, magnitudes: np.ndarray, signs: np.ndarray, mix: bool
) -> np.ndarray:
    rng = np.random.default_rng(0)
    made = []
    for image, chain, m, sign in zip(images, ops, magnitudes, signs, strict=True):
        changed = _pillow_chain(image, chain, m, sign)
        if mix:
            lam = rng.uniform()
            changed = np.round(lam * image + (1 - lam) * changed).astype(np.uint8)
        made.append(changed)
    return np.stack(made)


def _pillow_chain(image: np.ndarray, ops: Any, m: float, signs: Any) -> np.ndarray:
    from PIL import Image, ImageEnhance, ImageOps

    pil = Image.fromarray(image)
    size, gray, affine = pil.size, (_FILL,) * 3, Image.Transform.AFFINE
    for op, sign in zip(ops, signs, strict=True):
        name = (*augment.OPS, "none")[op]
        matrices = {
            "shear_x": (1, 0.03 * m * sign, 0, 0, 1, 0),
            "shear_y": (1, 0, 0, 0.03 * m * sign, 1, 0),
            "translate_x": (1, 0, int(m * sign * size[0] / 30), 0, 1, 0),
            "translate_y": (1, 0, 0, 0, 1, int(m * sign * size[1] / 30)),
        }
        if name in matrices:
            pil = pil.transform(size, affine, matrices[name], fillcolor=gray)
        elif name == "rotate":
            pil = pil.rotate(3 * m * sign, fillcolor=gray)
        elif name == "posterize":
            pil = ImageOps.posterize(pil, max(1, 4 - int(4 * m / 10)))
        elif name == "solarize":
            pil = ImageOps.solarize(pil, 256 - int(256 * m / 10))
        elif name == "color":
            pil = ImageEnhance.Color(pil).enhance(1 + 0.09 * m * sign)
        elif name != "none":
            pil = getattr(ImageOps, name)(pil)
    return np.asarray(pil)


def _network(batch: int) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.random((batch, 32, 32, 3)).astype(np.float32)
    network = train.Network(models.create("resnet20", 10))
    params, collections = jax.jit(network.init)(jax.random.key(0), {"image": images[:1]})
    return network.bind(collections), params, images, rng.integers(0, 10, batch)


def _pgd(batch: int, steps: int, unroll: bool | None = None) -> Call:
    network, params, images, labels = _network(batch)

    @jax.jit
    def attack(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        def loss(x: jax.Array, labels: jax.Array) -> jax.Array:
            return losses.cross_entropy(network(params, {"image": x})[0], labels)

        key = jax.random.key(0)
        return augment.pgd(key, loss, images, labels, eps=0.03, steps=steps, unroll=unroll)

    return on_device(attack, params, jnp.asarray(images), jnp.asarray(labels))


def _torch_pgd(batch: int, steps: int) -> Call:
    import torch

    from benchmarks._torch_resnet import ResNet20, copy_weights

    _, params, images, labels = _network(batch)
    network = ResNet20(10)
    copy_weights(network, params)
    network.eval()
    clean = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    target = torch.from_numpy(labels)

    def call() -> Any:
        x = (clean + 0.06 * torch.rand_like(clean) - 0.03).clamp(0, 1)
        for _ in range(steps):
            x.requires_grad_(True)
            value = torch.nn.functional.cross_entropy(network(x), target, reduction="sum")
            (slope,) = torch.autograd.grad(value, x)
            x = x.detach() + 0.0075 * slope.sign()
            x = torch.minimum(torch.maximum(x, clean - 0.03), clean + 0.03).clamp(0, 1)
        return x.numpy()

    return call
