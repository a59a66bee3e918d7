"""Methods are the pure losses they are named after, steered by the validation set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small

from calib_jax import losses, methods, metrics, targets

N, K = 64, 4
RNG = np.random.default_rng(0)
LABELS = jnp.asarray(RNG.integers(0, K, N))
LOGITS = jnp.asarray(3 * RNG.normal(size=(N, K)) + 2 * np.eye(K)[LABELS], jnp.float32)
INFO = methods.Info(N, K)


def _apply(params, inputs, key=None):
    return params * inputs["image"], {"seen": key}


def _loss(name, state=None, weights=None, **options):
    method = methods.create(name, **options)
    batch = methods.Batch(
        {"image": LOGITS}, LABELS, jnp.arange(N), jnp.ones(N) if weights is None else weights
    )
    state = method.init(INFO) if state is None else state
    value, aux = method.loss(_apply, jnp.float32(1), state, batch, jax.random.key(0))
    np.testing.assert_array_equal(aux.logits, LOGITS)
    assert aux.model_state["seen"] is not None
    return float(value)


SMOOTH = targets.smooth(LABELS, K, 0.1, "others")
EXPECTED = {
    "cross_entropy": ({}, lambda: losses.cross_entropy(LOGITS, LABELS).mean()),
    "label_smoothing": ({"smoothing": 0.1}, lambda: losses.cross_entropy(LOGITS, SMOOTH).mean()),
    "brier": ({}, lambda: losses.brier(LOGITS, LABELS).mean()),
    "mmce": (
        {"weight": 3.0},
        lambda: (
            losses.cross_entropy(LOGITS, LABELS).mean() + 3 * losses.mmce_weighted(LOGITS, LABELS)
        ),
    ),
    "focal": ({"gamma": 2.0}, lambda: losses.focal(LOGITS, LABELS, 2.0).mean()),
    "flsd53": ({}, lambda: losses.flsd53(LOGITS, LABELS).mean()),
    # Nothing is known of the validation set yet: gamma is 1 everywhere.
    "calfocal": ({"lam": 5.0}, lambda: losses.focal(LOGITS, LABELS, 1.0).mean()),
    "adafocal": ({}, lambda: losses.focal(LOGITS, LABELS, 1.0).mean()),
    "dual_focal": ({"gamma": 2.0}, lambda: losses.dual_focal(LOGITS, LABELS, 2.0).mean()),
    "mdca": (
        {"weight": 3.0},
        lambda: losses.cross_entropy(LOGITS, LABELS).mean() + 3 * losses.mdca(LOGITS, LABELS),
    ),
    "mbls": (
        {"weight": 0.5, "margin": 2.0},
        lambda: (
            losses.cross_entropy(LOGITS, LABELS).mean()
            + 0.5 * losses.mbls(LOGITS, LABELS, margin=2.0)
        ),
    ),
    "bsce_gra": ({}, lambda: losses.bsce_gra(LOGITS, LABELS).mean()),
    "logit_norm": ({"tau": 0.5}, lambda: losses.logit_norm(LOGITS, LABELS, tau=0.5).mean()),
}


def test_every_method_is_tested() -> None:
    elsewhere = {"mixup", "aum_mixup", "sim_mixup", "ea_mixup", "sd", "csd", "lcl"}
    elsewhere |= {"randaug", "augmix", "augmix_jsd", "adversarial", "ccat"}
    elsewhere |= {f"{name}_autolabel" for name in ("randaug", "augmix", "adversarial", "mixup")}
    assert set(EXPECTED) | elsewhere == set(methods.NAMES)


@pytest.mark.parametrize("name", EXPECTED)
def test_loss_is_the_mean_of_the_named_loss(name: str) -> None:
    options, expected = EXPECTED[name]
    assert _loss(name, **options) == pytest.approx(float(expected()), rel=1e-5)


@pytest.mark.parametrize("name", EXPECTED)
def test_options_are_what_create_takes(name: str) -> None:
    options = methods.options(name)
    assert _loss(name, **options) == pytest.approx(_loss(name), rel=1e-6)


def test_adafocal_learns_from_the_validation_set_and_reports_it() -> None:
    method = methods.create("adafocal", lam=2.0, num_bins=5)
    state = method.init(INFO)
    after = method.after_epoch(state, small.Evaluator(LOGITS, LABELS), jax.random.key(0))
    confidence, correct = metrics.top_label(LOGITS, LABELS)
    expected = losses.adafocal_update(state, confidence, correct, lam=2.0)
    for a, b in zip(after, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert not np.allclose(after.gamma, state.gamma)
    shown = method.report(after, LOGITS, LABELS)
    np.testing.assert_array_equal(shown["gamma"], after.gamma)
    # gamma began at 1 and has moved by exp(lam * gap), or changed sides at the switch.
    moved = np.abs(np.asarray(after.gamma)) > 0.2
    np.testing.assert_allclose(
        np.log(after.gamma[moved]), 2 * shown["gap"][moved], rtol=1e-4, atol=1e-5
    )
    value = _loss("adafocal", state=after, lam=2.0, num_bins=5)
    assert value == pytest.approx(float(losses.adafocal(LOGITS, LABELS, after).mean()), rel=1e-5)


@pytest.mark.parametrize("per_sample", [False, True])
def test_calfocal_uses_the_latest_validation_bins(per_sample: bool) -> None:
    options = {"lam": 3.0, "per_sample": per_sample, "num_bins": 6}
    method = methods.create("calfocal", **options)
    after = method.after_epoch(
        method.init(INFO), small.Evaluator(LOGITS, LABELS), jax.random.key(0)
    )
    confidence, correct = metrics.top_label(LOGITS, LABELS)
    bins = metrics.bin_stats(confidence, correct, num_bins=6, scheme="mass")
    expected = losses.calfocal(LOGITS, LABELS, bins, lam=3.0, per_sample=per_sample).mean()
    assert _loss("calfocal", state=after, **options) == pytest.approx(float(expected), rel=1e-5)
    assert set(method.report(after, LOGITS, LABELS)) == {"gap", "edges"}


def test_stateless_methods_report_nothing() -> None:
    method = methods.create("brier")
    assert method.init(INFO) == ()
    assert method.report((), LOGITS, LABELS) == {}


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(
        ValueError, match=r"method=.adafocl.: expected one of .*did you mean .adafocal"
    ):
        methods.create("adafocl")


def test_label_smoothing_of_adafocal_keeps_adafocals_state() -> None:
    method = methods.create("label_smoothing", smoothing=0.1, objective="adafocal")
    after = method.after_epoch(
        method.init(INFO), small.Evaluator(LOGITS, LABELS), jax.random.key(0)
    )
    expected = float(losses.adafocal(LOGITS, SMOOTH, after).mean())
    value = _loss("label_smoothing", state=after, smoothing=0.1, objective="adafocal")
    assert value == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="objective='adafocl': expected one of"):
        methods.create("label_smoothing", objective="adafocl")


class _Affine:
    """A network of three cuts whose numbers can be followed by hand."""

    def embed(self, params, inputs, key):
        return inputs["image"]

    def features(self, params, x, inputs, key):
        return jnp.square(x), {"mask": inputs.get("mask")}

    def head(self, params, x, key):
        return params * x


@pytest.mark.parametrize("place", ["inputs", "features"])
@pytest.mark.parametrize("each", ["step", "example"])
@pytest.mark.parametrize("objective", ["cross_entropy", "adafocal"])
def test_mixup_mixes_inputs_or_features_and_labels_alike(
    place: str, each: str, objective: str
) -> None:
    method = methods.create("mixup", alpha=0.4, place=place, lam=each, objective=objective)
    mask = jnp.tril(jnp.ones((N, N), jnp.int32))
    batch = methods.Batch({"image": LOGITS, "mask": mask}, LABELS, jnp.arange(N), jnp.ones(N))
    key = jax.random.key(7)
    value, aux = method.loss(_Affine(), jnp.float32(1), method.init(INFO), batch, key)
    keys = jax.random.split(key, 5)
    lam = np.asarray(jax.random.beta(keys[0], 0.4, 0.4, (N,) if each == "example" else ()))
    lam = lam.reshape(-1, 1)
    partner = np.asarray(jax.random.permutation(keys[1], N))
    assert np.ptp(lam) > 0.5 if each == "example" else 0.01 < lam < 0.99
    x = np.asarray(LOGITS)
    if place == "inputs":
        logits = (lam * x + (1 - lam) * x[partner]) ** 2
        np.testing.assert_array_equal(aux.model_state["mask"], np.maximum(mask, mask[partner]))
    else:
        logits = lam * x**2 + (1 - lam) * x[partner] ** 2
        np.testing.assert_array_equal(aux.model_state["mask"], mask)
    np.testing.assert_allclose(aux.logits, logits, rtol=1e-5)
    y = np.eye(K)[np.asarray(LABELS)]
    soft = jnp.asarray(lam * y + (1 - lam) * y[partner], jnp.float32)
    per_example = {
        "cross_entropy": losses.cross_entropy(logits, soft),
        "adafocal": losses.adafocal(logits, soft, losses.adafocal_init()),
    }
    assert float(value) == pytest.approx(float(per_example[objective].mean()), rel=1e-4)
    with pytest.raises(ValueError, match="place='logits': expected one of inputs, features"):
        methods.create("mixup", place="logits")
    with pytest.raises(ValueError, match="lam='batch': expected one of step, example"):
        methods.create("mixup", lam="batch")


def test_watching_logs_training_confidence_by_validation_bin_and_changes_nothing() -> None:
    plain = methods.create("adafocal", num_bins=5)
    method = methods.bin_monitor(plain, num_bins=5)
    batch = methods.Batch({"image": LOGITS}, LABELS, jnp.arange(N), jnp.ones(N).at[:4].set(0))
    state = method.init(INFO)
    value, aux = method.loss(_apply, jnp.float32(1), state, batch, jax.random.key(0))
    same, _ = plain.loss(_apply, jnp.float32(1), plain.init(INFO), batch, jax.random.key(0))
    assert float(value) == float(same)

    first = method.after_epoch(state, small.Evaluator(LOGITS, LABELS), jax.random.key(0))
    stepped = jax.jit(method.after_step)(first, batch, aux)
    stepped = method.after_step(stepped, batch, aux)
    after = method.after_epoch(stepped, small.Evaluator(LOGITS, LABELS), jax.random.key(0))
    shown = method.report(after, LOGITS, LABELS)

    probs = np.exp(np.asarray(LOGITS, np.float64))
    probs /= probs.sum(1, keepdims=True)
    p = probs[np.arange(N), LABELS][4:]
    bins = np.searchsorted(np.asarray(first.edges), p, side="right")
    expected = [p[bins == b].mean() if (bins == b).any() else 0.0 for b in range(5)]
    np.testing.assert_allclose(shown["train_confidence"], expected, rtol=1e-5)
    np.testing.assert_allclose(
        shown["val_confidence"] - shown["val_accuracy"], shown["gap"], atol=1e-6
    )
    np.testing.assert_array_equal(after.confidence, 0)
    # The same of the predicted class, by its own probability.
    top = probs.max(1)[4:]
    bins = np.searchsorted(np.asarray(first.edges), top, side="right")
    expected = [top[bins == b].mean() if (bins == b).any() else 0.0 for b in range(5)]
    np.testing.assert_allclose(shown["train_top_confidence"], expected, rtol=1e-5)
    # Bins of equal training mass: by rank, each example once, however often it was met.
    ascending = np.sort(p)
    ranks = np.arange(len(p)) * 5 // len(p)
    expected = [ascending[ranks == b].mean() for b in range(5)]
    np.testing.assert_allclose(shown["train_own_confidence"], expected, rtol=1e-5)
    ends = [(ascending[ranks == b].max(), ascending[ranks == b + 1].min()) for b in range(4)]
    np.testing.assert_allclose(shown["train_own_edges"], np.mean(ends, axis=1), rtol=1e-5)
    # An epoch in which nothing was seen has nothing of the one before.
    again = method.after_epoch(after, small.Evaluator(LOGITS, LABELS), jax.random.key(0))
    np.testing.assert_array_equal(again.before.own, 0)
    direct = plain.after_epoch(plain.init(INFO), small.Evaluator(LOGITS, LABELS), jax.random.key(0))
    np.testing.assert_array_equal(first.method.gamma, direct.gamma)


def test_the_monitor_has_bins_of_its_own_whatever_the_method_has() -> None:
    """Appendix H: a method with 4 bins, watched by 15 as every other."""
    plain = methods.create("adafocal", num_bins=4)
    method = methods.bin_monitor(plain)
    evaluator = small.Evaluator(LOGITS, LABELS)
    after = method.after_epoch(method.init(INFO), evaluator, jax.random.key(0))
    shown = method.report(after, LOGITS, LABELS)
    own = plain.report(after.method, LOGITS, LABELS)
    for key in ("gamma", "edges", "gap"):
        np.testing.assert_array_equal(shown[key], own[key])
    assert {key: len(shown[key]) for key in ("gamma", "gap", "edges")} == {
        "gamma": 4, "gap": 4, "edges": 3,
    }  # fmt: skip
    confidence, correct = metrics.top_label(LOGITS, LABELS)
    bins = metrics.bin_stats(confidence, correct, num_bins=15, scheme="mass")
    np.testing.assert_allclose(shown["val_edges"], bins.edges[1:-1], rtol=1e-6)
    np.testing.assert_allclose(shown["val_gap"], bins.gap, atol=1e-6)
    assert len(shown["val_confidence"]) == len(shown["train_confidence"]) == 15
