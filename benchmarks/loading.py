"""Data on its way to the step: images read per second, and how long training waits for them."""

import io
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks._harness import Fact
from benchmarks._training import CLASSES, images, make_trainer
from calib_jax import data
from calib_jax.data import _imagenet

SECONDS = 75

_BATCH = 16
_READERS = {0: "threads", 1: "1 worker", 2: "2 workers"}
_MOST_WAITING = 0.05


def cases(quick: bool) -> Iterator[Fact]:
    """Photographs of the usual size, decoded and cropped as ImageNet's are, and a set like CIFAR-10."""
    photographs = _photographs(32)
    batches = 4 if quick else 24
    alone = None
    for workers in _READERS:
        rate = max(_rate(photographs, workers, batches) for _ in range(1 if quick else 2))
        alone = alone or rate
        yield Fact(
            "Photographs (JPEG, 500 x 375) decoded, cropped and scaled to 224 x 224, with no training "
            "next to it. Without workers, four threads of the process itself read.",
            {
                "workers": _READERS[workers],
                "examples/s": rate,
                "examples/s per worker": rate / max(workers, 1),
                "over threads": rate / alone,
            },
        )
    steps, model = (3, "mlp") if quick else (5, "resnet20")
    resident = images(1_000 if quick else 50_000)
    for name, dataset, workers in (
        (f"resident, {len(resident):,} images of 32 x 32", resident, 0),
        *((f"streamed, 224 x 224, {_READERS[w]}", photographs, w) for w in (0, 1)),
    ):
        share, rate = _waiting(dataset, workers, steps, model)
        yield Fact(
            f"Share of time in which a {model} (B={_BATCH}) had nothing to do because its next batch "
            "was not there. An upper bound: all the time taken to fetch a batch, if the step before "
            "had ended by then.",
            {"data": name, "waiting": f"{100 * share:.1f} %", "examples/s": rate},
            target=f"<= {100 * _MOST_WAITING:g} %",
            reached=share <= _MOST_WAITING,
            details={"share": share},
        )


def _photographs(n: int) -> data.Dataset:
    """Smooth random pictures with some grain, which compress about as photographs do."""
    from PIL import Image

    rng = np.random.default_rng(0)
    records = []
    for _ in range(n):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3)).astype(np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.float32)
        grain = rng.normal(scale=8, size=smooth.shape)
        file = io.BytesIO()
        pixels = np.clip(smooth + grain, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=85)
        records.append({"image": file.getvalue()})
    return data.Dataset(
        "photographs",
        "train",
        {},
        rng.integers(0, CLASSES, n).astype(np.int32),
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(CLASSES))),
        read=partial(_imagenet.read, records),
    )


def _rate(dataset: data.Dataset, workers: int, batches: int) -> float:
    """Examples per second. As much is being read ahead when the clock stops as when it starts."""
    ahead = 2 + 4 * max(workers, 1)
    rows = np.resize(np.arange(len(dataset)), (ahead + batches + ahead, _BATCH))
    stream = data.stream(dataset, rows, seed=0, workers=workers)
    for _ in range(ahead):
        next(stream)
    start = time.perf_counter()
    for _ in range(batches):
        next(stream)
    seconds = time.perf_counter() - start
    for _ in stream:  # to its end, so that its processes end too
        pass
    return batches * _BATCH / seconds


def _waiting(dataset: data.Dataset, workers: int, steps: int, model: str) -> tuple[float, float]:
    """Share of the time, and examples per second, of steps taken as the runner takes them."""
    rows = np.resize(np.arange(len(dataset)), max(len(dataset), (steps + 2) * _BATCH))
    trainer = make_trainer(
        "cross_entropy", _BATCH, train_set=dataset.take(rows), model=model, workers=workers
    )
    state, key = trainer.init(0), jax.random.key(0)
    chunks = trainer.train.chunks(trainer.train.shuffled(0, 0), 0, steps + 2, seed=0)
    for _ in range(2):  # compiles, and fills what is read ahead
        state, sums = jax.block_until_ready(trainer.advance(state, next(chunks), key))
    start, waited = time.perf_counter(), 0.0
    for _ in range(steps):
        asked = time.perf_counter()
        chunk = next(chunks)
        if _ended(sums):
            waited += time.perf_counter() - asked
        before = sums
        state, sums = trainer.advance(state, chunk, key)
        jax.block_until_ready(before)  # never more than one call ahead
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    return waited / seconds, steps * _BATCH / seconds


def _ended(sums: Any) -> bool:
    return sums.weight.is_ready()
