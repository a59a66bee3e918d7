"""Steps that draw from groups of examples: how many there are, whose they are, what they need."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small

from calib_jax import methods, models, train


@pytest.mark.parametrize(("split", "steps", "rows"), [("halves", 6, 4), ("each", 3, 8)])
def test_an_epoch_of_halves_has_the_updates_of_cross_entropy(
    split: str, steps: int, rows: int
) -> None:
    made = small.trainer(methods.recipe("aum_mixup", batch_split=split).phases[-1])
    assert (made.train.steps, made.train.batch_size) == (steps, rows)
    assert small.shared_trainer("cross_entropy").train.steps == 6
    plan = made.train.shuffled(0, 0)
    assert plan.rows.shape == (steps, rows)
    easy, hard = np.split(plan.rows, 2, axis=1)
    # The AUM falls with the position: of 22 the first 11 are easy.
    assert sorted(np.unique(easy)) == list(range(11))
    assert sorted(np.unique(hard)) == list(range(11, 22))
    assert made.eval_batch_size == 4  # of evaluation nothing changes


def test_two_groups_of_a_third_of_the_data() -> None:
    """EA-MixUp has two groups of a third: an epoch is a pass over two thirds of the data."""
    handed = {"confidence": small.ARTIFACTS["aum"], "variability": small.ARTIFACTS["aum"][::-1]}
    with_map = small.ARTIFACTS | handed
    drawn = methods.recipe("ea_mixup").phases[-1].groups
    assert drawn is not None
    groups = drawn.positions(methods.Info(small.NUM_TRAIN, 3, with_map))
    assert [len(group) for group in groups] == [7, 7]
    feed = train.Loader(
        small.images(small.NUM_TRAIN, 0), 4, small.shared_trainer().mesh,
        groups=lambda seed: groups, batch_split=drawn.batch_split,
    )  # fmt: skip
    assert (feed.steps, feed.sizes) == (4, (2, 2))


def test_parts_of_a_batch_have_their_share_of_each_group() -> None:
    small.trainer("aum_mixup", accumulate=2)
    with pytest.raises(
        ValueError,
        match=r"^batch_size=4: expected a multiple of 8 \(2 groups x 4 accumulated parts\)$",
    ):
        small.trainer("aum_mixup", accumulate=4)
    with pytest.raises(ValueError, match="batch_size=1: expected at least 2, a row of each group"):
        small.trainer("aum_mixup", batch_size=1)


def test_the_seed_reaches_the_groups_and_the_state(tmp_path: pathlib.Path) -> None:
    phase = methods.recipe("aum_mixup", categorise="random", partners="random").phases[-1]
    method = phase.method
    assert phase.groups is not None
    made = small.trainer(phase, epochs=1)
    seen = {}
    for seed in (0, 5):
        info = made.info._replace(seed=seed)
        easy, hard = phase.groups.positions(info)
        plan = made.train.shuffled(seed, 0)
        assert set(plan.rows[:, :2].ravel()) == set(easy)
        assert set(plan.rows[:, 2:].ravel()) == set(hard)
        seen[seed] = set(easy)
    assert seen[0] != seen[5]
    remembering = method._replace(
        init=lambda info: method.init(info)._replace(stored=jnp.asarray(info.seed))
    )
    made = small.trainer(phase._replace(method=remembering), epochs=1)
    assert [int(made.init(seed).method_state.stored) for seed in (0, 5, 0)] == [0, 5, 0]
    together = small.fit_seeds(made, tmp_path / "together", [0, 5])
    assert [int(state.method_state.stored) for state in together] == [0, 5]
    alone = small.fit_seeds(made, tmp_path / "alone", [5])[0]
    for a, b in zip(jax.tree.leaves(together[1]), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "missing", "origin"),
    [
        ("aum_mixup", "aum", "methods.dynamics_recorder"),
        ("sim_mixup", "confidence", "methods.dynamics_recorder"),
        ("csd", "teacher_temperature", "fitted on the validation set"),
        ("sd", "teacher_logits", "by the teacher's network"),
    ],
)
def test_what_must_be_handed_over_is_said(method: str, missing: str, origin: str) -> None:
    with pytest.raises(ValueError, match=f"^artifacts have nothing: expected '{missing}'") as error:
        _trainer(methods.recipe(method).phases[-1], {})
    assert origin in str(error.value)
    assert f"train.Trainer(..., artifacts={{'{missing}': ...}})" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_the_message_says_works(tmp_path: pathlib.Path) -> None:
    recording = _trainer(methods.dynamics_recorder(methods.create("cross_entropy")), {})
    state = small.fit(recording, tmp_path / "recorded")
    guided = _trainer(
        methods.recipe("aum_mixup").phases[-1], methods.recorded_dynamics(state.method_state)
    )
    trained = small.fit(guided, tmp_path / "guided")
    assert int(trained.step) == 6
    logits = recording.predict(state, recording.loader(recording.train.dataset))
    handed = {"teacher_logits": np.asarray(logits), "teacher_temperature": np.float32(1)}
    assert int(small.fit(_trainer(methods.create("csd"), handed), tmp_path / "csd").step) == 6


def _trainer(
    method: methods.Method | methods.Phase, handed: dict[str, np.ndarray]
) -> train.Trainer:
    return train.Trainer(
        train.Network(models.create("mlp", 3, widths=(8,))),
        method,
        lambda *_: train.make_optimizer("sgd", lambda _: 0.1),
        small.images(small.NUM_TRAIN, 0),
        small.images(small.NUM_VAL, 1),
        train.Setup(batch_size=4, epochs=1),
        artifacts=handed,
    )
