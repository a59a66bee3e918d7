"""Trainings that take milliseconds, for tests of what goes on around the steps."""

import contextlib
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calib_jax import data, experiment, methods, models, train


def _without_abandoned_reads(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """After a first array that cannot be read orbax drops its reads of the others, and they complain.

    They do so when they are collected, in whatever test that happens: so this stays.
    """

    def filtered(unraisable: Any) -> None:
        coroutine = getattr(unraisable.object, "cr_code", None)
        abandoned = coroutine is not None and "orbax" in coroutine.co_filename
        if not abandoned and str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    return filtered


sys.unraisablehook = _without_abandoned_reads(sys.unraisablehook)

NUM_TRAIN, NUM_VAL, BATCH = 22, 14, 4
STEPS = 6  # of an epoch; the last batch has two rows that count

ARTIFACTS = {
    "aum": np.arange(NUM_TRAIN, dtype=np.float32)[::-1],
    "teacher_logits": np.random.default_rng(2).normal(size=(NUM_TRAIN, 3)).astype(np.float32),
    "teacher_temperature": np.float32(1.5),
}


def images(n: int, seed: int, width: int = 4) -> data.Dataset:
    """Bright and dark images, and a third class that is neither."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n).astype(np.int32)
    pixels = rng.integers(0, 90, (n, width, width, 1)) + 80 * labels[:, None, None, None]
    inputs = {"image": pixels.astype(np.uint8)}
    return data.Dataset("toy", "train", inputs, labels, np.arange(n, dtype=np.int32), tuple("abc"))


def as_stream(part: data.Dataset) -> data.Dataset:
    """The same examples, read when they are wanted."""

    def read(position: int, _: Any) -> dict[str, np.ndarray]:
        return {key: rows[position] for key, rows in part.inputs.items()}

    return dataclasses.replace(part, inputs={}, read=read)


class Evaluator(NamedTuple):
    """What a method asks the validation set, answered by hand.

    Attributes:
      logits, labels: of the validation set.
      sums: `(measure, args, limit) -> sums` of every bucket.
    """

    logits: Any
    labels: Any
    sums: Callable[..., Any] | None = None

    def validation(self) -> tuple[Any, Any]:
        return self.logits, self.labels

    def per_bucket(self, measure: Any, args: Any, limit: int = 0) -> Any:
        assert self.sums is not None
        return self.sums(measure, args, limit)


def trainer(
    method: str | methods.Method | methods.Phase = "adafocal",
    model: str | train.Network = "mlp",
    model_options: Any = None,
    *,
    learning_rate: float = 0.1,
    width: int = 4,
    augment: Any = None,
    streamed: bool = False,
    **setup: Any,
) -> train.Trainer:
    """A trainer for three epochs of six steps, one in a call, unless `setup` says otherwise."""
    model_options = {"widths": (8,)} if model_options is None else model_options
    sets = images(NUM_TRAIN, 0, width), images(NUM_VAL, 1, width)

    def make_optimizer(_: int, total: int) -> Any:
        schedule = train.make_schedule("cosine", learning_rate, total_steps=total, warmup_steps=2)
        return train.make_optimizer("sgd", schedule, weight_decay=1e-3)

    if isinstance(model, str):
        model = train.Network(models.create(model, 3, **model_options))
    return train.Trainer(
        model,
        methods.recipe(method).phases[-1] if isinstance(method, str) else method,
        make_optimizer,
        *(as_stream(part) if streamed else part for part in sets),
        train.Setup(**{"batch_size": BATCH, "epochs": 3, "steps_per_call": 1} | setup),
        augment,
        ARTIFACTS,
    )


# Compiled once for all tests of a file that ask for the same.
shared_trainer = functools.cache(trainer)


def config(**changes: Any) -> Any:
    """A perceptron on sixty digits for two epochs of three steps; `train__epochs=3` changes a value."""
    made = experiment.default_config()
    made.data.options.num_train = 60
    made.model.options.widths = (8,)
    made.train.batch_size = 24
    made.train.epochs = 2
    made.calibrate = ()
    made.num_bootstrap = 5
    made.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return made


def fit(
    made: train.Trainer,
    folder: pathlib.Path,
    *,
    calls: int | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> train.TrainState:
    """`train.fit` in a folder; asked to stop after so many calls."""
    return fit_seeds(made, folder, [0], calls=calls, say=say, **options)[0]


def fit_seeds(
    made: train.Trainer,
    folder: pathlib.Path,
    seeds: Sequence[int],
    *,
    calls: int | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> list[train.TrainState]:
    """`fit` for several seeds at once, the first in the folder itself, others in folders there."""
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == calls

    places = [folder / (str(seed) if i else "") for i, seed in enumerate(seeds)]
    with contextlib.ExitStack() as opened:
        checkpoints, logs = [], []
        for place in places:
            place.mkdir(exist_ok=True)
            saved = train.Checkpoints(place / "checkpoints", best="val/nll", log=say)
            checkpoints.append(opened.enter_context(saved))
            logs.append(train.Log(place / "metrics.jsonl"))
        if len(seeds) == 1:
            state = train.fit(
                made, seeds[0], checkpoints[0], logs[0], should_stop=should_stop, **options
            )
            return [state]
        return train.fit_seeds(
            [made] * len(seeds), seeds, checkpoints, logs, should_stop=should_stop, **options
        )


def rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The log without what depends on the clock."""
    found = train.Log(folder / "metrics.jsonl").rows()
    return [{k: v for k, v in row.items() if not k.startswith("perf/")} for row in found]


def arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """What is in an npz."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit."""
    leaves_a, leaves_b = (jax.tree_util.tree_leaves_with_path(tree) for tree in (a, b))
    for (path, x), (_, y) in zip(leaves_a, leaves_b, strict=True):
        name = jax.tree_util.keystr(path)
        assert x.dtype == y.dtype, name
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=name, strict=True)
