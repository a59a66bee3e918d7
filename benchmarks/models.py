"""Training steps of ResNet-20 and of a 6-layer encoder against PyTorch eager."""

import functools
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks._harness import Call, Case, Contestant
from calib_jax import losses, models

SECONDS = 75
_CLASSES = 10
_SGD = {"learning_rate": 0.1, "momentum": 0.9}
_ADAMW = {"learning_rate": 1e-5, "weight_decay": 0.01}


def cases(quick: bool) -> Iterator[Case]:
    """Forward, backward and the optimizer's update; every call continues from the previous one."""
    yield _resnet(16 if quick else 128)
    yield _encoder(*((4, 16, 2) if quick else (32, 64, 6)))


def _resnet(batch: int) -> Case:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(batch, 32, 32, 3)).astype(np.float32)
    labels = rng.integers(_CLASSES, size=batch)
    module = models.create("resnet20", _CLASSES)
    # Initialized when the case's turn comes, once for both.
    start = functools.cache(lambda: jax.jit(module.init)(jax.random.key(0), images[:1]))

    def ours() -> Call:
        optimizer = optax.sgd(**_SGD)

        @functools.partial(jax.jit, donate_argnums=0)
        def step(state: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
            params, stats, moments = state

            def loss(params: Any) -> tuple[jax.Array, Any]:
                logits, new = module.apply(
                    {"params": params, "batch_stats": stats}, images, True, mutable=["batch_stats"]
                )
                return jnp.mean(losses.cross_entropy(logits, labels)), new["batch_stats"]

            (value, new_stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
            updates, moments = optimizer.update(grads, moments)
            return (optax.apply_updates(params, updates), new_stats, moments), value

        params, stats = start()["params"], start()["batch_stats"]
        state = jax.tree.map(jnp.copy, (params, stats, optimizer.init(params)))
        return _repeated(step, state, images, labels)

    def rival(channels_last: bool) -> Call:
        return torch_resnet(start()["params"], images, labels, channels_last=channels_last)

    return Case(
        f"ResNet-20, B={batch}, 32x32",
        Contestant("calib_jax", ours),
        [
            # The target is that ours takes at most 1.5 times as long.
            Contestant("torch", lambda: rival(False), torch=True, at_least=1 / 1.5),
            Contestant("torch, channels last", lambda: rival(True), torch=True),
        ],
        tolerance=1e-4,
    )


def torch_resnet(
    params: Any, images: np.ndarray, labels: np.ndarray, *, channels_last: bool
) -> Call:
    """A step of cross entropy on images `[batch, 32, 32, 3]`, from our parameters on."""
    import torch

    from benchmarks import _torch_resnet

    network: Any = _torch_resnet.ResNet20(_CLASSES)
    _torch_resnet.copy_weights(network, params)
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network.to(memory_format=layout)  # in place
    x = x.contiguous(memory_format=layout)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=_SGD["learning_rate"], momentum=_SGD["momentum"]
    )
    return _torch_step(lambda: network(x), torch.from_numpy(labels), optimizer)


def _encoder(batch: int, length: int, layers: int) -> Case:
    """What is timed has dropout; compared are loss and logits at the start without it."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 50_000, size=(batch, length))
    mask = (np.arange(length) < rng.integers(length // 2, length + 1, size=(batch, 1))).astype(int)
    ids = np.where(mask, ids, 1)
    labels = rng.integers(_CLASSES, size=batch)
    module = models.create(
        "roberta",
        _CLASSES,
        num_hidden_layers=layers,
        hidden_size=384,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    start = functools.cache(lambda: jax.jit(module.init)(jax.random.key(0), ids, mask)["params"])

    def ours() -> Call:
        optimizer = optax.adamw(**_ADAMW)

        def loss(params: Any, ids: Any, mask: Any, labels: Any, **options: Any) -> Any:
            logits: Any = module.apply({"params": params}, ids, mask, **options)
            return jnp.mean(losses.cross_entropy(logits, labels)), logits

        @functools.partial(jax.jit, donate_argnums=0)
        def step(state: Any, ids: Any, mask: Any, labels: Any) -> tuple[Any, jax.Array]:
            params, moments, key = state
            key, now = jax.random.split(key)
            (value, _), grads = jax.value_and_grad(loss, has_aux=True)(
                params, ids, mask, labels, train=True, rngs={"dropout": now}
            )
            updates, moments = optimizer.update(grads, moments, params)
            return (optax.apply_updates(params, updates), moments, key), value

        before = jax.jit(loss)(start(), ids, mask, labels)
        state = jax.tree.map(jnp.copy, (start(), optimizer.init(start()), jax.random.key(1)))
        return _repeated(step, state, ids, mask, labels, before=before)

    def rival() -> Call:
        import torch
        import transformers

        with tempfile.TemporaryDirectory() as folder:
            models.save_pretrained(folder, module, start())
            network = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        y = torch.from_numpy(labels)
        with torch.no_grad():  # from_pretrained gives a network in evaluation mode
            logits = network(**inputs).logits
        before = torch.nn.functional.cross_entropy(logits, y).item(), logits.numpy()
        network.train()
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=_ADAMW["learning_rate"], weight_decay=_ADAMW["weight_decay"]
        )
        return _torch_step(lambda: network(**inputs).logits, y, optimizer, before=before)

    return Case(
        f"encoder, {layers} layers of 384, B={batch}, L={length}",
        Contestant("calib_jax", ours),
        [Contestant("transformers, torch", rival, torch=True, at_least=1.0)],
        tolerance=1e-4,
        relative=True,
    )


def _repeated(step: Any, state: Any, *arrays: Any, before: Any = None) -> Call:
    """Calls `step` on the state it last returned; gives the loss, or `before` if there is one."""
    placed = jax.block_until_ready(jax.device_put(arrays))

    def call() -> Any:
        nonlocal state
        state, value = jax.block_until_ready(step(state, *placed))
        return value if before is None else before

    return call


def _torch_step(forward: Any, labels: Any, optimizer: Any, before: Any = None) -> Call:
    """The same by torch."""
    import torch

    def call() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(), labels)
        loss.backward()
        optimizer.step()
        return loss.item() if before is None else before

    return call
