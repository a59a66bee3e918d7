"""Known p(y|x): posteriors and flips against sums written out, labels against their probabilities."""

import math

import numpy as np
import pytest

from calib_jax import data
from calib_jax.data import _known_truth as kt


def test_posterior_of_gaussians_is_bayes_rule() -> None:
    draw = kt.gaussians(np.random.default_rng(0), num_classes=3, dim=2, separation=1.5)
    clean = draw(5, np.random.default_rng(1))
    centers = np.random.default_rng(0).normal(size=(3, 2))
    centers *= 1.5 / np.linalg.norm(centers, axis=1, keepdims=True)
    for x, probs in zip(clean.inputs["features"].astype(float), clean.probs, strict=True):
        density = [math.exp(-((x - c) ** 2).sum() / 2) for c in centers]
        np.testing.assert_allclose(probs, np.array(density) / sum(density), rtol=1e-12)


def test_posterior_of_texts_is_bayes_rule() -> None:
    draw = kt.texts(np.random.default_rng(0), num_classes=2)
    clean = draw(4, np.random.default_rng(1))
    rng = np.random.default_rng(0)
    shared, topics = rng.dirichlet(np.ones(300)), rng.dirichlet(np.ones(300), 2)
    for text, probs in zip(clean.inputs["text"], clean.probs, strict=True):
        likelihood = [
            math.prod(0.3 * shared[w] + 0.7 * t[w] for w in (int(x[4:]) for x in text.split()))
            for t in topics
        ]
        assert 6 <= len(text.split()) <= 20
        np.testing.assert_allclose(probs, np.array(likelihood) / sum(likelihood), rtol=1e-9)


def test_channel_sums_over_the_clean_labels() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 4)
    vectors, reference = rng.normal(size=(4, 5)), rng.normal(size=(50, 5))
    clean = kt.Clean({}, vectors, probs)
    got = kt.flip_channel(clean, reference, 0.2, np.random.default_rng(7))
    projection = np.random.default_rng(7).normal(size=(5, 4))
    z = (vectors @ projection - (reference @ projection).mean(0)) / (reference @ projection).std(0)
    for i in range(4):
        flip = 0.4 / (1 + math.exp(-2 * z[i, 0]))
        u = np.exp(z[i, 1:]) / np.exp(z[i, 1:]).sum()
        for k in range(3):
            stays = probs[i, k] * (1 - flip)
            comes = sum(probs[i, j] * flip * u[k] / (1 - u[j]) for j in range(3) if j != k)
            assert got[i, k] == pytest.approx(stays + comes, rel=1e-12)


@pytest.mark.parametrize("source", ["gaussians", "texts", "digits"])
def test_labels_follow_their_probabilities(source: str) -> None:
    sizes = {} if source == "digits" else {"num_test": 4000}
    test = data.load("known_truth", "test", source=source, noise=0.2, **sizes)
    probs = test.label_probs
    assert probs is not None
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    own = probs[np.arange(len(test)), test.labels]
    # The probability of the drawn label is sum_k p_k^2 on average.
    variance = (probs**3).sum(axis=1) - (probs**2).sum(axis=1) ** 2
    error = np.sqrt(variance.sum()) / len(test)
    assert abs(own.mean() - (probs**2).sum(axis=1).mean()) < 4 * error + 1e-12
    again = data.load("known_truth", "test", source=source, noise=0.2, **sizes)
    assert again.content_hash == test.content_hash
    other = data.load("known_truth", "test", source=source, noise=0.2, seed=1, **sizes)
    assert other.content_hash != test.content_hash


def test_noise_of_digits_is_the_share_of_flips() -> None:
    clean = data.load("digits", "test")
    for noise in (0.0, 0.1, 0.3):
        test = data.load("known_truth", "test", source="digits", noise=noise)
        assert test.label_probs is not None
        kept = test.label_probs[np.arange(len(test)), clean.labels]
        assert abs(1 - kept.mean() - noise) < 0.03
        assert (1 - kept).max() <= 2 * noise + 1e-12
        np.testing.assert_array_equal(test.inputs["image"], clean.inputs["image"])
    np.testing.assert_array_equal(
        data.load("known_truth", "test", source="digits", noise=0.0).labels, clean.labels
    )


def test_splits_share_distribution_but_no_example() -> None:
    train, val = (data.load("known_truth", split) for split in ("train", "val"))
    assert (len(train), len(val)) == (2000, 1000)
    assert not set(train.ids) & set(val.ids)
    assert train.mean == val.mean
    part = train.take([3, 1])
    np.testing.assert_array_equal(part.label_probs, train.label_probs[[3, 1]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.7}, r"noise=0.7: expected a mean probability of 0 to 0.5"),
        ({"source": "gausians"}, r"did you mean 'gaussians'"),
        ({"source": "digits", "num_test": 900}, "num_test=900: expected at most 797"),
        ({"num_classes": 1}, "num_classes=1"),
    ],
)
def test_mistakes(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data.load("known_truth", "test", **options)
