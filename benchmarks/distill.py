"""Self-distillation: a student's step against cross entropy's, and against PyTorch with its teacher."""

import functools
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks._harness import Call, Case, Contestant
from calib_jax import data, losses, methods, models, train

SECONDS = 78
_CLASSES = 6
_RATE, _DECAY = 2.5e-5, 0.001
_TEMPERATURE, _WEIGHT = 1.7, 0.5


def cases(quick: bool) -> Iterator[Case]:
    """The step that the runner takes, with dropout, on texts of one length."""
    batch, length, layers = (4, 16, 2) if quick else (32, 64, 6)
    setting = _Setting(batch, length, layers)
    size = f"encoder, {layers} layers of 384, B={batch}, L={length}"
    yield Case(
        f"training step, {size}",
        Contestant("cross entropy", lambda: setting.step("cross_entropy")),
        [Contestant("student", lambda: setting.step("csd"), compared=False, at_most=1.03)],
        tolerance=0.0,
        overhead=True,
    )
    # Compared are loss and logits of the student at the start, without dropout.
    yield Case(
        f"student's step, {size}",
        Contestant("calib_jax, teacher's logits cached", lambda: setting.step("csd")),
        [
            Contestant(
                "torch, teacher recomputed", lambda: _torch(setting), torch=True, at_least=1.0
            )
        ],
        tolerance=1e-4,
        relative=True,
    )


class _Setting:
    """Random texts, a student at its start, and a teacher."""

    def __init__(self, batch: int, length: int, layers: int) -> None:
        rng = np.random.default_rng(0)
        self.ids = rng.integers(5, 50_000, size=(batch, length)).astype(np.int32)
        self.mask = np.ones_like(self.ids)
        self.labels = rng.integers(_CLASSES, size=batch).astype(np.int32)
        self.module = models.create(
            "roberta",
            _CLASSES,
            num_hidden_layers=layers,
            hidden_size=384,
            num_attention_heads=12,
            intermediate_size=1536,
        )

    @functools.cached_property
    def student(self) -> Any:
        return self._init(0)

    @functools.cached_property
    def teacher(self) -> Any:
        return self._init(1)

    def logits(self, params: Any) -> np.ndarray:
        """Without dropout."""
        found = jax.jit(self.module.apply)({"params": params}, self.ids, self.mask)
        return np.asarray(found)

    def _init(self, seed: int) -> Any:
        return jax.jit(self.module.init)(jax.random.key(seed), self.ids, self.mask)["params"]

    @functools.cache  # noqa: B019 - a setting lives as long as its suite
    def step(self, method: str) -> Call:
        """A step of the runner; gives the student's loss and logits at the start."""
        batch = len(self.labels)
        examples = data.Dataset(
            "random",
            "train",
            {"input_ids": self.ids, "mask": self.mask},
            self.labels,
            np.arange(batch, dtype=np.int32),
            tuple(map(str, range(_CLASSES))),
        )
        schedule = train.make_schedule("constant", _RATE, total_steps=1)
        teacher = self.logits(self.teacher)
        trainer = train.Trainer(
            train.Network(self.module, pretrained=lambda _: self.student),
            methods.recipe(method).phases[-1],
            lambda *_: train.make_optimizer("adamw", schedule, weight_decay=_DECAY),
            examples,
            examples,
            train.Setup(batch_size=batch, epochs=1000),
            artifacts={"teacher_logits": teacher, "teacher_temperature": np.asarray(_TEMPERATURE)},
        )
        state, key = trainer.init(0), jax.random.key(0)
        chunk = next(trainer.train.chunks(trainer.train.in_order(), 0, 1))
        logits = self.logits(self.student)
        each = losses.distillation(
            logits, teacher, self.labels, weight=_WEIGHT, temperature=_TEMPERATURE
        )
        before = float(np.mean(each)), logits

        def call() -> Any:
            nonlocal state
            state, _ = jax.block_until_ready(trainer.advance(state, chunk, key))
            return before

        return call


def _torch(setting: _Setting) -> Call:
    """The same step with the frozen teacher in the loop, as the published programs have it."""
    import torch
    import transformers
    from torch.nn import functional

    def load(params: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            models.save_pretrained(folder, setting.module, params)
            return transformers.AutoModelForSequenceClassification.from_pretrained(folder)

    student, teacher = load(setting.student), load(setting.teacher)
    inputs = {
        "input_ids": torch.from_numpy(setting.ids).long(),
        "attention_mask": torch.from_numpy(setting.mask).long(),
    }
    labels = torch.from_numpy(setting.labels).long()

    def loss() -> tuple[Any, Any]:
        with torch.no_grad():
            target = functional.log_softmax(teacher(**inputs).logits / _TEMPERATURE, dim=-1)
        logits = student(**inputs).logits
        scores = functional.log_softmax(logits, dim=-1)
        apart = functional.kl_div(scores, target, log_target=True, reduction="batchmean")
        value = (1 - _WEIGHT) * functional.cross_entropy(logits, labels) + _WEIGHT * apart
        return value, logits

    with torch.no_grad():  # from_pretrained gives networks in evaluation mode
        value, logits = loss()
    before = value.item(), logits.numpy()
    student.train()
    optimizer = torch.optim.AdamW(student.parameters(), lr=_RATE, weight_decay=_DECAY)

    def call() -> Any:
        optimizer.zero_grad()
        loss()[0].backward()
        optimizer.step()
        return before

    return call
