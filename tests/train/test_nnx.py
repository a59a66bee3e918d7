"""Networks of Flax NNX: pure calls, visible state, and trainings that resume and run as one program."""

import pathlib
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import nnx_networks, small
from flax import nnx

from calib_jax import methods, models, train

IMAGES = np.random.default_rng(0).uniform(size=(6, 4, 4, 1)).astype(np.float32)
KEY = jax.random.key(3)
NETWORKS = {"resnet": nnx_networks.resnet, "mlp": nnx_networks.mlp}
each_network = pytest.mark.parametrize("name", NETWORKS)


def network(name: str) -> tuple[train.Network, train.TrainState]:
    made = NETWORKS[name]()
    params, state = made.init(jax.random.key(0), {"image": IMAGES})
    return made.bind(state), params


def trees_equal(a: object, b: object) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


# The module behind pure functions


@each_network
def test_a_call_is_that_of_the_module(name: str) -> None:
    bound, params = network(name)
    create = {"resnet": nnx_networks.ResNet, "mlp": nnx_networks.MLP}[name]
    module = create(nnx.Rngs(jax.random.key(0)))
    images = (IMAGES - 0.4) / 0.3 if name == "resnet" else IMAGES  # as the network normalizes
    module.eval()
    logits, state = bound(params, {"image": IMAGES})
    np.testing.assert_allclose(logits, module(images), atol=1e-6)
    trees_equal(state, bound.model_state)
    if name == "resnet":  # and with the statistics of the batch, which the module keeps
        module.train()
        logits, state = bound(params, {"image": IMAGES}, KEY)
        np.testing.assert_allclose(logits, module(images), atol=1e-5)
        for i, norm in enumerate(module.block.norms):
            before, ours = (
                x["state"]["block"]["norms"][str(i)] for x in (bound.model_state, state)
            )
            np.testing.assert_allclose(ours["mean"], norm.mean[...], atol=1e-6)
            np.testing.assert_allclose(ours["var"], norm.var[...], atol=1e-6)
            assert np.abs(ours["mean"] - before["mean"]).max() > 1e-3
            assert (
                np.abs(
                    ours["mean"] - bound.model_state["state"]["block"]["norms"][str(i)]["mean"]
                ).max()
                > 1e-3
            )


def test_state_is_visible_and_of_plain_arrays() -> None:
    bound, params = network("resnet")
    assert bound.model_state.keys() == {"state"}
    assert params["block"]["convs"]["1"].keys() == {"kernel", "bias"}
    bound, params = network("mlp")
    assert bound.model_state.keys() == {"rngs"}
    for stream in bound.model_state["rngs"]["dropouts"].values():
        assert stream["rngs"]["key"].dtype == jnp.uint32
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_nothing_is_mutated() -> None:
    for name in NETWORKS:
        bound, params = network(name)
        before = jax.tree.map(np.array, (params, bound.model_state))
        first = bound(params, {"image": IMAGES}, KEY)
        trees_equal(bound(params, {"image": IMAGES}, KEY), first)
        trees_equal((params, bound.model_state), before)


def test_a_call_does_not_leave_tracers_behind() -> None:
    bound, params = network("mlp")
    with jax.checking_leaks():
        logits = jax.jit(lambda p: bound(p, {"image": IMAGES}, KEY)[0])(params)
    np.testing.assert_allclose(logits, bound(params, {"image": IMAGES}, KEY)[0], atol=1e-6)


def test_dropout_follows_the_key_and_differs_between_layers() -> None:
    bound, params = network("mlp")
    ones = {"image": np.ones((64, 4, 4, 1), np.float32)}
    embeddings = bound.embed(params, ones, KEY)
    np.testing.assert_allclose(np.unique(embeddings), [0, 1 / 0.75], rtol=1e-6)
    assert abs((embeddings == 0).mean() - 0.25) < 0.04
    trees_equal(bound.embed(params, ones, KEY), embeddings)
    assert (bound.embed(params, ones, jax.random.key(4)) != embeddings).any()
    trees_equal(bound.embed(params, ones), ones["image"].reshape(64, 16))
    # The second layer: with an identity as its affine map, the mask itself.
    params["classifier"] = {"kernel": np.eye(8, dtype=np.float32), "bias": np.zeros(8, np.float32)}
    dropped = bound.head(params, np.ones((64, 8), np.float32), KEY)
    assert (np.asarray(dropped == 0) != np.asarray(embeddings == 0)[:, :8]).any()


def test_streams_of_stacked_layers_differ() -> None:
    class Stacked(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            @nnx.split_rngs(splits=2)
            @nnx.vmap(in_axes=0, out_axes=0)
            def create(rngs: nnx.Rngs) -> nnx.Dropout:
                return nnx.Dropout(0.5, rngs=rngs)

            self.scale = nnx.Param(jnp.ones(1))
            self.dropouts = create(rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return nnx.vmap(lambda dropout, x: dropout(x))(self.dropouts, x * self.scale[...])

    module = train.NNXModule(Stacked)
    variables = module.init(jax.random.key(0))
    out, _ = module.apply(
        variables, jnp.ones((2, 64)), train=True, rngs={"dropout": KEY}, mutable=["rngs"]
    )
    assert (out[0] != out[1]).any()


def test_intermediates_and_numbered_layers_are_no_trouble() -> None:
    class Deep(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(11)])
            self.calls = nnx.Variable(jnp.zeros((), jnp.int32))

        def __call__(self, x: jax.Array) -> jax.Array:
            for layer in self.layers:
                x = layer(x)
            self.last = nnx.Intermediate(x)
            self.calls[...] += 1
            return x

    module = train.NNXModule(Deep)
    variables = module.init(jax.random.key(0))
    x = np.float32([[1, -2]])
    want = x
    for i in range(11):  # in the order of numbers: '10' is the last, not the third
        layer = variables["params"]["layers"][str(i)]
        want = want @ layer["kernel"] + layer["bias"]
    out, updated = module.apply(variables, x, train=True, mutable=["state"])
    np.testing.assert_allclose(out, want, rtol=1e-5)
    assert updated == {"state": {"calls": 1}}


# Training


@each_network
def test_a_stopped_run_ends_in_the_same_bits(name: str, tmp_path: pathlib.Path) -> None:
    trainer = small.trainer("adafocal", NETWORKS[name](), epochs=2)
    state = small.fit(trainer, tmp_path / "whole")
    start = trainer.init(0)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), state.params, start.params)
    assert min(jax.tree.leaves(moved)) > 0
    for calls in (2, 9):
        with pytest.raises(train.Stopped):
            small.fit(trainer, tmp_path / str(calls), calls=calls, save_seconds=0)
        small.assert_same(small.fit(trainer, tmp_path / str(calls)), state)
        assert small.rows(tmp_path / str(calls)) == small.rows(tmp_path / "whole")
    if name == "resnet":  # statistics of the training, not those of the start
        norms = [s.model_state["state"]["block"]["norms"]["0"] for s in (state, start)]
        assert np.abs(norms[0]["mean"] - norms[1]["mean"]).max() > 0.01
    else:  # the streams of the seed stay; what is drawn follows from the step's key
        small.assert_same(state.model_state, start.model_state)


@each_network
def test_vmapped_seeds_end_as_they_do_alone(name: str, tmp_path: pathlib.Path) -> None:
    trainer = small.trainer("cross_entropy", NETWORKS[name](), epochs=1)
    together = small.fit_seeds(trainer, tmp_path / "together", [0, 1])
    for i, seed in enumerate((0, 1)):
        alone = small.fit_seeds(trainer, tmp_path / str(seed), [seed])[0]
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), together[i], alone
        )
    different = jax.tree.map(lambda a, b: (a != b).any(), together[0].params, together[1].params)
    assert different["classifier"]["kernel"]


def test_accumulated_gradients_go_through_the_statistics_of_each_microbatch(
    tmp_path: pathlib.Path,
) -> None:
    trainer = small.trainer("cross_entropy", nnx_networks.resnet(), epochs=1, accumulate=2)
    state = small.fit(trainer, tmp_path)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))


# What a network must have, and the names of networks


class Plain(nn.Module):
    """A Linen module without cuts."""

    @nn.compact
    def __call__(self, image: jax.Array, train: bool = False) -> jax.Array:
        x = nn.BatchNorm(use_running_average=not train)(image.reshape(len(image), -1))
        return nn.Dense(3)(x)


# Those with the loss of cross entropy are all alike here.
OTHERS = [
    name
    for name in methods.NAMES
    if methods.recipe(name).phases[-1].method.loss.__qualname__ != "supervised.<locals>.loss"
]
NEED_CUTS = {"mixup": "mixup", "lcl": "lcl"}
NEED_CUTS |= dict.fromkeys(("aum_mixup", "sim_mixup", "ea_mixup"), "informed_mixup")


@pytest.mark.parametrize("name", ["cross_entropy", *OTHERS])
def test_a_network_without_cuts_works_with_every_method_that_needs_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = {key: small.ARTIFACTS["aum"] for key in ("confidence", "variability")}
    monkeypatch.setattr(small, "ARTIFACTS", small.ARTIFACTS | recorded)
    phase = methods.recipe(name).phases[-1]
    if name not in NEED_CUTS:
        small.trainer(phase, train.Network(Plain()))  # traces a step
        return
    message = f"^method {NEED_CUTS[name]}: network .*Plain has no method embed, which this method"
    with pytest.raises(ValueError, match=message) as caught:
        small.trainer(phase, train.Network(Plain()))
    assert "\n" not in str(caught.value)


def test_the_documentation_lists_the_methods_that_need_cuts() -> None:
    text = (pathlib.Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    (row,) = [line for line in text.splitlines() if line.endswith("| all three |")]
    assert re.findall(r"`(\w+)`", row) == sorted(NEED_CUTS, key=methods.NAMES.index)


def test_a_missing_cut_of_an_nnx_module_is_named() -> None:
    with pytest.raises(ValueError, match=r"^method mixup: network .*ResNet has no method embed"):
        small.trainer("mixup", nnx_networks.resnet())


def test_train_is_required() -> None:
    class NoTrain(nn.Module):
        @nn.compact
        def __call__(self, image: jax.Array) -> jax.Array:
            return nn.Dense(3)(image)

    with pytest.raises(ValueError, match=r"NoTrain: __call__ has no argument train; expected def"):
        train.Network(NoTrain())

    class NoTrainInCut(Plain):
        def head(self, features: jax.Array) -> jax.Array:
            return features

    with pytest.raises(ValueError, match="NoTrainInCut: head has no argument train"):
        train.Network(NoTrainInCut())


@pytest.mark.parametrize(
    ("made", "inputs", "message"),
    [
        (
            models.create("bert", 3),
            ("image",),
            "network bert takes input_ids, mask, token_type_ids; ",
        ),
        (
            models.create("mlp", 3),
            ("input_ids", "mask"),
            "MLP takes images; the data have input_ids, mask",
        ),
        (
            train.NNXModule(nnx_networks.MLP),
            ("input_ids", "mask"),
            "MLP takes image; the data have",
        ),
    ],
)
def test_data_that_a_network_does_not_take(
    made: object, inputs: tuple[str, ...], message: str
) -> None:
    zeros = {name: np.zeros((1, 4), np.int32) for name in inputs}
    with pytest.raises(ValueError, match=message):
        train.Network(made).init(jax.random.key(0), zeros)


def test_feature_vectors_are_inputs() -> None:
    made = train.Network(train.NNXModule(lambda rngs: nnx.Linear(5, 3, rngs=rngs)))
    params, state = made.init(jax.random.key(0), {"features": np.zeros((1, 5), np.float32)})
    logits, _ = made.bind(state)(params, {"features": np.ones((2, 5), np.float32)})
    assert logits.shape == (2, 3)


def test_names() -> None:
    assert train.Network(models.create("roberta", 2)).name == "roberta"
    assert train.Network(models.create("vit", 2)).name == "vit"
    assert train.Network(models.create("resnet50", 2)).name == "calib_jax.models.ResNet"
    assert nnx_networks.resnet().name == "experiment.nnx_networks.ResNet"
    assert train.Network(Plain()).name.endswith("test_nnx.Plain")


def test_every_collection_that_a_module_changes_is_kept() -> None:
    class Counting(nn.Module):
        @nn.compact
        def __call__(self, image: jax.Array, train: bool = False) -> jax.Array:
            calls = self.variable("counts", "calls", jnp.zeros, (), jnp.int32)
            if train:
                calls.value += 1
            return nn.Dense(3)(image.reshape(len(image), -1))

    made = train.Network(Counting())
    params, state = made.init(jax.random.key(0), {"image": IMAGES})
    _, after = made.bind(state)(params, {"image": IMAGES}, KEY)
    assert (state["counts"]["calls"], after["counts"]["calls"]) == (0, 1)
