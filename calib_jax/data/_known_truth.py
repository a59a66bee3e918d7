"""Data sets with a known label distribution p(y|x): Gaussians, texts, images with flipped labels."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calib_jax._hints import check_choice
from calib_jax.data._cifar import cifar10
from calib_jax.data._dataset import Dataset
from calib_jax.data._digits import digits

_SYNTHETIC = {"train": 2000, "val": 1000, "test": 20_000}  # default sizes
_SPLITS = tuple(_SYNTHETIC)
_FIRST_ID = 500_000_000  # between the ids of two splits
# Streams of random numbers besides those of the splits.
_DISTRIBUTION, _REFERENCE, _CHANNEL = 3, 4, 5
_NUM_REFERENCE = 4096
_WORDS, _TOPIC_SHARE, _LENGTHS = 300, 0.7, (6, 20)


class Clean(NamedTuple):
    """Examples before their labels are flipped.

    Attributes:
      inputs: Inputs as in `Dataset`.
      vectors: Numbers that the flips depend on `[n, size]`.
      probs: Distribution of the label before it is flipped, float64 `[n, num_classes]`.
    """

    inputs: dict[str, np.ndarray]
    vectors: np.ndarray
    probs: np.ndarray


Draw = Callable[[int, np.random.Generator], Clean]


def known_truth(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    source: str = "gaussians",
    noise: float = 0.1,
    seed: int = 0,
    num_train: int = 0,
    num_val: int = 0,
    num_test: int = 0,
    num_classes: int = 5,
    dim: int = 20,
    separation: float = 2.5,
) -> Dataset:
    """Draw labels of known probability: Gaussians, texts, or digits and CIFAR-10 with flipped labels.

    The distribution p(y|x) of each label is kept in `label_probs`. The label of an example is drawn from
    its source: the class of a Gaussian or topic with its exact posterior probabilities, or the class of
    a real image, taken as certain. Then it is flipped with a probability e(x) of 0 to `2 noise`, `noise`
    on average, to class k with probability proportional to u_k(x): e and u are smooth functions of a
    random projection of the example. All splits, validation and test included, have labels drawn so.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder, for `source='cifar10'`.
      source: `'gaussians'`: equally likely normal distributions with identity covariance around random
        points; `'texts'`: 6 to 20 words, 70 % of them from the topic's distribution of words
        and the others from one that all share; `'digits'` or `'cifar10'`: real images.
      noise: Mean probability of a flip, 0 to 0.5.
      seed: Seed of distribution, flips and examples.
      num_train: Number of training examples; 0 for 2,000, or all images.
      num_val: Number of validation examples; 0 for 1,000, or all images.
      num_test: Number of test examples; 0 for 20,000, or all images.
      num_classes: Number of Gaussians or topics.
      dim: Number of features of the Gaussians.
      separation: Distance of the Gaussians' centers from the origin.
    """
    check_choice("source", source, ("gaussians", "texts", "digits", "cifar10"))
    if not 0 <= noise <= 0.5:
        raise ValueError(f"noise={noise}: expected a mean probability of 0 to 0.5")
    number = {"train": num_train, "val": num_val, "test": num_test}[split]
    if min(number, num_classes - 2, dim - 1) < 0:
        raise ValueError(
            f"num_{split}={number}, num_classes={num_classes}, dim={dim}: expected at least 0, 2 and 1"
        )
    position = _SPLITS.index(split)
    rng = np.random.default_rng([seed, position])
    if source in ("digits", "cifar10"):
        return _noisy_images(source, split, data_dir, noise, seed, number, rng)
    distribution = np.random.default_rng([seed, _DISTRIBUTION])
    if source == "gaussians":
        draw = gaussians(distribution, num_classes, dim, separation)
    else:
        draw = texts(distribution, num_classes)
    number = number or _SYNTHETIC[split]
    clean = draw(number, rng)
    reference = draw(_NUM_REFERENCE, np.random.default_rng([seed, _REFERENCE])).vectors
    probs = flip_channel(clean, reference, noise, np.random.default_rng([seed, _CHANNEL]))
    mean = std = None
    if source == "gaussians":
        mean, std = (tuple(map(float, f(reference, axis=0))) for f in (np.mean, np.std))
    return Dataset(
        name="known_truth",
        split=split,
        inputs=clean.inputs,
        labels=draw_labels(probs, rng),
        ids=(np.arange(number) + position * _FIRST_ID).astype(np.int32),
        label_names=tuple(map(str, range(num_classes))),
        mean=mean,
        std=std,
        label_probs=probs,
    )


def _noisy_images(
    source: str,
    split: str,
    data_dir: pathlib.Path | None,
    noise: float,
    seed: int,
    number: int,
    rng: np.random.Generator,
) -> Dataset:
    read = digits if source == "digits" else cifar10
    images, training = read(split, data_dir), read("train", data_dir)
    if number > len(images):
        raise ValueError(f"num_{split}={number}: expected at most {len(images)}, all of {source}")
    images = images.take(range(number or len(images)))
    certain = np.eye(images.num_classes)[images.labels]
    clean = Clean(images.inputs, _pixels(images), certain)
    channel = np.random.default_rng([seed, _CHANNEL])
    probs = flip_channel(clean, _pixels(training), noise, channel)
    return dataclasses.replace(
        images, name="known_truth", labels=draw_labels(probs, rng), label_probs=probs
    )


def _pixels(images: Dataset) -> np.ndarray:
    return images.inputs["image"].reshape(len(images), -1) / 255.0


def gaussians(rng: np.random.Generator, num_classes: int, dim: int, separation: float) -> Draw:
    """Return a function that draws from equally likely Gaussians around random centers.

    Args:
      rng: Source of the centers.
      num_classes: Number of Gaussians.
      dim: Number of features.
      separation: Distance of the centers from the origin.

    >>> draw = gaussians(np.random.default_rng(0), num_classes=3, dim=2, separation=2.0)
    >>> draw(4, np.random.default_rng(1)).probs.shape
    (4, 3)
    """
    centers = rng.normal(size=(num_classes, dim))
    centers *= separation / np.linalg.norm(centers, axis=1, keepdims=True)

    def draw(n: int, rng: np.random.Generator) -> Clean:
        drawn = centers[rng.integers(num_classes, size=n)] + rng.normal(size=(n, dim))
        features = drawn.astype(np.float32)
        # Of the rounded features, which are what a network sees.
        x = features.astype(np.float64)
        log_density = x @ centers.T - np.square(centers).sum(axis=1) / 2
        return Clean({"features": features}, x, _softmax(log_density))

    return draw


def texts(rng: np.random.Generator, num_classes: int) -> Draw:
    """Return a function that draws texts, each of words from its topic and from a shared distribution.

    Args:
      rng: Source of the distributions of words.
      num_classes: Number of topics, equally likely.

    >>> draw = texts(np.random.default_rng(0), num_classes=3)
    >>> draw(2, np.random.default_rng(1)).inputs["text"].shape
    (2,)
    """
    shared, topics = rng.dirichlet(np.ones(_WORDS)), rng.dirichlet(np.ones(_WORDS), num_classes)
    probs = (1 - _TOPIC_SHARE) * shared + _TOPIC_SHARE * topics
    vocabulary = np.array([f"word{i}" for i in range(_WORDS)], object)

    def draw(n: int, rng: np.random.Generator) -> Clean:
        topic = rng.integers(num_classes, size=n)
        lengths = rng.integers(_LENGTHS[0], _LENGTHS[1] + 1, size=n)
        cumulative = probs.cumsum(axis=1)
        counts, written = np.zeros((n, _WORDS)), np.empty(n, object)
        for i, (k, length) in enumerate(zip(topic, lengths, strict=True)):
            words = np.searchsorted(cumulative[k], rng.random(length)).clip(max=_WORDS - 1)
            np.add.at(counts[i], words, 1)
            written[i] = " ".join(vocabulary[words])
        share = counts / lengths[:, None]
        return Clean({"text": written}, share, _softmax(counts @ np.log(probs).T))

    return draw


def flip_channel(
    clean: Clean, reference: np.ndarray, noise: float, rng: np.random.Generator
) -> np.ndarray:
    """Return p(y|x) after flips whose probability and target depend on the example.

    Args:
      clean: Examples.
      reference: Vectors whose projections are standardized to mean 0 and variance 1 `[m, size]`.
      noise: Mean probability of a flip.
      rng: Source of the projection.

    Returns:
      Float64 `[n, num_classes]`.
    """
    num_classes = clean.probs.shape[1]
    projection = rng.normal(size=(clean.vectors.shape[1], num_classes + 1))
    projected = reference @ projection
    z = (clean.vectors @ projection - projected.mean(axis=0)) / projected.std(axis=0)
    flipped = 2 * noise / (1 + np.exp(-2 * z[:, :1]))
    target = _softmax(z[:, 1:])
    # A label j becomes k != j with probability e u_k / (1 - u_j).
    source = clean.probs / (1 - target)
    arriving = target * (source.sum(axis=1, keepdims=True) - source)
    return (1 - flipped) * clean.probs + flipped * arriving


def draw_labels(probs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a label for each row of probabilities, int32 `[n]`.

    >>> draw_labels(np.array([[0.0, 1.0], [1.0, 0.0]]), np.random.default_rng(0)).tolist()
    [1, 0]
    """
    below = probs.cumsum(axis=1)[:, :-1] <= rng.random((len(probs), 1))
    return below.sum(axis=1).astype(np.int32)


def _softmax(scores: np.ndarray) -> np.ndarray:
    exp = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)
