"""Hugging Face sets, prepared tfds sets, and the Hugging Face editions of the papers' sets."""

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from own_files import png, texts, write_parquet

from calib_jax import data
from calib_jax.data import _cifar

SPLITS = ("train", "val", "test")
NLI = ("entailment", "neutral", "contradiction")  # in Hugging Face's order


def _png32(value: int) -> dict[str, Any]:
    return {"bytes": png(value, 32), "path": None}


# ---- any set


def _parquet_set(folder: pathlib.Path) -> str:
    write_parquet(folder / "data/train-00000-of-00001.parquet", texts(30))
    write_parquet(folder / "data/validation-00000-of-00001.parquet", texts(10, first=30))
    write_parquet(folder / "data/test-00000-of-00001.parquet", texts(10, first=40))
    return str(folder)


def test_parquet_layout(tmp_path: pathlib.Path) -> None:
    path = _parquet_set(tmp_path / "toy")
    sets = [data.load("huggingface", split, path=path) for split in SPLITS]
    assert [len(d) for d in sets] == [30, 10, 10]
    assert sets[2].inputs["text"][0] == "text number 40"
    # From the data folder, and with other splits: validation for test, and a part of train instead.
    sets = [data.load("huggingface", s, tmp_path, path="toy", test="validation") for s in SPLITS]
    assert [len(d) for d in sets] == [27, 3, 10]
    assert sets[2].inputs["text"][0] == "text number 30"
    with pytest.raises(
        ValueError, match=r"test='dev': expected one of test, train, validation, in"
    ):
        data.load("huggingface", "train", path=path, test="dev")


@pytest.mark.parametrize("layout", ["dict", "single"])
def test_layout_of_save_to_disk(layout: str, tmp_path: pathlib.Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    rows = datasets.Dataset.from_list(list(texts(30)), features=datasets.Features(features))
    if layout == "single":
        rows.save_to_disk(tmp_path / "toy")
    else:
        datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(tmp_path / "toy")
    sets = [data.load("huggingface", split, path=str(tmp_path / "toy")) for split in SPLITS]
    assert [len(d) for d in sets] == ([27, 3, 30] if layout == "dict" else [21, 3, 6])
    assert sets[0].label_names == ("no", "yes")
    for text, label in zip(sets[0].inputs["text"], sets[0].labels, strict=True):
        assert int(text.split()[-1]) % 2 == label


def test_several_sets_in_a_folder(tmp_path: pathlib.Path) -> None:
    for subset in ("a", "b"):
        write_parquet(tmp_path / f"{subset}/train-00000-of-00001.parquet", texts(30))
    with pytest.raises(ValueError, match=r"has several sets: add one of a, b to path"):
        data.load("huggingface", "train", path=str(tmp_path))
    assert len(data.load("huggingface", "train", path=str(tmp_path / "a"))) == 21
    # The layout of the branch refs/convert/parquet.
    write_parquet(tmp_path / "c/train/0000.parquet", texts(30))
    write_parquet(tmp_path / "c/test/0000.parquet", texts(10, first=30))
    assert len(data.load("huggingface", "test", path=str(tmp_path / "c"))) == 10


OFFLINE = """
from calib_jax import data
for path in ("me/toy", "me/toy/sub@v1", "you/toy", "you/toy@v2", "me/toy/none"):
    try:
        train = data.load("huggingface", "train", path=path)
        print(len(train), train.revision, train.notes[-1])
    except ValueError as error:
        print(error)
"""


def test_a_set_of_the_hub_comes_from_the_cache(tmp_path: pathlib.Path) -> None:
    """Without a network; the commit is in the notes."""
    commit, folder = "0123456789" * 4, tmp_path / "hub/datasets--me--toy"
    _parquet_set(folder / f"snapshots/{commit}")
    other = "abcdefabcd" * 4
    write_parquet(folder / f"snapshots/{other}/sub/train-00000-of-00001.parquet", texts(20))
    for name, target in (("main", commit), ("v1", other)):
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / name).write_text(target)
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        capture_output=True,
        text=True,
        check=True,
        env={**__import__("os").environ, **environment},
    )
    first, second, missing, missing_revision, none = run.stdout.splitlines()
    assert first == f"30 {commit} me/toy is at revision {commit}"
    assert second == f"14 {other} me/toy/sub@v1 is at revision {other}"
    assert missing.startswith(
        "huggingface: path='you/toy': no such folder, not in the Hugging Face"
    )
    assert missing.endswith("hf download you/toy --repo-type dataset --local-dir FOLDER")
    assert missing_revision.endswith("--repo-type dataset --revision v2 --local-dir FOLDER")
    assert "me/toy has no parquet files in none" in none


@pytest.mark.parametrize("path", ["", "a b", "../toy", "a/b/c/d", "https://x.y/z"])
def test_a_path_that_is_no_set(path: str) -> None:
    with pytest.raises(ValueError, match=r"huggingface: path='.*': expected a folder, or an id of"):
        data.load("huggingface", "train", path=path)


def test_any_prepared_tfds_set(
    two_cifar10s: tuple[pathlib.Path, pathlib.Path], tfds_texts: pathlib.Path
) -> None:
    folder = two_cifar10s[0]
    sets = {s: data.load("tfds", s, folder, path="cifar10", val_share=0.4) for s in SPLITS}
    assert {split: len(d) for split, d in sets.items()} == {"train": 18, "val": 12, "test": 10}
    assert sets["test"].label_names == tuple(f"class{i}" for i in range(10))
    official = data.load("cifar10", "test", folder)
    stored = {image.tobytes(): label for image, label in zip(*_pairs(sets["test"]), strict=True)}
    assert stored == {i.tobytes(): label for i, label in zip(*_pairs(official), strict=True)}

    path = str(tfds_texts / "toy_texts")
    train = data.load("tfds", "train", path=path, test="extra")
    assert train.inputs["text"][0].startswith("text ä ")
    assert train.label_names == ("0", "1")
    assert len(data.load("tfds", "test", path=path, test="extra")) == 12
    with pytest.raises(ValueError, match=r"test='zzz': expected one of train, extra, in"):
        data.load("tfds", "train", path=path, test="zzz")
    with pytest.raises(
        ValueError, match=r"tfds: path='none': expected the folder .*dataset_info.json"
    ):
        data.load("tfds", "train", tfds_texts, path="none")
    info = tfds_texts / "damaged/dataset_info.json"
    info.parent.mkdir()
    info.write_text("{")
    with pytest.raises(
        ValueError, match=r"damaged: not a set that tfds prepared \(.*prepare it again"
    ):
        data.load("tfds", "train", path=str(info.parent))


def _pairs(dataset: data.Dataset) -> tuple[np.ndarray, np.ndarray]:
    return dataset.inputs["image"], dataset.labels


# ---- editions of the papers' sets


def test_snli_and_mnli(tmp_path: pathlib.Path) -> None:
    rows = [
        {"premise": f"first {i}", "hypothesis": f"second {i}", "label": i % 4 - 1}
        for i in range(40)
    ]
    names = {"label": NLI}
    write_parquet(tmp_path / "snli/plain_text/train-00000-of-00001.parquet", rows, names)
    write_parquet(tmp_path / "snli/plain_text/validation-00000-of-00001.parquet", rows, names)
    write_parquet(
        tmp_path / "nyu-mll/glue/mnli/validation_matched-00000-of-00001.parquet", rows, names
    )
    train = data.load("snli", "train", tmp_path)
    assert train.label_names == ("entailment", "contradiction", "neutral")
    for number, text, pair, label in zip(
        train.ids, train.inputs["text"], train.inputs["pair"], train.labels, strict=True
    ):
        assert (text, pair) == (f"first {number}", f"second {number}")
        assert train.label_names[label] == NLI[number % 4 - 1]
    assert any("10 of 40 rows have no majority label" in note for note in train.notes)
    for name in ("snli", "mnli"):
        val, test = (data.load(name, split, tmp_path) for split in ("val", "test"))
        half = set(np.random.default_rng(0).permutation(40)[:20])
        assert set(val.ids) == {i for i in half if i % 4}
        assert set(test.ids) == {i for i in range(40) if i % 4} - half


def test_qqp(tmp_path: pathlib.Path) -> None:
    rows = [
        {"question1": f'"what, ""{i}""?"', "question2": f"why {i}?", "label": i % 2, "idx": i}
        for i in range(20)
    ]
    write_parquet(tmp_path / "glue/qqp/train-00000-of-00001.parquet", rows)
    train = data.load("qqp", "train", tmp_path)
    assert train.label_names == ("different", "paraphrase")
    assert train.inputs["text"][3] == 'what, "3"?'
    assert train.labels.tolist() == [0, 1] * 10
    test = [row | {"label": -1} for row in rows]
    write_parquet(tmp_path / "glue/qqp/test-00000-of-00001.parquet", test)
    with pytest.raises(ValueError, match="has no labels: load qqp without official_test"):
        data.load("qqp", "test", tmp_path, official_test=True)


def test_goemotions(tmp_path: pathlib.Path) -> None:
    names = ("admiration", "anger", "joy", "neutral")
    rows = [
        {"text": "a", "labels": [0, 2], "id": "x"},
        {"text": "b", "labels": [1], "id": "y"},
        {"text": "c", "labels": [3], "id": "z"},
        {"text": "d", "labels": [1, 2], "id": "z"},
        *({"text": f"e {i}", "labels": [2], "id": "z"} for i in range(200)),
        {"text": "f", "labels": [7], "id": "z"},
    ]
    folder = tmp_path / "go_emotions/simplified"
    write_parquet(folder / "validation-00000-of-00001.parquet", rows, {"labels": names})
    val = data.load("goemotions", "val", tmp_path)
    assert val.inputs["text"][:3].tolist() == ["a", "b", "e 0"]
    assert [val.label_names[label] for label in val.labels[:3]] == ["joy", "anger", "joy"]
    assert "205 (label '7')" in val.notes[0]
    assert any("rows are neutral" in note for note in val.notes)
    assert any("rows have several classes" in note for note in val.notes)


def test_swag(tmp_path: pathlib.Path) -> None:
    rows = [
        {"sent1": f"context {i}", "sent2": "He", "label": i % 4}
        | {f"ending{k}": f"does {k}." for k in range(4)}
        for i in range(20)
    ]
    write_parquet(tmp_path / "allenai/swag/regular/train-00000-of-00001.parquet", rows)
    train = data.load("swag", "train", tmp_path)
    assert train.inputs["text"][3] == "context 3"
    assert train.inputs["choices"][3].tolist() == [f"He does {k}." for k in range(4)]
    assert train.labels.tolist() == [0, 1, 2, 3] * 5


def test_cifar100(tmp_path: pathlib.Path) -> None:
    names = {"fine_label": [f"fine{i}" for i in range(100)]}
    rows = [{"img": _png32(i), "fine_label": 99 - i, "coarse_label": 0} for i in range(10)]
    folder = tmp_path / "cifar100/cifar100"
    for split in ("train", "test"):
        write_parquet(folder / f"{split}-00000-of-00001.parquet", rows, names)
    test = data.load("cifar100", "test", tmp_path)
    np.testing.assert_array_equal(test.inputs["image"][:, 5, 5, 0], np.arange(10))
    assert test.labels.tolist() == [99 - i for i in range(10)]
    assert test.label_names[:2] == ("fine0", "fine1")
    assert test.notes == ("not the complete set: 10 of 10000 images",)
    train, val = (data.load("cifar100", s, tmp_path, num_val=3) for s in ("train", "val"))
    order = np.arange(10)
    np.random.RandomState(1).shuffle(order)
    assert (val.ids.tolist(), train.ids.tolist()) == (order[:3].tolist(), order[3:].tolist())
    write_parquet(folder / "test-00000-of-00002.parquet", rows, names)
    (folder / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(
        ValueError, match=r"test-00001-of-00002.parquet is missing; get all 2 files"
    ):
        data.load("cifar100", "test", tmp_path)


def test_cifar10_in_the_official_order(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches of 10 images, as they are told apart by their first labels."""
    monkeypatch.setattr(_cifar, "_PER_BATCH", 10)
    names = {"label": [f"class{i}" for i in range(10)]}
    batches = {number: labels for labels, number in _cifar._FIRST_LABELS.items()}
    stored = [(10 * (n - 1) + i, int(batches[n][i])) for n in (4, 3, 2, 5, 1) for i in range(10)]
    rows = [{"img": _png32(number), "label": label} for number, label in stored]
    path = tmp_path / "cifar10/plain_text/train-00000-of-00001.parquet"
    write_parquet(path, rows, names)
    sets = [data.load("cifar10", split, tmp_path, num_val=5) for split in ("train", "val")]
    for dataset in sets:
        np.testing.assert_array_equal(dataset.inputs["image"][:, 0, 0, 0], dataset.ids)
        assert dataset.labels.tolist() == [dict(stored)[i] for i in dataset.ids]
    order = np.arange(50)
    np.random.RandomState(1).shuffle(order)
    assert sets[1].ids.tolist() == order[:5].tolist()
    write_parquet(path, rows[1:], names)
    note = data.load("cifar10", "train", tmp_path, num_val=5).notes[0]
    assert note.startswith("in an unknown order: ids and the validation split differ")


def test_first_labels_of_the_official_batches(data_dir: pathlib.Path) -> None:
    paths = sorted((data_dir / "cifar-10-batches-bin").glob("data_batch_*.bin"))
    if not paths:
        pytest.skip("needs CIFAR-10")
    for path in paths:
        labels = np.fromfile(path, np.uint8).reshape(-1, 3073)[:10, 0]
        assert _cifar._FIRST_LABELS["".join(map(str, labels))] == int(path.stem[-1])


def test_imagenet(tmp_path: pathlib.Path) -> None:
    wnids = ("n00000001", "n00000002", "n00000003")
    names = {"label": ("tench, Tinca", "goldfish", "shark")}

    def rows(first: int, n: int, prefix: str) -> list[dict[str, Any]]:
        return [
            {
                "image": {"bytes": png(i, 256), "path": f"{prefix}_{i}_{wnids[i % 3]}.JPEG"},
                "label": i % 3,
            }
            for i in range(first, first + n)
        ]

    folder = tmp_path / "data/imagenet-1k/data"
    for i in range(2):
        file = folder / f"train-0000{i}-of-00002.parquet"
        write_parquet(file, rows(6 * i, 6, "train"), names)
    write_parquet(folder / "validation-00000-of-00001.parquet", rows(100, 4, "val"), names)
    options = {"num_val": 3, "cache_dir": tmp_path / "cache"}
    sets = {s: data.load("imagenet", s, tmp_path / "data", **options) for s in SPLITS}
    assert {split: len(d) for split, d in sets.items()} == {"train": 9, "val": 3, "test": 4}
    for dataset in sets.values():
        assert dataset.label_names == wnids
        for position in range(len(dataset)):
            image = dataset.read(position, None)["image"]
            assert image.shape == (224, 224, 3)
            assert image[0, 0, 0] % 3 == dataset.labels[position]
    plan = np.arange(9).reshape(3, 3)
    numbers = [b["image"][:, 0, 0, 0] for b in data.stream(sets["train"], plan, seed=0)]
    assert np.concatenate(numbers).tolist() == sets["train"].ids.tolist()
    # ImageNet-C is matched by the names of the files, without the class.
    from PIL import Image

    for i in range(100, 104):
        path = tmp_path / f"data/ImageNet-C/weather/fog/2/{wnids[i % 3]}/val_{i}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((224, 224, 3), i + 20, np.uint8)).save(path, "PNG")
    corrupted = data.load(
        "imagenet_c",
        "test",
        tmp_path / "data",
        corruption="fog",
        severity=2,
        cache_dir=tmp_path / "cache",
    )
    assert corrupted.labels.tolist() == sets["test"].labels.tolist()
    assert corrupted.read(1, None)["image"][0, 0, 0] == 121
    (folder / "validation-00000-of-00001.parquet").unlink()
    with pytest.raises(ValueError, match=r"has no file validation-\*.parquet; get all files"):
        data.load("imagenet", "test", tmp_path / "data", **options)


def test_parquet_files_of_something_else(tmp_path: pathlib.Path) -> None:
    write_parquet(tmp_path / "snli/plain_text/train-00000-of-00001.parquet", texts(5))
    with pytest.raises(
        ValueError, match=r"parquet: no column 'premise', only text, label; get it ag"
    ):
        data.load("snli", "train", tmp_path)
    (tmp_path / "snli/plain_text/train-00000-of-00001.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match=r"not a whole parquet file \(.*\); get it again"):
        data.load("snli", "train", tmp_path)
