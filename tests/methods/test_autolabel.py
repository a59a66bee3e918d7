"""AutoLabel: buckets at their edges, targets and updates by hand, and whole trainings that resume."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small

from calib_jax import losses, methods, metrics, targets, train
from calib_jax.methods import _augmentations

N, K = 60, 4
RNG = np.random.default_rng(0)
LABELS = jnp.asarray(RNG.integers(0, K, N))
IMAGES = jnp.asarray(RNG.integers(0, 256, (N, 6, 6, 1)) / 255, jnp.float32)
BATCH = methods.Batch({"image": IMAGES}, LABELS, jnp.arange(N), jnp.ones(N))
INFO = methods.Info(N, K)
KEY = jax.random.key(0)
WEIGHT = jnp.asarray(RNG.normal(size=(36, K)), jnp.float32)


def _apply(params, inputs, key=None):
    return params * inputs["image"].reshape(len(inputs["image"]), -1) @ WEIGHT, {}


def _sums(measure, arguments, limit):
    run = jax.jit(lambda argument: measure(_apply, jnp.float32(1), BATCH, argument))
    number = len(arguments[0])
    each = [run(jax.tree.map(lambda x, i=i: x[i], arguments)) for i in range(number)]
    return jax.tree.map(lambda *x: jnp.stack(x), *each)


# The validation set is the batch.
EVALUATOR = small.Evaluator(_apply(1.0, BATCH.inputs)[0], LABELS, _sums)


AUGMENTATIONS = {
    "randaug": _augmentations.randaug(3, "rotate, solarize,equalize"),
    "augmix": _augmentations.augmix(3.0, 5),
    "adversarial": _augmentations.adversarial(0.03, 2, 10),
    "mixup": _augmentations.mixup(1.0, 5),
}


@functools.cache
def _change(name: str):
    made = AUGMENTATIONS[name]
    return jax.jit(lambda drawn, key: made.change(_apply, jnp.float32(1), BATCH, drawn, key))


def test_buckets_at_their_edges() -> None:
    found = _augmentations.bucket_of(
        jnp.asarray([0.0, 1e-6, 0.2, 0.2001, 0.4, 0.6, 0.8, 0.8001, 1.0]), 5
    )
    np.testing.assert_array_equal(found, [0, 0, 0, 1, 1, 2, 3, 4, 4])
    ten = _augmentations.bucket_of(jnp.arange(11) / 10, 10)
    np.testing.assert_array_equal(ten, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_what_is_drawn_in_a_bucket_is_in_it_and_training_fills_all(name: str) -> None:
    made = AUGMENTATIONS[name]
    number = int(np.prod(made.shape))
    inside = jax.jit(lambda key, b: made.bucket(made.draw_in(key, 2000, b)))
    for bucket in range(number):
        np.testing.assert_array_equal(inside(KEY, bucket), bucket)
    seen = np.bincount(made.bucket(made.draw(KEY, 4000)), minlength=number) / 4000
    np.testing.assert_allclose(seen, 1 / number, atol=0.03)


def test_distances_mean_what_the_paper_says() -> None:
    depth, lam = AUGMENTATIONS["augmix"].draw_in(KEY, 50, jnp.asarray(1 * 5 + 2))
    assert set(np.asarray(depth)) == {2}
    assert 0.4 < float(lam.min()) < float(lam.max()) <= 0.6
    eps = AUGMENTATIONS["adversarial"].draw_in(KEY, 50, jnp.asarray(9))
    assert 0.027 < float(eps.min()) < float(eps.max()) <= 0.03 + 1e-8
    lam, _ = AUGMENTATIONS["mixup"].draw_in(KEY, 50, jnp.asarray(4))
    assert 0.4 < float(lam.min()) < float(lam.max()) <= 0.5
    lam, partner = AUGMENTATIONS["mixup"].draw(KEY, N)
    assert float(lam.max()) <= 0.5, "an image is never the lighter part of its own mixture"
    mixed = AUGMENTATIONS["mixup"].change(None, None, BATCH, (lam, partner), KEY)
    expected = lam[:, None, None, None] * IMAGES[partner] + (1 - lam)[:, None, None, None] * IMAGES
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "objective"),
    [("randaug", "adafocal"), *((name, "cross_entropy") for name in AUGMENTATIONS)],
)
def test_loss_is_the_objective_on_the_tables_labels(name: str, objective: str) -> None:
    made = AUGMENTATIONS[name]
    method = methods.autolabel(made, objective, alpha=0.1)
    state = method.init(INFO)
    np.testing.assert_array_equal(state.confidence, 1)
    table = jnp.linspace(0.5, 1.0, len(state.confidence))
    state = state._replace(confidence=table)
    value, aux = jax.jit(method.loss, static_argnums=0)(_apply, jnp.float32(1), state, BATCH, KEY)
    draw_key, change_key, _ = jax.random.split(KEY, 3)
    drawn = made.draw(draw_key, N)
    images = _change(name)(drawn, change_key)
    logits = _apply(1.0, {"image": images})[0]
    np.testing.assert_allclose(aux.logits, logits, rtol=1e-3, atol=1e-3)
    c = table[made.bucket(drawn)]
    soft = targets.autolabel(LABELS, c, K)
    if name == "mixup":
        soft = targets.autolabel_mixup(LABELS[drawn[1]], LABELS, drawn[0], c, K)
    per_example = {
        "cross_entropy": losses.cross_entropy(logits, soft),
        "adafocal": losses.adafocal(logits, soft, losses.adafocal_init()),
    }
    assert float(value) == pytest.approx(float(per_example[objective].mean()), rel=1e-3)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_bucket_moves_by_what_its_validation_set_shows(name: str) -> None:
    made = AUGMENTATIONS[name]
    method = methods.autolabel(made, alpha=0.3, update_every=2)
    first = method.after_epoch(method.init(INFO), EVALUATOR, KEY)
    assert int(first.passes) == 1
    np.testing.assert_array_equal(first.confidence, 1)
    after = method.after_epoch(first, EVALUATOR, KEY)
    number = len(after.confidence)
    keys = jax.random.split(KEY, number)
    for bucket in (0, number // 2, number - 1):
        draw_key, change_key = jax.random.split(jax.random.fold_in(keys[bucket], 0))
        drawn = made.draw_in(draw_key, N, jnp.asarray(bucket))
        images = _change(name)(drawn, change_key)
        confidence, correct = metrics.top_label(_apply(1.0, {"image": images})[0], LABELS)
        ece = float(metrics.ece(confidence, correct))
        accuracy, mean = float(correct.mean()), float(confidence.mean())
        assert float(after.ece[bucket]) == pytest.approx(ece, rel=1e-3, abs=1e-4)
        # Equation 1 by hand, for two passes.
        moved = min(max(1 - 2 * 0.3 * ece * np.sign(mean - accuracy), accuracy), 1)
        assert float(after.confidence[bucket]) == pytest.approx(moved, abs=1e-4)
    shown = method.report(after, *EVALUATOR.validation())
    assert shown["label_confidence"].shape == made.shape
    np.testing.assert_array_equal(shown["bucket_accuracy"].ravel(), after.accuracy)


def _constant(mean: float, accuracy: float):
    """An evaluator whose every bucket shows the same, and a list of how many it was asked for."""
    asked = []

    def sums(measure, arguments, limit):
        asked.append(len(arguments[0]))
        # 200 examples in the eleventh of 15 bins, (2/3, 11/15], which is where they would be.
        one_bin = jnp.zeros((asked[-1], 15)).at[:, 10].set(200.0)
        return one_bin, mean * one_bin, accuracy * one_bin

    return EVALUATOR._replace(sums=sums), asked


def _confidence_after(passes: int, evaluator, start: float = 1.0, **options) -> np.ndarray:
    method = methods.create("randaug_autolabel", **options)
    state = method.init(INFO)
    state = state._replace(confidence=jnp.full_like(state.confidence, start))
    for _ in range(passes):
        state = method.after_epoch(state, evaluator, KEY)
    return np.asarray(state.confidence, np.float64)


@pytest.mark.parametrize(
    ("passes", "alpha", "mean", "expected"),
    [
        (20, 0.1, 0.75, 1 - 20 * 0.1 * 0.05),  # CIFAR-100 has 200 x 0.01
        (90, 0.02, 0.75, 1 - 90 * 0.02 * 0.05),  # ImageNet
        (20, 0.5, 0.75, 0.7),  # clipped to the accuracy
        (20, 0.1, 0.65, 1.0),  # under-confident: clipped to 1
    ],
)
def test_labels_move_as_fast_however_often_they_are_updated(passes, alpha, mean, expected) -> None:
    evaluator, asked = _constant(mean, 0.7)
    for every in (1, 2, 5, 10):
        asked.clear()
        options = {"max_magnitude": 2, "ops": "rotate", "alpha": alpha, "update_every": every}
        found = _confidence_after(passes, evaluator, **options)
        np.testing.assert_allclose(found, expected, atol=2e-6)
        assert len(asked) == passes // every


def test_the_sign_is_that_of_mean_confidence_less_accuracy() -> None:
    evaluator, _ = _constant(0.7, 0.8)
    options = {"max_magnitude": 1, "ops": "rotate", "alpha": 0.1}
    # Under-confident by 0.1: up by 0.1 x 0.1. The sums are of 200 examples, the mean is not.
    np.testing.assert_allclose(_confidence_after(1, evaluator, 0.85, **options), 0.86, atol=1e-6)
    method = methods.create("randaug_autolabel", **options)
    after = method.after_epoch(method.init(INFO), evaluator, KEY)
    np.testing.assert_allclose(after.mean_confidence, 0.7, rtol=1e-6)
    np.testing.assert_allclose(after.accuracy, 0.8, rtol=1e-6)
    np.testing.assert_allclose(after.ece, 0.1, rtol=1e-5)
    evaluator, _ = _constant(0.9, 0.8)
    np.testing.assert_allclose(_confidence_after(1, evaluator, 0.85, **options), 0.84, atol=1e-6)


def test_buckets_of_operations_without_magnitude_are_evaluated_once() -> None:
    evaluator, asked = _constant(0.75, 0.7)
    after = methods.create("randaug_autolabel").after_epoch(
        methods.create("randaug_autolabel").init(INFO), evaluator, KEY
    )
    assert asked == [82], "18 of the 100 would be the same again"
    assert after.confidence.shape == (100,)
    # What is evaluated once is what each would have been: autocontrast's two magnitudes, equalize's.
    made = _augmentations.randaug(2, "solarize,autocontrast,equalize")
    assert list(made.same_as) == [0, 1, 2, 2, 4, 4]
    after = methods.autolabel(made, alpha=0.3)
    after = after.after_epoch(after.init(INFO), EVALUATOR, KEY)
    plain = methods.autolabel(made._replace(same_as=()), alpha=0.3)
    plain = plain.after_epoch(plain.init(INFO), EVALUATOR, KEY)
    chex.assert_trees_all_close(after, plain, rtol=1e-6)
    assert len(np.unique(np.asarray(after.ece))) >= 3


@pytest.mark.parametrize(
    ("name", "options", "names"),
    [
        ("randaug_autolabel", {"ops": "rotate, solarize"}, ["rotate", "solarize"]),
        ("augmix_autolabel", {}, ["depth 1", "depth 2", "depth 3"]),
        ("mixup_autolabel", {}, []),
    ],
)
def test_bucket_names_are_reported(name: str, options: dict, names: list[str]) -> None:
    method = methods.create(name, **options)
    shown = jax.tree.map(jnp.copy, method.report(method.init(INFO)))  # copied as for the log
    assert np.asarray(shown["bucket_names"]).tolist() == names
    assert shown["bucket_meaning"].endswith(".")
    assert len(names) in (0, len(shown["label_confidence"]))


def test_augmix_draws_depths_of_one_to_three() -> None:
    depth, lam = AUGMENTATIONS["augmix"].draw(KEY, 6000)
    times = np.bincount(depth)
    np.testing.assert_allclose(times, [0, 2000, 2000, 2000], atol=200)  # ± 37, and no fourth
    assert 0 <= float(lam.min()) < 0.01 < 0.99 < float(lam.max()) < 1


def test_other_objectives_keep_their_own_state() -> None:
    method = methods.create("randaug_autolabel", max_magnitude=1, objective="adafocal")
    after = method.after_epoch(method.init(INFO), EVALUATOR, KEY)
    confidence, correct = metrics.top_label(*EVALUATOR.validation())
    expected = losses.adafocal_update(losses.adafocal_init(), confidence, correct)
    np.testing.assert_allclose(after.objective.gamma, expected.gamma, rtol=1e-5)
    assert {"gamma", "label_confidence"} <= method.report(after, *EVALUATOR.validation()).keys()


SMALL = {
    "randaug_autolabel": {"max_magnitude": 2, "ops": "rotate,solarize"},
    "augmix_autolabel": {"num_buckets": 2},
    "adversarial_autolabel": {"eps": 0.05, "steps": 2, "num_buckets": 2},
    "mixup_autolabel": {"num_buckets": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_tables_are_restored_exactly(name: str, tmp_path) -> None:
    method = methods.create(name, **SMALL[name], validation_subset=8, update_every=2, alpha=0.5)
    trainer = small.trainer(method, epochs=2, evaluate_every=3)
    whole = small.fit(trainer, tmp_path / "whole")
    assert not np.array_equal(
        whole.method_state.confidence, np.ones_like(whole.method_state.confidence)
    )
    assert int(whole.method_state.passes) == 4
    for calls in (4, 7):  # before the first update, and between the two
        folder = tmp_path / str(calls)
        with pytest.raises(train.Stopped):
            small.fit(trainer, folder, calls=calls)
        small.assert_same(small.fit(trainer, folder), whole)
        assert small.rows(folder) == small.rows(tmp_path / "whole")
    assert trainer.compilations()["train"] == 1
    assert trainer.bucket_evaluator.compilations() == 1, "one program for all buckets and passes"
    rows = train.Log(tmp_path / "whole" / "metrics.jsonl").rows()
    assert [row.get("perf/method_seconds", 0) > 0 for row in rows] == [False, True] * 2


def test_a_loop_over_buckets_gives_the_same(tmp_path) -> None:
    trainer = small.trainer(methods.create("randaug_autolabel", **SMALL["randaug_autolabel"]))
    state = trainer.init(0)
    method = trainer.method

    def run(loops: bool):
        trainer.bucket_evaluator.loops = loops
        return method.after_epoch(state.method_state, trainer.evaluator(state), KEY)

    one_by_one, scanned = run(False), run(True)
    for a, b in zip(one_by_one, scanned, strict=True):
        np.testing.assert_allclose(
            jax.tree.leaves(a) or 0, jax.tree.leaves(b) or 0, rtol=1e-5, atol=1e-6
        )


def test_a_part_of_the_validation_set_is_spread_over_it() -> None:
    trainer = small.shared_trainer()
    part = trainer.bucket_evaluator.subset(trainer.val, 7)
    assert part is trainer.bucket_evaluator.subset(trainer.val, 7)
    np.testing.assert_array_equal(part.dataset.ids, np.arange(0, 14, 2))
    # Batches no larger than they must be: one of 3, and as few as before of 7.
    assert trainer.eval_batch_size == small.BATCH
    sizes = [trainer.bucket_evaluator.subset(trainer.val, n).batch_size for n in (3, 7)]
    assert sizes == [3, 4]
    assert trainer.bucket_evaluator.subset(trainer.val, 0) is trainer.val
    assert trainer.bucket_evaluator.subset(trainer.val, 99) is trainer.val


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="update_every=0: expected at least 1"):
        methods.create("mixup_autolabel", update_every=0)
    with pytest.raises(ValueError, match="max_magnitude=11: expected 1 to 10"):
        methods.create("randaug_autolabel", max_magnitude=11)
    with pytest.raises(ValueError, match=r"op='rotat': expected one of"):
        methods.create("randaug", ops="rotat")
    text = BATCH._replace(inputs={"input_ids": LABELS[:, None]})
    method = methods.create("randaug")
    with pytest.raises(ValueError, match="inputs input_ids: expected images to augment"):
        method.loss(_apply, jnp.float32(1), method.init(INFO), text, KEY)
