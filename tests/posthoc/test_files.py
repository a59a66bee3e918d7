"""Calibrators in files: what comes back is what was saved, and nothing else is taken."""

import json
import pathlib
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import posthoc
from calib_jax._io import write_npz
from calib_jax.posthoc import _files

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(60, 3)).astype(np.float32)
LABELS = np.argmax(LOGITS + RNG.gumbel(size=LOGITS.shape), axis=1)
HEADER = {"format": "calib_jax calibrator", "version": 1, "class": "Temperature", "num_classes": 3}


@pytest.mark.parametrize("name", sorted(_files._CLASSES.keys() - {"Platt", "Beta", "Auto"}))
def test_round_trip(name: str, tmp_path: pathlib.Path) -> None:
    calibrator = getattr(posthoc, name).fit(LOGITS, LABELS)
    path = tmp_path / "new folder" / "calibrator.npz"
    posthoc.save(path, calibrator)
    again = posthoc.load(str(path))
    assert type(again) is type(calibrator)
    assert again.num_classes == 3
    assert jax.tree.structure(again) == jax.tree.structure(calibrator)
    np.testing.assert_array_equal(again(LOGITS), calibrator(LOGITS))
    with pytest.raises(ValueError, match=f"^logits: 4 classes; this {name} was fitted to 3$"):
        again(np.zeros((2, 4)))
    assert [file.name for file in path.parent.iterdir()] == ["calibrator.npz"]


def test_every_calibrator_can_be_saved() -> None:
    classes = {c for c in vars(posthoc).values() if isinstance(c, type)}
    calibrators = {c for c in classes if issubclass(c, posthoc.Calibrator)} - {posthoc.Calibrator}
    assert calibrators == set(_files._CLASSES.values())


def test_parameters_that_were_not_fitted_take_any_number_of_classes(tmp_path: pathlib.Path) -> None:
    posthoc.save(tmp_path / "t.npz", posthoc.Temperature(jnp.array(2.0)))
    again = posthoc.load(tmp_path / "t.npz")
    assert again.num_classes is None
    for k in (2, 5):
        np.testing.assert_allclose(again(np.zeros((1, k))), np.full((1, k), 1 / k), rtol=1e-6)


def test_float64_stays_float64(tmp_path: pathlib.Path) -> None:
    with jax.enable_x64(True):
        calibrator = posthoc.Temperature.fit(LOGITS.astype(np.float64), LABELS)
        posthoc.save(tmp_path / "t.npz", calibrator)
        again = posthoc.load(tmp_path / "t.npz")
        assert again.temperature.dtype == jnp.float64
        assert float(again.temperature) == float(calibrator.temperature)


def test_what_cannot_be_saved(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"ends in \.npz"):
        posthoc.save(tmp_path / "t", posthoc.Temperature(jnp.array(2.0)))
    failed = posthoc.Temperature.fit(LOGITS, LABELS, weights=np.zeros(60))
    with pytest.raises(
        ValueError, match="its fit failed, the temperature of this Temperature is NaN"
    ):
        posthoc.save(tmp_path / "t.npz", failed)
    with pytest.raises(ValueError, match="a dict cannot be saved; expected one of Temperature"):
        posthoc.save(tmp_path / "t.npz", {})
    assert not list(tmp_path.iterdir())


def write(path: pathlib.Path, header: object = HEADER, **arrays: np.ndarray) -> None:
    write_npz(path, header=np.asarray(json.dumps(header)), **arrays)


T = np.float32(2.0)


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        (HEADER | {"class": "Temprature"}, {"temperature": T}, "did you mean 'Temperature'"),
        (HEADER | {"class": "Calibrator"}, {"temperature": T}, "expected one of"),
        (HEADER | {"version": 2}, {"temperature": T}, "version 2 of the file format, expected 1"),
        (HEADER | {"format": "other"}, {"temperature": T}, "not a calibrator"),
        ([], {"temperature": T}, "not a calibrator"),
        (HEADER | {"num_classes": 0}, {"temperature": T}, "num_classes=0"),
        (HEADER | {"num_classes": "3"}, {"temperature": T}, "num_classes='3'"),
        (HEADER | {"num_classes": 1}, {"temperature": T}, "of a Temperature of 1 classes"),
        (HEADER | {"more": 1}, {"temperature": T}, "expected the temperature of a Temperature"),
        (HEADER, {"temperature": T, "more": T}, "expected the temperature of a Temperature"),
        (HEADER, {}, "expected the temperature of a Temperature"),
        (
            HEADER,
            {"temperature": np.float32("nan")},
            "the temperature of its Temp.* is not a number",
        ),
        (
            HEADER,
            {"temperature": np.array("2.0")},
            "the temperature of its Temp.* is not a number",
        ),
        (HEADER, {"temperature": np.full(2, T)}, "of a Temperature of 3 classes"),
        (
            HEADER | {"class": "VectorScaling"},
            {"scale": np.ones(4, np.float32), "bias": np.ones(4, np.float32)},
            "of a VectorScaling of 3 classes",
        ),
        (
            HEADER | {"class": "Dirichlet"},
            {"matrix": np.eye(4, dtype=np.float32), "bias": np.ones(4, np.float32)},
            "of a Dirichlet of 3 classes",
        ),
    ],
)
def test_files_of_another_content(header, arrays, message, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c.npz"
    write(path, header, **arrays)
    with pytest.raises(ValueError, match=message) as error:
        posthoc.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_damaged_and_foreign_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c.npz"

    def error() -> str:
        with pytest.raises(ValueError, match=r"c\.npz: ") as caught:
            posthoc.load(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no such file" in error()
    path.write_bytes(b"\x80\x04K\x01.")  # a pickle
    assert "not a calibrator" in error()
    np.savez(path, logits=LOGITS)
    assert "not a calibrator" in error()
    np.savez(path, header=np.array([{}], dtype=object))
    assert "never loaded" in error()
    posthoc.save(path, posthoc.VectorScaling.fit(LOGITS, LABELS))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "not a calibrator" in error()
    middle = bytearray(content)
    middle[60:90] = bytes(30)
    path.write_bytes(bytes(middle))
    assert "damaged" in error() or "not a calibrator" in error()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    assert "not a calibrator" in error()


def test_a_failed_write_leaves_the_old_file(tmp_path: pathlib.Path, monkeypatch) -> None:
    path = tmp_path / "c.npz"
    posthoc.save(path, posthoc.Temperature(jnp.array(2.0)))

    def fail(file, *_args, **_kwargs) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        posthoc.save(path, posthoc.Temperature(jnp.array(3.0)))
    assert float(posthoc.load(path).temperature) == 2.0
