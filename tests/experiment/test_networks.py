"""Networks of a config and of the user in an experiment: pretrained ViT, Hub ids, NNX modules."""

import pathlib
import shutil
from typing import Any

import huggingface_hub.constants
import jax
import numpy as np
import pytest
from experiment import small
from flax import nnx

from calib_jax import _hub, experiment, models, train
from calib_jax.experiment import _build, _custom, _validate

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def random_vit(folder: pathlib.Path, side: int, channels: int, **options: tuple[float]) -> None:
    """Write a ViT with four patches and random parameters."""
    sizes = SIZES | {"image_size": side, "patch_size": side // 2, "num_channels": channels}
    module = models.create("vit", 10, **sizes)
    images = np.zeros((1, side, side, channels), np.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), images)["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(0, 0.2, x.shape).astype(np.float32), shapes)
    models.save_pretrained(folder, module, params, **options)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a ViT for images of 8 x 8 x 1, as the digits are."""
    folder = tmp_path_factory.mktemp("vit")
    random_vit(folder, 8, 1, mean=(0.25,), std=(0.5,))
    return folder


@pytest.fixture
def cached_id(
    vit: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    """The cache's folder of `org/vit`; there is no network."""
    repository = tmp_path / "cache" / "models--org--vit"
    shutil.copytree(vit, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    _hub.download.cache_clear()
    return repository / "snapshots" / COMMIT


def test_a_pretrained_vit_has_its_own_image_statistics(vit: pathlib.Path) -> None:
    config = small.config(model__pretrained=str(vit), model__options={})
    network = _build.build_network(config, _build.load_data(config))
    assert (network.name, network.mean, network.std) == ("vit", (0.25,), (0.5,))
    assert network.revision == ""


def test_a_hub_id_is_used_and_its_commit_recorded(cached_id: pathlib.Path) -> None:
    config = small.config(model__pretrained="org/vit@main", model__options={})
    sets = _build.load_data(config)
    network = _build.build_network(config, sets)
    assert network.revision == COMMIT
    params = _validate.check_network(network, sets.all())
    identity = _custom.identify(config, _custom.Custom(), sets.by_name(), network, params)
    assert identity["model"]["revision"] == COMMIT
    assert network.pretrained is not None
    stored = models.load_pretrained(cached_id)[1]
    jax.tree.map(np.testing.assert_array_equal, network.pretrained(0), stored)


def assert_loads(run: pathlib.Path, config: Any, network: Any = None) -> None:
    """The loaded classifier has the run's test logits."""
    classifier = experiment.load(run, network)
    images = _build.load_data(config).test.inputs["image"]
    logits = small.arrays(run / "logits" / "test.npz")["logits"]
    np.testing.assert_allclose(classifier.logits(images), logits, atol=1e-4)


def test_a_resumed_run_has_the_revisions_that_it_began_with(
    cached_id: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    config = small.config(model__pretrained="org/vit@main", data__options={"path": "me/toy/sub"})
    identity = {"model": {"revision": COMMIT}, "data": {"revision": "f" * 40}}
    pinned = _build.pin_revisions(config, identity)
    assert pinned.model.pretrained == f"org/vit@{COMMIT}"
    assert pinned.data.options.path == f"me/toy/sub@{'f' * 40}"
    assert config.model.pretrained == "org/vit@main"
    # The branch has moved on, to something that is not there.
    (cached_id.parent.parent / "refs" / "main").write_text("e" * 40)
    _hub.download.cache_clear()
    assert _build._path(pinned, "model.pretrained") == str(cached_id)
    with pytest.raises(ValueError, match="hf download org/vit --revision main"):
        _build._path(config, "model.pretrained")
    # A folder has no other revisions.
    config = small.config(model__pretrained=str(cached_id))
    assert _build.pin_revisions(config, identity).model.pretrained == str(cached_id)
    assert _build.pin_revisions(config, {}) == config


@pytest.mark.slow
def test_a_vit_of_the_hub_is_trained(cached_id: pathlib.Path, tmp_path: pathlib.Path) -> None:
    options = {"model__pretrained": "org/vit@main", "model__options": {}}
    config = small.config(**options, train__epochs=20, optimizer__name="adam", data__num_train=0)
    experiment.run(config, tmp_path / "run")
    assert COMMIT in (tmp_path / "run" / "config.json").read_text()
    rows = small.rows(tmp_path / "run" / "cross_entropy" / "seed_0")
    assert rows[-1]["train/accuracy"] > rows[0]["train/accuracy"] + 0.1
    assert_loads(tmp_path / "run" / "cross_entropy" / "seed_0", config)
    # Another seed joins after the branch has moved on: it begins with the same weights.
    (cached_id.parent.parent / "refs" / "main").write_text("e" * 40)
    _hub.download.cache_clear()
    config.seeds = (0, 1)
    experiment.run(config, tmp_path / "run")
    assert (tmp_path / "run" / "cross_entropy" / "seed_1" / "results.json").exists()


@pytest.mark.parametrize("key", ["model__pretrained", "data__tokenizer"])
def test_an_id_that_is_not_there(key: str, cached_id: pathlib.Path) -> None:
    config = small.config(**{key: "org/absent@v1"})
    name = key.replace("__", ".")
    message = (
        rf"^config\.{name}: org/absent@v1: no such folder.*hf download org/absent --revision v1$"
    )
    with pytest.raises(ValueError, match=message):
        _build._path(config, name)


def test_images_of_another_size_are_refused_before_training(tmp_path: pathlib.Path) -> None:
    random_vit(tmp_path / "large", 16, 3)
    config = small.config(model__pretrained=str(tmp_path / "large"), model__options={})
    with pytest.raises(ValueError, match="images of 8 x 8 x 1: this ViT takes 16 x 16 x 3"):
        experiment.run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


class Net(nnx.Module):
    """A network of a user, with dropout."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.classifier = nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, image: jax.Array) -> jax.Array:
        x = nnx.relu(self.hidden(image.reshape(len(image), -1)))
        return self.classifier(self.dropout(x))


def test_an_nnx_module_is_identified_by_its_class() -> None:
    config = small.config()
    custom = _custom.Custom(network=train.NNXModule(Net))
    sets = _build.load_data(config)
    network = custom.build_network(sets.train)
    assert network is not None
    assert (network.mean, network.std) == (sets.train.mean, sets.train.std)
    params = _validate.check_network(network, sets.all())
    model = _custom.identify(config, custom, sets.by_name(), network, params)["model"]
    assert (model["name"], model["num_parameters"]) == ("Net", 64 * 8 + 8 + 80 + 10)
    assert model["class"].endswith("test_networks.Net")


@pytest.mark.slow
def test_an_nnx_module_in_an_experiment(tmp_path: pathlib.Path) -> None:
    config = small.config(train__epochs=1)
    experiment.run(config, tmp_path, network=train.NNXModule(Net))
    assert "test_networks.Net" in (tmp_path / "config.json").read_text()
    assert_loads(tmp_path / "cross_entropy" / "seed_0", config, train.NNXModule(Net))
