"""Core-hours that the papers' trainings would take on this CPU: `python -m benchmarks.hours`.

Measures the CPU time of a training step (forward, backward, update) of every network of the papers'
configs on a few random examples and multiplies by examples and epochs. The time of an example is
taken to be the same in a larger batch. CPU time, not wall time: other programs on the machine hardly
change it. Prints the Markdown table of docs/papers.md.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax import losses, models


class Training(NamedTuple):
    """One training of a paper.

    Attributes:
      title: as docs/papers.md calls it.
      model: name of the network.
      num_classes: of the data set.
      shape: of an image, or the number of tokens of a text.
      batch: examples that are timed together.
      examples: of the training set.
      epochs: of the training.
    """

    title: str
    model: str
    num_classes: int
    shape: tuple[int, ...]
    batch: int
    examples: int
    epochs: int


TRAININGS = (
    Training("CIFAR-10 x ResNet-50", "resnet50", 10, (32, 32, 3), 16, 45_000, 350),
    Training("CIFAR-10 x ResNet-110", "resnet110", 10, (32, 32, 3), 16, 45_000, 350),
    Training("CIFAR-10 x WRN-26-10", "wide_resnet_26_10", 10, (32, 32, 3), 8, 45_000, 350),
    Training("CIFAR-10 x DenseNet-121", "densenet121", 10, (32, 32, 3), 16, 45_000, 350),
    Training("Tiny-ImageNet x ResNet-50", "resnet50_tiny", 200, (64, 64, 3), 8, 90_000, 100),
    Training("ImageNet x ResNet-50", "resnet50_imagenet", 1000, (224, 224, 3), 4, 1_231_167, 90),
    Training("CIFAR-100 x WRN-28-10", "wide_resnet_28_10", 100, (32, 32, 3), 8, 45_000, 200),
    Training("20 Newsgroups x CNN", "text_cnn", 20, (1000,), 16, 14_177, 22),
    Training("20 Newsgroups x BERT", "bert", 20, (256,), 4, 14_177, 10),
    Training("SNLI x BERT", "bert", 3, (32,), 16, 549_368, 3),
    Training("QQP x BERT", "bert", 2, (32,), 16, 363_871, 3),
    Training("SWAG x BERT, four endings", "bert", 2, (4 * 40,), 4, 73_547, 3),
    Training("GoEmotions x RoBERTa", "roberta", 6, (24,), 16, 27_963, 3),
    Training("EmpatheticDialogues x RoBERTa", "roberta", 8, (32,), 16, 19_533, 3),
    Training("ISEAR x RoBERTa", "roberta", 6, (32,), 16, 3_837, 3),
)


def seconds_per_example(training: Training) -> float:
    """Return the least CPU time of three training steps, divided by the number of examples."""
    rng = np.random.default_rng(0)
    labels = rng.integers(training.num_classes, size=training.batch)
    inputs: tuple[np.ndarray, ...]
    if len(training.shape) == 3:
        inputs = (rng.normal(size=(training.batch, *training.shape)).astype(np.float32),)
    else:
        tokens = rng.integers(5, 20_000, (training.batch, *training.shape), dtype=np.int32)
        inputs = (tokens,) if training.model == "text_cnn" else (tokens, np.ones_like(tokens))
    module = models.create(training.model, training.num_classes)
    variables = dict(jax.jit(module.init)(jax.random.key(0), *inputs))
    params = variables.pop("params")
    optimizer = optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def step(params: Any, moments: Any, variables: Any, key: jax.Array) -> tuple[Any, Any]:
        def loss(params: Any) -> jax.Array:
            logits, _ = module.apply(
                {"params": params, **variables},
                *inputs,
                train=True,
                rngs={"dropout": key},
                mutable=["batch_stats"],
            )
            return jnp.mean(losses.cross_entropy(logits, labels))

        updates, moments = optimizer.update(jax.grad(loss)(params), moments)
        return optax.apply_updates(params, updates), moments

    state = params, optimizer.init(params)
    times = []
    for turn in range(4):
        start = time.process_time()
        state = jax.block_until_ready(step(*state, variables, jax.random.key(turn)))
        times.append(time.process_time() - start)
    return min(times[1:]) / training.batch  # the first one compiles


def _two_digits(hours: float) -> str:
    return f"{float(f'{hours:.2g}'):,g}"


def main() -> None:
    print("| training | CPU ms per example | examples x epochs | core-hours of one training |")
    print("|---|---:|---:|---:|")
    for training in TRAININGS:
        seconds = seconds_per_example(training)
        hours = seconds * training.examples * training.epochs / 3600
        size = f"{training.examples:,} x {training.epochs}"
        print(
            f"| {training.title} | {1000 * seconds:.3g} | {size} | {_two_digits(hours)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
