"""Feeds and the trainer: every way to bring the data gives the same training."""

import jax
import numpy as np
import optax
import pytest

from calib_jax import data, methods, models, train
from calib_jax.train import _loader

DIGITS = {s: data.load("digits", s).take(range(n)) for s, n in (("train", 50), ("val", 30))}
BERT = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 8, "max_position_embeddings": 40}


def _texts(n: int, seed: int) -> data.Dataset:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 33, n)
    mask = (np.arange(32) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(3, 30, (n, 32)).astype(np.int32) * mask
    labels = rng.integers(0, 3, n).astype(np.int32)
    inputs = {"input_ids": ids, "mask": mask}
    return data.Dataset(
        "toy", "train", inputs, labels, np.arange(n, dtype=np.int32), ("a", "b", "c")
    )


def _trainer(method: methods.Method | None = None, **options) -> train.Trainer:
    network = train.Network(
        models.create("mlp", 10, widths=(16,)), DIGITS["train"].mean, DIGITS["train"].std
    )
    setup = train.Setup(**{"batch_size": 16, "epochs": 2} | options)
    return train.Trainer(
        network,
        method or methods.create("cross_entropy"),
        lambda per_epoch, total: optax.sgd(0.1, 0.9),
        DIGITS["train"],
        DIGITS["val"],
        setup,
    )


def _epoch(trainer: train.Trainer, feed: train.Loader | None = None) -> train.TrainState:
    feed = feed or trainer.train
    state, plan = trainer.init(0), feed.shuffled(0, 0)
    for chunk in feed.chunks(plan, 0, feed.steps, seed=0):
        state, _ = trainer.advance(state, chunk, jax.random.key(0))
    return state


def _close(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_a_loop_of_steps_is_the_steps_one_by_one() -> None:
    single, looped = _trainer(steps_per_call=1), _trainer(steps_per_call=3)
    assert looped.train.steps == 4  # so the second chunk is one step of three
    a, b = _epoch(single), _epoch(looped)
    _close(a, b)
    assert int(a.step) == int(b.step) == 4
    assert float(a.metrics.weight) == 50
    assert single.compilations()["train"] == looped.compilations()["train"] == 1


def test_streamed_data_trains_and_predicts_like_resident_data() -> None:
    trainer = _trainer()
    streamed = train.Loader(DIGITS["train"], 16, trainer.mesh, resident_bytes=0)
    assert trainer.train.resident
    assert not streamed.resident
    state = _epoch(trainer)
    _close(state, _epoch(_trainer(), streamed))
    val = train.Loader(DIGITS["val"], 16, trainer.mesh, resident_bytes=0)
    _close(trainer.predict(state, trainer.val), trainer.predict(state, val))


def test_predictions_are_in_the_order_of_the_set_and_complete() -> None:
    trainer = _trainer(eval_batch_size=7)  # 30 = 4 x 7 + 2
    state = _epoch(trainer)
    images = DIGITS["val"].inputs["image"].astype(np.float32) / 255
    network = trainer.network.bind(state.model_state)
    expected = network(state.params, {"image": images})[0]
    np.testing.assert_allclose(trainer.predict(state, trainer.val), expected, rtol=1e-4, atol=1e-5)


def test_text_of_any_length_is_predicted_as_if_alone() -> None:
    train_set, val = _texts(40, 0), _texts(25, 1)
    trainer = train.Trainer(
        train.Network(models.create("bert", 3, **BERT)),
        methods.create("cross_entropy"),
        lambda per_epoch, total: optax.adam(1e-3),
        train_set,
        val,
        train.Setup(batch_size=8, epochs=1),
    )
    assert trainer.train.buckets[-1] == 32
    state = _epoch(trainer)
    logits = np.asarray(trainer.predict(state, trainer.val))
    bound = trainer.network.bind(state.model_state)
    whole = np.asarray(bound(state.params, val.inputs)[0])
    np.testing.assert_allclose(logits, whole, rtol=1e-4, atol=1e-5)
    lengths = set(trainer.train.in_order().lengths.tolist())
    assert trainer.compilations()["train"] <= len(trainer.train.buckets)
    assert len(lengths) > 1

    # Another set needs no programs of its own for the lengths that there have been.
    other = trainer.loader(_texts(61, 2))
    trainer.predict(state, other)
    seen = (set(loader.in_order().lengths.tolist()) for loader in (trainer.val, other))
    assert trainer.compilations()["predict"] == len(set.union(*seen))


def test_pretrained_and_frozen_parts_are_where_training_begins() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    texts = _texts(20, 0)
    texts.inputs.pop("mask")
    module = models.create("text_cnn", 3, vocab_size=30, dim=6, width=8)
    network = train.Network(module, model_state={"frozen": {"vectors": vectors}})

    def trainer(network: train.Network) -> train.Trainer:
        setup = train.Setup(batch_size=10, epochs=1)
        method = methods.create("cross_entropy")
        return train.Trainer(network, method, lambda *_: optax.sgd(0.1), texts, texts, setup)

    first = trainer(network)
    state = _epoch(first)
    np.testing.assert_array_equal(state.model_state["frozen"]["vectors"], vectors)
    shapes = first.abstract_state()
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    given = train.Network(
        module, model_state=network.model_state, pretrained=lambda _: state.params
    )
    _close(trainer(given).init(5).params, state.params)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 15, "accumulate": 2}, "batch_size=15: expected a multiple of 2"),
        ({"eval_batch_size": -1}, "eval_batch_size=-1: expected a multiple of 1"),
    ],
)
def test_batch_sizes_are_checked(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        _trainer(**options)


def test_bytes_become_numbers_between_zero_and_one() -> None:
    trainer = _trainer()
    chunk = next(trainer.train.chunks(trainer.train.in_order(), 0, 1))
    batch = _loader.gather(chunk, 0, trainer.mesh)
    assert batch.inputs["image"].dtype == np.float32
    np.testing.assert_allclose(
        batch.inputs["image"], DIGITS["train"].inputs["image"][:16] / 255, rtol=1e-6
    )
    np.testing.assert_array_equal(batch.labels, DIGITS["train"].labels[:16])
    np.testing.assert_array_equal(batch.position, np.arange(16))


def test_what_a_method_reports_outlives_the_state_it_is_part_of(tmp_path) -> None:
    # A report of the state's own arrays is read after the next step has taken their memory.
    trainer = _trainer(methods.bin_monitor(methods.create("adafocal")))
    log = train.Log(tmp_path / "metrics.jsonl")
    with train.Checkpoints(tmp_path / "checkpoints", best="val/nll") as checkpoints:
        state = train.fit(trainer, 0, checkpoints, log)
    first, last = log.rows()
    np.testing.assert_allclose(last["method/gamma"], state.method_state.method.gamma, rtol=1e-6)
    np.testing.assert_allclose(
        last["method/train_confidence"], state.method_state.before.true, rtol=1e-6
    )
    assert first["method/gamma"] != last["method/gamma"]
