"""Atomic writes, and locks on folders."""

import json
import os
import pathlib
import socket

import numpy as np
import pytest

from calib_jax._hints import differences
from calib_jax._io import write_atomic, write_json, write_npz
from calib_jax._locks import lock_folder


def test_files_are_replaced_as_a_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results.json"
    write_json(path, {"a": [1, 2]})
    assert path.read_text() == '{\n  "a": [\n    1,\n    2\n  ]\n}\n'
    with path.open() as reader:
        write_atomic(path, "neu: ä")
        assert json.load(reader) == {"a": [1, 2]}, "who reads goes on reading the old content"
    assert path.read_bytes() == "neu: ä".encode()
    write_atomic(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, arrays = tmp_path / "results.json", tmp_path / "folder" / "logits.npz"
    write_json(text, 1)
    write_npz(arrays, logits=np.arange(3))

    def fail(*_: object) -> None:
        raise OSError("killed before the last step")

    monkeypatch.setattr(pathlib.Path, "replace", fail)
    with pytest.raises(OSError, match="before the last step"):
        write_json(text, 2)
    with pytest.raises(OSError, match="before the last step"):
        write_npz(arrays, logits=np.zeros(5))
    assert text.read_text() == "1\n"
    with np.load(arrays, allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["logits"], [0, 1, 2])


def test_a_locked_folder_names_its_owner(tmp_path: pathlib.Path) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    refused = f"{tmp_path} is in use by {owner}; wait for it, or choose another --workdir"
    with lock_folder(tmp_path):
        with pytest.raises(ValueError, match=refused), lock_folder(tmp_path):
            pass
        with lock_folder(tmp_path, ".other"):
            pass
    with lock_folder(tmp_path):
        pass


def test_differences_name_the_key_and_both_values() -> None:
    old, new = {"a": 1, "b": {"c": "x", "d": 2}}, {"a": 1, "b": {"c": "y"}, "e": None}
    assert differences(old, new, "settings") == [
        "settings.b.c: 'x' there, 'y' now",
        "settings.b.d: 2 there, '(not set)' now",
        "settings.e: '(not set)' there, None now",
    ]
