import dataclasses
import doctest
import inspect
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from calib_jax import data
from calib_jax.data import _load


def test_digits_are_cut_into_three() -> None:
    splits = {split: data.load("digits", split) for split in ("train", "val", "test")}
    assert [len(d) for d in splits.values()] == [500, 500, 797]
    assert sorted(np.concatenate([d.ids for d in splits.values()])) == list(range(1797))
    for dataset in splits.values():
        images = dataset.inputs["image"]
        assert images.shape == (len(dataset), 8, 8, 1)
        assert (images.dtype, images.min(), images.max()) == (np.uint8, 0, 255)
        assert set(dataset.labels) == set(range(10))
        assert (dataset.labels.dtype, dataset.ids.dtype) == (np.int32, np.int32)
        assert dataset.num_classes == 10
    everything = np.concatenate([d.inputs["image"] for d in splits.values()]) / 255
    np.testing.assert_allclose(everything.mean(), dataset.mean[0], atol=1e-4)
    np.testing.assert_allclose(everything.std(), dataset.std[0], atol=1e-4)


def test_digits_pixels_and_labels_belong_together() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    test = data.load("digits", "test")
    np.testing.assert_array_equal(test.labels, labels[test.ids])
    back = test.inputs["image"].reshape(-1, 64) / (255 / 16)
    np.testing.assert_array_equal(np.round(back), images[test.ids])


def test_fewer_digits_are_the_first_of_the_pool() -> None:
    pool, few = data.load("digits", "train"), data.load("digits", "train", num_train=60)
    np.testing.assert_array_equal(few.ids, pool.ids[:60])
    np.testing.assert_array_equal(
        data.load("digits", "val", num_train=60).ids, data.load("digits", "val").ids
    )
    with pytest.raises(ValueError, match="num_train=501: expected 1 to 500"):
        data.load("digits", "train", num_train=501)


@pytest.mark.parametrize(
    ("name", "split", "options", "message"),
    [
        ("cifar_10", "train", {}, r"data set 'cifar_10': expected one of digits, .*'cifar10'\?"),
        (
            "mnist_1d_x",
            "train",
            {},
            r"'mnist_1d_x': expected one of .*known_truth, csv, .*huggingface$",
        ),
        ("digits", "validation", {}, "split='validation': expected one of train, val, test"),
        ("digits", "train", {"num_trian": 3}, r"digits: option 'num_trian': .*'num_train'\?"),
        ("npz", "train", {"text": "a"}, "npz: text='a': only other formats have this option"),
        ("npz", "train", {"size": 3}, "npz: size=3: only other formats have this option"),
        ("image_folder", "train", {"label": "a"}, "image_folder: label='a': only other formats"),
        ("newsgroups", "train", {"zzz": 3}, "'zzz': expected one of by_date, num_val, max_malf"),
    ],
)
def test_wrong_words_are_named(
    name: str, split: str, options: dict[str, int | str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        data.load(name, split, **options)


@pytest.mark.parametrize(
    "name", [n for n in data.NAMES if n not in ("digits", "known_truth", *data.FORMATS)]
)
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_missing_set_says_where_it_looked_and_how_to_get_it(
    name: str, split: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setattr("calib_jax.data._fashion_mnist._FOLDERS", ("fashion-mnist",))
    with pytest.raises(ValueError, match=f"{name} is not here") as error:
        data.load(name, split, tmp_path)
    message = str(error.value)
    assert f"Looked for {tmp_path}/" in message
    assert any(word in message for word in ("Get ", "Put "))
    assert "\n" not in message


def test_the_environment_names_the_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIB_JAX_DATA", str(tmp_path / "a"))
    with pytest.raises(ValueError, match=f"{tmp_path}/a/svhn/.*There is no folder {tmp_path}/a"):
        data.load("svhn", "test")
    with pytest.raises(ValueError, match=f"{tmp_path}/b/svhn/"):  # an argument goes first
        data.load("svhn", "test", tmp_path / "b")
    monkeypatch.delenv("CALIB_JAX_DATA")
    with pytest.raises(
        ValueError, match=r"pass data_dir \(config\.data\.dir\) or set CALIB_JAX_DATA"
    ):
        data.load("svhn", "test")


def test_importing_the_room_imports_nothing_heavy() -> None:
    heavy = "jax sklearn scipy transformers grain PIL tensorflow_datasets absl pyarrow datasets"
    code = f"import sys, calib_jax.data; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _reads(position: int, rng: np.random.Generator | None) -> dict[str, np.ndarray]:
    return {"x": np.array(position)}


def test_take_keeps_rows_together() -> None:
    dataset = data.Dataset(
        name="x",
        split="train",
        inputs={"x": np.arange(5) * 10},
        labels=np.arange(5, dtype=np.int32),
        ids=np.arange(5, dtype=np.int32) + 100,
        label_names=tuple("abcde"),
        notes=("kept",),
    )
    part = dataset.take([3, 1])
    assert (list(part.inputs["x"]), list(part.labels), list(part.ids)) == (
        [30, 10],
        [3, 1],
        [103, 101],
    )
    assert (len(part), part.num_classes, part.notes, part.read) == (2, 5, ("kept",), None)
    streaming = dataclasses.replace(dataset, inputs={}, read=_reads).take([3, 1]).take([1])
    assert streaming.read(0, None)["x"] == 1
    with pytest.raises(ValueError, match=r"do not belong together.*'labels': 4"):
        dataclasses.replace(dataset, labels=dataset.labels[:4])


def _mine(split: str, data_dir: pathlib.Path | None, *, by: int = 1) -> data.Dataset:
    digits = data.load("digits", split)
    return dataclasses.replace(digits, name="mine", labels=(digits.labels + by) % 10)


@pytest.fixture
def _mine_is_registered() -> Iterator[None]:
    data.register("mine", _mine)
    yield
    del _load._READERS["mine"]


@pytest.mark.usefixtures("_mine_is_registered")
def test_a_reader_of_your_own() -> None:
    digits, mine = data.load("digits", "val"), data.load("mine", "val", by=3)
    np.testing.assert_array_equal(mine.labels, (digits.labels + 3) % 10)
    assert "mine" in data.NAMES
    data.register("mine", _mine)  # a config file may be read twice
    with pytest.raises(ValueError, match=r"data set 'mime': .*did you mean 'mine'\?"):
        data.load("mime", "val")
    with pytest.raises(ValueError, match=r"mine: option 'bye': expected one of by; did you mean"):
        data.load("mine", "val", bye=3)
    with pytest.raises(ValueError, match="data set 'digits': there is one of that name"):
        data.register("digits", _mine)
    with pytest.raises(ValueError, match="data set 'mine': there is one of that name"):
        data.register("mine", lambda split, data_dir: data.load("digits", split))
    with pytest.raises(ValueError, match="data set '': expected a name and a function"):
        data.register("", _mine)


@pytest.mark.parametrize("name", [n for n, f in vars(data).items() if inspect.isfunction(f)])
def test_examples_of_docstrings(name: str) -> None:
    function = getattr(data, name)
    names = dict(vars(inspect.getmodule(function)))
    example = doctest.DocTestParser().get_doctest(function.__doc__ or "", names, name, None, 0)
    assert not doctest.DocTestRunner().run(example).failed
    _load._READERS.pop("first_digits", None)
