"""Damaged files of every format: a set, or a ValueError of one line; nothing else."""

import contextlib
import pathlib
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_files import WRITERS, png, texts, write_images

from calib_jax import data

settings.register_profile("damaged", parent=settings.get_profile("calib_jax"), max_examples=40)
DAMAGED = settings.get_profile("damaged")


def _check(name: str, path: pathlib.Path, **options: object) -> None:
    for split in ("train", "test"):
        message = ""
        try:
            dataset = data.load(name, split, path=str(path), **options)
        except ValueError as error:
            message = f"{error}."
        assert "\n" not in message
        assert message != "."
        if not message:
            assert len(dataset) > 0
            assert 0 <= dataset.labels.min() <= dataset.labels.max() < dataset.num_classes
            assert len(set(dataset.ids)) == len(dataset)
            assert len(dataset.content_hash) == 64


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Edits of a file: where, how many bytes go, and what comes instead."""
    piece = st.one_of(
        st.binary(max_size=6),
        st.sampled_from([b"", b'"', b"\n", b",", b"\x00", b"\xff\xfe", b"{", b"}", b"NaN", b"-1"]),
    )
    edit = st.tuples(st.floats(0, 1), st.sampled_from([0, 1, 2, 40, 10_000]), piece)
    return draw(st.lists(edit, min_size=1, max_size=3))


def _damage(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for where, gone, piece in changes:
        i = int(where * len(content))
        content = content[:i] + piece + content[i + gone :]
    return content


@pytest.mark.parametrize("name", WRITERS)
def test_tables(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"a.{name}"
    WRITERS[name](path, texts(30))
    content = path.read_bytes()

    @given(edits(), st.sampled_from([0.01, 1.0]))
    @settings(DAMAGED)
    def damaged(changes: list[tuple[float, int, bytes]], max_malformed: float) -> None:
        path.write_bytes(_damage(content, changes))
        _check(name, path, max_malformed=max_malformed)

    damaged()


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "npz"])
def test_any_bytes(name: str, tmp_path: pathlib.Path) -> None:
    @given(st.binary(max_size=200))
    @settings(DAMAGED)
    def damaged(content: bytes) -> None:
        path = tmp_path / f"a.{name}"
        path.write_bytes(content)
        _check(name, path)

    damaged()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.lists(st.fixed_dictionaries({"text": JSON, "label": JSON}), min_size=1, max_size=12))
@settings(DAMAGED)
def test_any_values(rows: list[dict[str, object]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "a.jsonl")
        WRITERS["jsonl"](path, rows)
        for options in ({}, {"choices": "text"}, {"image": "text"}):
            _check("jsonl", path, max_malformed=1.0, val_share=0.3, test_share=0.3, **options)


@pytest.mark.parametrize("kind", ["features", "image"])
@pytest.mark.parametrize("compressed", [False, True])
def test_npz(kind: str, compressed: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.npz"
    rng = np.random.default_rng(0)
    shape = (30, 4) if kind == "features" else (30, 2, 2, 3)
    arrays = {kind: rng.integers(0, 255, shape).astype(np.uint8), "labels": np.arange(30) % 3}
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    content = path.read_bytes()

    @given(edits())
    @settings(DAMAGED)
    def damaged(changes: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(_damage(content, changes))
        _check("npz", path)

    damaged()


def _check_unlabeled(path: pathlib.Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """All rows of a file to classify are read, each with inputs or a problem of one line."""
    message = ""
    try:
        file = data.read_unlabeled(path, shapes, data.Columns())
        for row in file.rows():
            assert row.inputs.keys() == (set() if row.problem else shapes.keys())
            assert "\n" not in row.problem
    except ValueError as error:
        message = str(error)
        assert message.startswith(str(path))
    assert "\n" not in message


@pytest.mark.parametrize("name", WRITERS)
def test_tables_to_classify(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"a.{name}"
    WRITERS[name](path, texts(30))
    content = path.read_bytes()

    @given(edits())
    @settings(DAMAGED)
    def damaged(changes: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(_damage(content, changes))
        _check_unlabeled(path, {"text": ()})

    damaged()


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_to_classify(compressed: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.npz"
    features = np.random.default_rng(0).normal(size=(600, 4))
    (np.savez_compressed if compressed else np.savez)(path, features=features)
    content = path.read_bytes()

    @given(edits())
    @settings(DAMAGED)
    def damaged(changes: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(_damage(content, changes))
        _check_unlabeled(path, {"features": (4,)})

    damaged()


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # "Truncated File Read", "Corrupt EXIF data"
@pytest.mark.parametrize("format_", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_images(format_: str, tmp_path: pathlib.Path) -> None:
    from PIL import Image

    write_images(tmp_path, 8)
    path = tmp_path / f"a/0.{format_.lower()}"
    Image.open(tmp_path / "a/0.png").save(path, format_)
    if format_ != "PNG":
        (tmp_path / "a/0.png").unlink()
    content = path.read_bytes()

    @given(edits())
    @settings(DAMAGED, max_examples=25)
    def damaged(changes: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(_damage(content, changes))
        _check("image_folder", tmp_path, size=4, max_malformed=0.5)

    damaged()


def test_hugging_face_folders(tmp_path: pathlib.Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_list(list(texts(30))).save_to_disk(tmp_path / "toy")
    path = tmp_path / "toy/data-00000-of-00001.arrow"
    content = path.read_bytes()

    @given(edits())
    @settings(DAMAGED)
    def damaged(changes: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(_damage(content, changes))
        _check("huggingface", tmp_path / "toy", max_malformed=1.0)

    damaged()


def test_tfds_folders(tfds_texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "toy_texts"
    shutil.copytree(tfds_texts / "toy_texts", folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in files]

    @given(st.integers(0, len(files) - 1), edits())
    @settings(DAMAGED, max_examples=20)
    def damaged(number: int, changes: list[tuple[float, int, bytes]]) -> None:
        for path, content in zip(files, contents, strict=True):
            path.write_bytes(content)
        files[number].write_bytes(_damage(contents[number], changes))
        _check("tfds", folder, max_malformed=1.0)

    with contextlib.redirect_stderr(None):
        damaged()


def test_an_image_that_is_very_large(tmp_path: pathlib.Path) -> None:
    """A header that promises more pixels than there can be is no image, not a process without memory."""
    write_images(tmp_path, 8)
    content = bytearray(png(3))
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    (tmp_path / "a/0.png").write_bytes(content)
    _check("image_folder", tmp_path, size=4, max_malformed=0.5)
