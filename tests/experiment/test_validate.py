"""Mistakes in data, networks and values that are found before anything is trained: one line each."""

import dataclasses
import math
import pathlib
from typing import Any

import flax.linen as nn
import numpy as np
import pytest
from experiment import small
from experiment.conftest import Command

from calib_jax import data, experiment, train
from calib_jax.experiment import _config, _keys, _overrides, _validate
from calib_jax.models import TextCNN

TOY = small.images(6, 0)
TOKENS = dataclasses.replace(
    TOY,
    inputs={"input_ids": np.full((6, 4), 7, np.int32), "mask": np.ones((6, 4), np.int32)},
)


def _with_image(image: np.ndarray) -> data.Dataset:
    return dataclasses.replace(TOY, inputs={"image": image})


_FLOATS = TOY.inputs["image"].astype(np.float32)
_NAN = _FLOATS / 255
_NAN[2, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (
            dataclasses.replace(TOY, labels=TOY.labels + 1),
            r"toy train: labels are 1 to 3: expected 0 to 2, the positions of 'a', 'b', 'c'",
        ),
        (dataclasses.replace(TOY, labels=TOY.labels - 1), r"labels are -1 to 1: expected 0 to 2"),
        (
            dataclasses.replace(TOY, labels=TOY.labels.astype(np.float32)),
            r"toy train: labels are float32 \[6\]: expected integers \[n\]",
        ),
        (TOY.take([]), "toy train: expected at least one example, got none"),
        (_with_image(_NAN), "image is not finite in 1 of 6 examples, the first at position 2"),
        (
            _with_image(_FLOATS),
            r"image has values \d+ to \d+: expected floats in \[0, 1\], or uint8",
        ),
        (_with_image(_FLOATS / 255 - 0.5), r"image has values -0\.\d+ to 0\.\d+: expected floats"),
        (
            dataclasses.replace(TOY, inputs={"features": np.full((6, 2), np.inf, np.float32)}),
            "features is not finite in 6 of 6 examples",
        ),
    ],
)
def test_data(dataset: data.Dataset, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        _validate.check_dataset(dataset)
    assert "\n" not in str(caught.value)


def test_good_data() -> None:
    for dataset in (TOY, TOKENS, _with_image(_FLOATS / 255)):
        _validate.check_dataset(dataset)
    features = np.full((6, 2), -300.0, np.float32)
    _validate.check_dataset(dataclasses.replace(TOY, inputs={"features": features}))


def test_all_sets_of_a_run_are_checked(tmp_path: pathlib.Path) -> None:
    sets = {"train": TOY, "val": TOY, "test": TOY}
    for name in sets:
        wrong = dataclasses.replace(TOY, labels=TOY.labels + 1)
        with pytest.raises(ValueError, match=f"toy {name}: labels are 1 to 3"):
            experiment.run(small.config(), tmp_path, sets | {name: wrong})
    other = dataclasses.replace(TOY, label_names=("a", "c", "b"))
    message = (
        "toy val: label_names are 'a', 'c', 'b': expected those of the training set, 'a', 'b', 'c'"
    )
    with pytest.raises(ValueError, match=message):
        experiment.run(small.config(), tmp_path, sets | {"val": other})
    assert not (tmp_path / "config.json").exists()


def test_a_class_that_is_missing_is_a_warning() -> None:
    assert _validate.missing_classes(TOY.take([])).startswith(
        "warning: no example of 'a', 'b', 'c';"
    )
    one = TOY.take(np.flatnonzero(TOY.labels != 1))
    assert _validate.missing_classes(one) == (
        "warning: no example of 'b'; what is fitted on it knows nothing of this class"
    )
    test = dataclasses.replace(one, split="test")  # nothing is fitted on it
    assert _validate.missing_classes(test) == "warning: no example of 'b'"
    assert _validate.missing_classes(TOY) == ""
    many = dataclasses.replace(TOY, label_names=tuple(f"class {i}" for i in range(100)))
    assert "'class 7', … (97);" in _validate.missing_classes(many)


class Embedder(nn.Module):
    """A network on tokens, as a user may write it."""

    rows: int

    @nn.compact
    def __call__(self, input_ids: Any, mask: Any, train: bool = False) -> Any:
        return nn.Dense(3)(nn.Embed(self.rows, 4)(input_ids).mean(axis=1))


class Flat(nn.Module):
    """A network on vectors of a certain size."""

    size: int = 16
    num_classes: int = 3

    @nn.compact
    def __call__(self, images: Any, train: bool = False) -> Any:
        return nn.Dense(self.num_classes)(images.reshape(-1, self.size))


@pytest.mark.parametrize(
    ("module", "dataset", "message"),
    [
        (
            Embedder(7),
            TOKENS,
            "toy train: token 7: expected less than 7, the rows of the network's emb",
        ),
        (Embedder(8), TOY, r"network Embedder cannot take image float32 \[1, 4, 4, 1\]: .*mask"),
        (
            Flat(),
            TOKENS,
            r"network Flat cannot take input_ids int32 \[1, 4\], mask int32 \[1, 4\]: ",
        ),
        (Flat(5), TOY, r"network Flat cannot take image float32 \[1, 4, 4, 1\]: .*reshape"),
        (
            Flat(16, 4),
            TOY,
            r"network Flat returns \[1, 4\] for one example: expected \[1, 3\], a logit",
        ),
    ],
)
def test_networks(module: nn.Module, dataset: data.Dataset, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        _validate.check_network(train.Network(module), [dataset])
    assert "\n" not in str(caught.value)


def test_good_networks() -> None:
    params = _validate.check_network(train.Network(Embedder(8)), [TOKENS])
    assert params["Embed_0"]["embedding"].shape == (8, 4)
    params = _validate.check_network(train.Network(Flat()), [small.as_stream(TOY)])
    assert params["Dense_0"]["kernel"].shape == (16, 3)


def test_texts_and_images() -> None:
    text = dataclasses.replace(TOY, inputs={"text": np.array(["a"] * 6, object)})
    message = (
        r"config\.model\.name='mlp' takes images or features, but toy has texts; expected one of "
        r"bert, .*text_cnn"
    )
    with pytest.raises(ValueError, match=message):
        experiment.describe(small.config(), {"train": text, "val": text, "test": text})
    with pytest.raises(ValueError, match=r"'x' takes texts, but toy has images .* one of mlp, res"):
        _validate.check_kind("'x'", TextCNN(3), TOY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer__learning_rate": 0.0}, r"optimizer.learning_rate=0: expected more than 0"),
        ({"optimizer__learning_rate": -1.0}, r"optimizer.learning_rate=-1: expected more than 0"),
        (
            {"optimizer__learning_rate": math.inf},
            r"optimizer.learning_rate=inf: expected more than",
        ),
        (
            {"optimizer__momentum": 2.0},
            r"optimizer.momentum=2: expected at least 0 and less than 1",
        ),
        ({"optimizer__b2": 1.0}, r"optimizer.b2=1: expected at least 0 and less than 1"),
        ({"optimizer__weight_decay": -0.1}, r"optimizer.weight_decay=-0.1: expected at least 0"),
        ({"data__padding": -1}, r"data.padding=-1: expected at least 0"),
        ({"method__label_smoothing__smoothing": 1.0}, r"smoothing=1: expected at least 0 and less"),
        ({"method__mixup__alpha": 0.0}, r"config.method.mixup.alpha=0: expected more than 0"),
        ({"method__focal__gamma": math.nan}, r"config.method.focal.gamma=nan: expected a number"),
        (
            {"method__adafocal__num_bins": 0},
            r"config.method.adafocal.num_bins=0: expected at least 1",
        ),
        (
            {"optimizer__milestones": (3, 5)},
            r"config.optimizer.milestones=\(3, 5\): expected \(\) with optimizer.schedule='constant', or",
        ),
        (
            {"method__variants": {"a": {"of": "focal", "gamma": math.nan}}},
            r"config.method.variants.a.method.focal.gamma=nan: expected a number",
        ),
        (
            {"method__variants": {"a": {"of": "focal", "optimizer": {"momentum": 1.0}}}},
            r"config.method.variants.a.optimizer.momentum=1: expected at least 0 and less than 1",
        ),
    ],
)
def test_values_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _config.check(small.config(**changes))


def test_values_that_make_sense() -> None:
    _config.check(
        small.config(
            method__adafocal__gamma_max=math.inf,
            optimizer__milestones=(1,),
            optimizer__schedule="milestones",
            checkpoint__seconds=math.inf,
            fine_tune__shares=(0.1, 1.0),
        )
    )


def test_every_key_is_in_the_config_and_has_a_meaning() -> None:
    config = experiment.default_config()
    values = _keys.flatten(config)
    assert values.keys() >= _keys.KEYS.keys()
    assert all(path in _keys.KEYS or path.startswith("method.") for path in values)
    assert all(key.meaning for key in _keys.KEYS.values())
    config.model.options.widths = (3,)
    assert experiment.default_config().model.options.to_dict() == {}, "no state between configs"


def test_overrides() -> None:
    others, values = experiment.split_overrides(
        [
            *(
                "main",
                "--config=x.py",
                "--config.train.epochs=3",
                "--config.seeds=0",
                "--workdir=w",
            ),
            *("--config.seeds=2,3", "--config.data.shift=svhn,gaussian_noise:5"),
            *("--config.calibrate=", "--config.model.options.widths=(8, 9)"),
            *("--config.model.options.rate=0.5", "--config.data.options.text=the text"),
            "--config.robustness.severities=[1,2]",
        ]
    )
    assert others == ["main", "--config=x.py", "--config.train.epochs=3", "--workdir=w"]
    assert values == {
        "seeds": (0, 2, 3),
        "data.shift": ("svhn", "gaussian_noise:5"),
        "calibrate": (),
        "model.options.widths": (8, 9),
        "model.options.rate": 0.5,
        "data.options.text": "the text",
        "robustness.severities": (1, 2),
    }
    config = small.config()
    _overrides.apply_overrides(config, values)
    assert config.data.shift == ("svhn", "gaussian_noise:5")
    assert config.model.options.to_dict() == {"widths": (8, 9), "rate": 0.5}
    message = r"config\.data\.options\.num_train='many': expected int, such as 60"
    with pytest.raises(ValueError, match=message):
        _overrides.apply_overrides(config, {"data.options.num_train": "many"})


def test_options_and_lists_on_the_command_line(command: Command) -> None:
    overrides = ("--config.model.options.widths=(5,)", "--config.data.shift=digits,fog:5")
    done = command("--config", "configs/quickstart.py", "--print_config", *overrides)
    assert (done.code, done.err) == (0, "")
    assert "config.model.options = {'widths': (5,)}" in done.out
    assert "config.data.shift = ('digits', 'fog:5')" in done.out


@pytest.mark.parametrize("more", [[], ["--config.seeds=1"], ["--print_config"]])
def test_a_dict_is_no_config(command: Command, tmp_path: pathlib.Path, more: list[str]) -> None:
    (tmp_path / "config.py").write_text("def get_config():\n    return {'seeds': (0,)}\n")
    done = command("--config", tmp_path / "config.py", "--workdir", tmp_path / "x", *more)
    expected = "get_config() returns a dict: expected experiment.default_config() with other values"
    assert (done.code, done.err) == (2, f"error: {expected}\n")


def test_a_platform_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> None:
        raise AssertionError  # as jax does for JAX_PLATFORMS=cuda

    monkeypatch.setattr("jax.local_devices", nothing)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    message = "JAX_PLATFORMS='cuda': there is no such device; unset it, or set cpu"
    with pytest.raises(ValueError, match=message):
        train.init_distributed("none")
