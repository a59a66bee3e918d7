"""Training on augmented images with the labels of the originals, and CCAT's fading ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import augment, losses, methods, targets

N, K = 24, 4
RNG = np.random.default_rng(0)
LABELS = jnp.asarray(RNG.integers(0, K, N))
IMAGES = jnp.asarray(RNG.integers(20, 230, (N, 6, 6, 1)) / 255, jnp.float32)
BATCH = methods.Batch({"image": IMAGES}, LABELS, jnp.arange(N), jnp.ones(N))
INFO = methods.Info(N, K)
KEY = jax.random.key(0)
WEIGHT = jnp.asarray(RNG.normal(size=(36, K)), jnp.float32)


def _apply(params, inputs, key=None):
    """A linear network that hands out the images it saw."""
    images = inputs["image"]
    return params * images.reshape(len(images), -1) @ WEIGHT, {"images": images, "key": key}


def _loss(name: str, **options):
    method = methods.create(name, **options)
    run = jax.jit(lambda key: method.loss(_apply, jnp.float32(1), method.init(INFO), BATCH, key))
    value, aux = run(KEY)
    assert aux.model_state["key"] is not None, "in training mode"
    return float(value), aux


@pytest.mark.parametrize("objective", ["cross_entropy", "label_smoothing"])
@pytest.mark.parametrize("name", ["randaug", "augmix", "adversarial"])
def test_augmented_images_keep_their_labels(name: str, objective: str) -> None:
    options = {"eps": 0.05, "steps": 2} if name == "adversarial" else {}
    value, aux = _loss(name, objective=objective, **options)
    seen = aux.model_state["images"]
    changed = np.abs(np.asarray(seen) - IMAGES).max((1, 2, 3))
    assert (changed > 0).mean() > 0.7
    y = LABELS if objective == "cross_entropy" else targets.smooth(LABELS, K, 0.05)
    logits = _apply(1.0, {"image": seen})[0]
    assert value == pytest.approx(float(losses.cross_entropy(logits, y).mean()), rel=1e-4)


@pytest.mark.parametrize("name", ["randaug", "augmix", "adversarial"])
def test_labels_may_be_smoothed_over_all_classes(name: str) -> None:
    options = {"eps": 0.05, "steps": 2} if name == "adversarial" else {}
    value, aux = _loss(name, smoothing=0.2, **options)
    logits = np.asarray(_apply(1.0, {"image": aux.model_state["images"]})[0], np.float64)
    soft = 0.8 * np.eye(K)[LABELS] + 0.2 / K
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert value == pytest.approx(-(soft * log_p).sum(-1).mean(), rel=1e-4)
    with pytest.raises(ValueError, match="smoothing=2: expected 0 to 1"):
        methods.create(name, smoothing=2)


def test_adversarial_training_goes_to_the_radius_or_to_many() -> None:
    before = float(losses.cross_entropy(_apply(1.0, BATCH.inputs)[0], LABELS).mean())
    value, aux = _loss("adversarial", eps=0.05, steps=3)
    away = np.abs(np.asarray(aux.model_state["images"]) - IMAGES).max((1, 2, 3))
    np.testing.assert_allclose(away, 0.05, atol=1e-6)
    some, aux = _loss("adversarial", eps=0.05, steps=3, multiple=True)
    away = np.abs(np.asarray(aux.model_state["images"]) - IMAGES).max((1, 2, 3))
    assert 0 < away.min() < 0.015
    assert 0.035 < away.max() <= 0.05 + 1e-6
    assert before < some < value


def test_ccat_has_a_clean_half_and_labels_that_fade() -> None:
    value, aux = _loss("ccat", eps=0.05, steps=3, rho=2.0)
    seen = aux.model_state["images"]
    away = jnp.abs(seen - IMAGES).max((1, 2, 3))
    np.testing.assert_array_equal(away[::2], 0)
    assert float(away[1::2].min()) > 0
    logits = _apply(1.0, {"image": seen})[0]
    g = (1 - np.minimum(1, away / 0.05)) ** 2
    soft = g[:, None] * np.eye(K)[LABELS] + (1 - g[:, None]) / K
    expected = losses.cross_entropy(logits, jnp.asarray(soft, jnp.float32)).mean()
    assert value == pytest.approx(float(expected), rel=1e-4)
    np.testing.assert_allclose(soft[::2], np.eye(K)[LABELS[::2]])


def test_ccat_may_be_uniform_at_each_examples_own_radius() -> None:
    value, aux = _loss("ccat", eps=0.05, steps=3, rho=2.0, own_radius=True)
    seen = aux.model_state["images"]
    away = np.asarray(jnp.abs(seen - IMAGES).max((1, 2, 3)))
    # The radii as drawn; what the attack reaches of them is all but a rounding.
    radii = np.full(N, 0.05)
    radii[1::2] = 0.05 * (1 - jax.random.uniform(jax.random.split(KEY, 3)[0], (N // 2,)))
    assert (away <= radii + 1e-6).all()
    assert radii[1::2].min() < 0.01
    g = (1 - np.minimum(1, away / radii)) ** 2
    soft = g[:, None] * np.eye(K)[LABELS] + (1 - g[:, None]) / K
    np.testing.assert_allclose(soft[1::2], 1 / K, atol=1e-3)
    expected = losses.cross_entropy(
        _apply(1.0, {"image": seen})[0], jnp.asarray(soft, jnp.float32)
    ).mean()
    assert value == pytest.approx(float(expected), rel=1e-4)
    assert value != pytest.approx(_loss("ccat", eps=0.05, steps=3, rho=2.0)[0], rel=1e-3)


def test_no_gradient_goes_through_the_attack() -> None:
    method = methods.create("adversarial", eps=0.05, steps=2)

    def value(params):
        return method.loss(_apply, params, (), BATCH, KEY)[0]

    _, aux = _loss("adversarial", eps=0.05, steps=2)
    seen = jax.lax.stop_gradient(aux.model_state["images"])

    def at_these(params):
        return losses.cross_entropy(_apply(params, {"image": seen})[0], LABELS).mean()

    found, expected = (float(jax.jit(jax.grad(f))(jnp.float32(1))) for f in (value, at_these))
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_original_augmix_wants_three_views_to_agree() -> None:
    value, aux = _loss("augmix_jsd", weight=5.0)
    views = aux.model_state["images"].reshape(N, 3, 6, 6, 1)
    np.testing.assert_array_equal(views[:, 0], IMAGES)
    keys = jax.random.split(KEY, 3)
    original = jax.jit(lambda key: augment.augmix(key, IMAGES, magnitude=3.0, chains=3))
    made = original(keys[0])
    np.testing.assert_allclose(views[:, 1], made, atol=1e-5)
    logits = _apply(1.0, {"image": aux.model_state["images"]})[0].reshape(N, 3, K)
    probs = np.asarray(jax.nn.softmax(logits), np.float64)
    mean = probs.mean(1, keepdims=True)
    divergence = (probs * np.log(probs / mean)).sum(-1).mean(1)
    np.testing.assert_allclose(losses.jensen_shannon(logits), divergence, atol=1e-5)
    clean = losses.cross_entropy(logits[:, 0], LABELS).mean()
    assert value == pytest.approx(float(clean) + 5 * divergence.mean(), rel=1e-4)
    np.testing.assert_allclose(aux.logits, logits[:, 0], rtol=1e-5)


def test_jensen_shannon_at_its_ends() -> None:
    same = jnp.asarray([[[1.0, 2.0, 3.0]] * 3])
    np.testing.assert_allclose(losses.jensen_shannon(same), 0, atol=1e-6)
    apart = 1e4 * jnp.eye(3)[None]
    np.testing.assert_allclose(losses.jensen_shannon(apart), np.log(3), rtol=1e-6)
    slope = jax.grad(lambda x: losses.jensen_shannon(x).sum())(apart)
    assert np.isfinite(slope).all()
    with pytest.raises(ValueError, match=r"expected \[batch, views, num_classes\]"):
        losses.jensen_shannon(jnp.ones((2, 3)))
