"""Mixup guided by AUM and saliency: its step, batches by length, the look-up in a bank."""

import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._harness import Call, Case, Contestant, on_device
from calib_jax import augment, data, methods, models, train

SECONDS = 115
_CLASSES = 3
_WIDTH, _HEADS = 384, 12


def cases(quick: bool) -> Iterator[Case]:
    """A six-layer encoder, of two layers if quick."""
    layers, half, length = (2, 4, 16) if quick else (6, 16, 32)
    rows = 2 * half
    yield Case(
        f"training step, {layers} layers of {_WIDTH}, {rows} texts of {length} tokens",
        Contestant("cross entropy", lambda: _step("cross_entropy", rows, layers, length)),
        [
            Contestant(
                "AUM mixup", lambda: _step("aum_mixup", rows, layers, length),
                compared=False, at_most=1.05,
            ),
            Contestant(
                "torch, cross entropy", lambda: _torch(rows, layers, length, guided=False),
                compared=False, torch=True,
            ),
            # A backward pass for the saliency of each half, a loop over the anchors.
            Contestant(
                "torch, AUM mixup as published", lambda: _torch(rows, layers, length, guided=True),
                compared=False, torch=True,
            ),
        ],
        tolerance=0.0,
        overhead=True,
    )  # fmt: skip
    if snli := _snli(64):
        by_length, padded = (_plan_tokens(snli, fixed) for fixed in (False, True))
        layers = 2  # the ratio is that of the tokens, whatever the depth
        yield Case(
            f"{len(snli)} pairs of SNLI, {layers} layers, batch 32: {by_length:,} tokens by length, "
            f"{padded:,} padded to 256",
            Contestant("batches by length", lambda: _epoch(snli, layers, fixed=False)),
            [Contestant("padded to 256", lambda: _epoch(snli, layers, fixed=True), compared=False)],
            tolerance=0.0,
        )
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(10_000 if quick else 275_000, _CLASSES)).astype(np.float32)
    labels = rng.integers(0, _CLASSES, len(bank))
    anchors = np.asarray(augment.saliency(bank[-half:], labels[-half:]))
    yield Case(
        f"partners of {half} examples among {len(bank):,}, {_CLASSES} classes",
        Contestant("calib_jax", lambda: on_device(jax.jit(_look_up), anchors, bank, labels)),
        [Contestant("numpy, one anchor at a time", lambda: _numpy_look_up(anchors, bank, labels))],
        tolerance=1e-4,
    )


def _texts(n: int, length: int) -> data.Dataset:
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 50_000, (n, length)).astype(np.int32)
    return data.Dataset(
        "random",
        "train",
        {"input_ids": ids, "mask": np.ones_like(ids)},
        rng.integers(0, _CLASSES, n).astype(np.int32),
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(_CLASSES))),
    )


def _network(layers: int) -> Any:
    return models.create(
        "roberta", _CLASSES, head="linear", num_hidden_layers=layers, hidden_size=_WIDTH,
        num_attention_heads=_HEADS, intermediate_size=4 * _WIDTH,
    )  # fmt: skip


def _trainer(method: str, batch: int, layers: int, texts: data.Dataset) -> train.Trainer:
    schedule = train.make_schedule("constant", 1e-5, total_steps=1)
    return train.Trainer(
        train.Network(_network(layers)),
        methods.recipe(method).phases[-1],
        lambda *_: train.make_optimizer("adamw", schedule, clip_norm=1.0),
        texts,
        texts.take(np.arange(min(batch, len(texts)))),
        train.Setup(batch_size=batch, epochs=1),
        artifacts={"aum": np.arange(len(texts), dtype=np.float32)},
    )


def _step(method: str, batch: int, layers: int, length: int) -> Call:
    trainer = _trainer(method, batch, layers, _texts(batch, length))
    state, key = trainer.init(0), jax.random.key(0)
    chunk = next(trainer.train.chunks(trainer.train.shuffled(0, 0), 0, 1))

    def call() -> Any:
        nonlocal state
        state, sums = jax.block_until_ready(trainer.advance(state, chunk, key))
        return sums.weight > 0

    return call


def _torch(rows: int, layers: int, length: int, *, guided: bool) -> Call:
    """The same step as published programs take it, or plain cross entropy."""
    import torch
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        module = _network(layers)
        texts = _texts(rows, length)
        inputs = (texts.inputs["input_ids"], texts.inputs["mask"])
        params = jax.jit(module.init)(jax.random.key(0), *inputs)["params"]
        models.save_pretrained(folder, module, params)
        encoder: Any = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)
    head = torch.nn.Linear(_WIDTH, _CLASSES)
    network = torch.nn.ModuleList([encoder, head]).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    ids, mask = (torch.from_numpy(x.astype(np.int64)) for x in inputs)
    labels = torch.from_numpy(texts.labels.astype(np.int64))
    entropy = torch.nn.functional.cross_entropy
    one_hot = torch.nn.functional.one_hot(labels, _CLASSES).float()
    half = rows // 2
    sides = (slice(0, half), slice(half, rows))

    def forward(part: slice) -> Any:
        return head(encoder(ids[part], attention_mask=mask[part]).last_hidden_state[:, 0])

    def call() -> Any:
        optimizer.zero_grad()
        if not guided:
            loss = entropy(forward(slice(0, rows)), labels)
            loss.backward()
        else:
            logits, plain, saliency = [], [], []
            for side in sides:
                z = forward(side)
                z.retain_grad()
                value = entropy(z, labels[side])
                value.backward(retain_graph=True)
                assert z.grad is not None
                logits.append(z)
                plain.append(value)
                saliency.append(z.grad.abs().clone())
            lam = float(np.random.default_rng(0).beta(0.4, 0.4))
            loss = torch.zeros(())
            for own, other in ((0, 1), (1, 0)):
                loss = loss + 0.8 * plain[own]
                for i in range(half):
                    likeness = torch.cosine_similarity(
                        saliency[own][i][None], saliency[other], eps=1e-6
                    )
                    for j in (int(likeness.argmax().item()), int(likeness.argmin().item())):
                        mixed = lam * logits[own][i] + (1 - lam) * logits[other][j]
                        y = lam * one_hot[sides[own]][i] + (1 - lam) * one_hot[sides[other]][j]
                        loss = loss + 0.1 * entropy(mixed[None], y[None]) / half
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return loss.item() > 0

    return call


def _snli(number: int) -> data.Dataset | None:
    """Return real pairs with their real lengths, if SNLI is available."""
    folder = pathlib.Path(os.environ.get("CALIB_JAX_DATA", ""))
    tokenizer = folder / "models" / "roberta-30m"
    if not tokenizer.is_dir() or not (folder / "snli_1.0").is_dir():
        return None
    pairs = data.load("snli", "train", folder).take(np.arange(number))
    with tempfile.TemporaryDirectory() as cache:
        return data.tokenize(pairs, tokenizer, max_length=256, cache_dir=cache)


def _padded(texts: data.Dataset) -> data.Dataset:
    """All 256 columns, and no word of how long a text is: one length for every batch."""
    n, width = texts.inputs["input_ids"].shape
    filled = np.full((n, 256), 1, np.int32)
    filled[:, :width] = texts.inputs["input_ids"]
    inputs = {"input_ids": filled, "mask": np.ones_like(filled)}
    return data.Dataset("padded", "train", inputs, texts.labels, texts.ids, texts.label_names)


def _plan_tokens(texts: data.Dataset, fixed: bool) -> int:
    if fixed:
        return 256 * len(texts)
    lengths = texts.inputs["mask"].sum(-1)
    buckets = data.make_buckets(lengths, texts.inputs["mask"].shape[-1])
    plan = data.shuffled(
        [np.arange(len(texts))], 32, seed=0, epoch=0, lengths=lengths, buckets=buckets
    )
    assert plan.lengths is not None
    return int(32 * plan.lengths.sum())


def _epoch(texts: data.Dataset, layers: int, *, fixed: bool) -> Call:
    trainer = _trainer("cross_entropy", 32, layers, _padded(texts) if fixed else texts)
    state, key = trainer.init(0), jax.random.key(0)

    def call() -> Any:
        nonlocal state
        for chunk in trainer.train.chunks(trainer.train.shuffled(0, 0), 0, trainer.train.steps):
            state, _ = trainer.advance(state, chunk, key)
        return jax.block_until_ready(state).step > 0

    return call


def _look_up(anchors: jax.Array, bank: jax.Array, labels: jax.Array) -> Any:
    """The cosine of the nearest and of the farthest, so that ties do not matter."""
    candidates = augment.saliency(bank, labels)
    found = jnp.stack(augment.partners(anchors, candidates))
    chosen = candidates[found]
    return jnp.sum(anchors * chosen, -1) / (
        jnp.linalg.norm(anchors, axis=-1) * jnp.linalg.norm(chosen, axis=-1)
    )


def _numpy_look_up(anchors: np.ndarray, bank: np.ndarray, labels: np.ndarray) -> Call:
    def call() -> np.ndarray:
        probs = np.exp(bank - bank.max(1, keepdims=True))
        probs /= probs.sum(1, keepdims=True)
        candidates = np.abs(probs - np.eye(_CLASSES, dtype=np.float32)[labels])
        norms = np.linalg.norm(candidates, axis=1)
        likeness = [candidates @ a / (norms * np.linalg.norm(a)) for a in anchors]
        return np.array([[x.max() for x in likeness], [x.min() for x in likeness]])

    return call
