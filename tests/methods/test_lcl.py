"""Label-aware contrastive training: two networks, one loss, and views of text."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small

from calib_jax import losses, methods, models, train
from calib_jax.methods import _lcl


def _network_and_batch():
    dataset = small.images(6, 0)
    network = train.Network(models.create("mlp", 3, widths=(8,)))
    image = dataset.inputs["image"].astype(np.float32) / 255
    batch = methods.Batch(
        {"image": jnp.asarray(image)},
        jnp.asarray(dataset.labels),
        jnp.arange(6),
        jnp.array([1.0, 1, 1, 1, 1, 0]),
    )
    params = [network.init(jax.random.key(n), {"image": image[:1]})[0] for n in range(2)]
    return network, batch, params


def test_loss_is_its_three_parts() -> None:
    network, batch, (main, helper) = _network_and_batch()
    method = methods.create("lcl", lam=0.25, tau=0.5)
    value, aux = method.loss(network, (main, helper), (), batch, jax.random.key(0))
    logits, helper_logits = (network(p, batch.inputs)[0] for p in (main, helper))
    features, _ = network.features(main, network.embed(main, batch.inputs), batch.inputs)
    # Without dropout the second view is the first.
    labels, weights = np.tile(batch.labels, 2), np.tile(batch.weights, 2)
    # The last row is padding: as if it were not there.
    there = weights > 0
    contrast = np.zeros(12)
    contrast[there] = losses.label_aware_contrastive(
        np.tile(features, (2, 1))[there],
        labels[there],
        np.tile(helper_logits, (2, 1))[there],
        tau=0.5,
    )
    both = sum(losses.cross_entropy(np.tile(z, (2, 1)), labels) for z in (logits, helper_logits))
    expected = np.average(0.25 * both + 0.75 * contrast, weights=weights)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(aux.logits, logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_gradient_reaches_both_networks(lam: float) -> None:
    """By the contrastive loss alone too: the helper's weights are not held fixed."""
    network, batch, params = _network_and_batch()
    method = methods.create("lcl", lam=lam)
    grads = jax.grad(lambda p: method.loss(network, p, (), batch, jax.random.key(0))[0])(
        tuple(params)
    )
    sizes = [[float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(g)] for g in grads]
    assert min(sizes[1]) > 0  # every layer of the helper
    assert max(sizes[0]) > 0
    assert (min(sizes[0]) > 0) == (lam > 0)  # the last layer only sees the cross entropy


def test_trained_saved_and_predicted_with_the_first(tmp_path: pathlib.Path) -> None:
    made = small.trainer("lcl", epochs=2)
    start = made.init(0)
    first, helper = start.params
    assert jax.tree.structure(first) == jax.tree.structure(helper)
    assert not np.array_equal(*(np.asarray(jax.tree.leaves(p)[-1]) for p in (first, helper)))
    small.assert_same(first, small.shared_trainer("cross_entropy").init(0).params)

    whole = small.fit(made, tmp_path / "whole")
    with pytest.raises(train.Stopped):
        small.fit(made, tmp_path / "parts", calls=5)
    small.assert_same(small.fit(made, tmp_path / "parts"), whole)
    for before, after in zip(start.params, whole.params, strict=True):
        moved = [
            np.abs(np.asarray(a) - np.asarray(b)).max()
            for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        ]
        assert min(moved) > 0
    inputs = {"image": made.val.dataset.inputs["image"].astype(np.float32) / 255}
    np.testing.assert_allclose(
        made.predict(whole, made.val),
        made.network(whole.params[0], inputs)[0],
        rtol=1e-5,
        atol=1e-5,
    )


def test_replaced_tokens() -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([9, 6, 12, 3, 12, 10])
    mask = (np.arange(12) < lengths[:, None]).astype(np.int32)
    ids = np.where(mask, 10 + rng.integers(0, 90, mask.shape), 1)
    ids[:, 0], ids[np.arange(6), lengths - 1] = 2, 3  # begin and end
    found = _lcl._replace_tokens(
        jax.random.key(1), {"input_ids": jnp.asarray(ids), "mask": jnp.asarray(mask)}, 0.5
    )
    new = np.asarray(found["input_ids"])
    np.testing.assert_array_equal(found["mask"], mask)
    changed = new != ids
    assert 5 < changed.sum() < 30
    assert not changed[:, 0].any()  # ends stay where they are, and are nowhere else
    np.testing.assert_array_equal(new == 3, ids == 3)
    assert not changed[mask == 0].any()
    for row, column in zip(*np.nonzero(changed), strict=True):
        assert new[row, column] in ids[:, column]
    with pytest.raises(ValueError, match="view='tokens': expected inputs that are text"):
        _lcl._replace_tokens(jax.random.key(1), {"image": jnp.zeros((2, 2))}, 0.5)


def test_options_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="view='synonyms': expected one of dropout, tokens"):
        methods.create("lcl", view="synonyms")
    with pytest.raises(ValueError, match="lam=2: expected 0 to 1"):
        methods.create("lcl", lam=2)
