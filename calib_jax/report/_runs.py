"""What runs leave in a workdir, read again."""

import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

Run = tuple[dict[str, Any], pathlib.Path]  # results and folder


def run_folders(workdir: pathlib.Path) -> list[pathlib.Path]:
    """Of all runs, finished or not."""
    return sorted(path for path in workdir.glob("*/seed_*") if path.is_dir())


def read_runs(workdir: pathlib.Path) -> tuple[dict[str, Any], list[Run]]:
    """The content of `config.json`, and the finished runs in the order of its `method.name`.

    That is the order in which a comparison was asked for: baselines first, the paper's method last.
    Methods that it does not name, as they joined in another command, come after them, but cross
    entropy, which the others are compared with, before.

    Raises:
      ValueError: no run is finished, or a file cannot be read.
    """
    folders = [folder for folder in run_folders(workdir) if (folder / "results.json").is_file()]
    if not folders:
        raise ValueError(
            f"{workdir}: no finished run, expected <method>/seed_<n>/results.json; train first"
        )
    config = read_json(workdir / "config.json")
    found: list[Run] = [(read_json(folder / "results.json"), folder) for folder in folders]
    asked = [name.strip() for name in named(config, "method").split(",")]
    names = ["cross_entropy"] * ("cross_entropy" not in asked) + asked
    names += sorted({record["method"] for record, _ in found} - set(names))
    return config, sorted(found, key=lambda r: (names.index(r[0]["method"]), r[0]["seed"]))


def named(config: Mapping[str, Any], part: str) -> str:
    """The name of the data, the model or the methods, if config.json has one."""
    return config.get("config", config).get(part, {}).get("name", "")


def variants(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The variants of methods by name, if config.json has any."""
    return config.get("config", config).get("method", {}).get("variants", {})


def settings_text(variant: Mapping[str, Any], prefix: str = "") -> str:
    """The settings of a variant in one line: `adafocal, num_bins=10, train.epochs=50`."""
    shown = [variant["of"]] if "of" in variant and not prefix else []
    for key, value in variant.items():
        if isinstance(value, Mapping):
            shown.append(settings_text(value, f"{prefix}{key}."))
        elif key != "of" or prefix:
            shown.append(f"{prefix}{key}={value}")
    return ", ".join(shown)


def read_json(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; is this a workdir of calib_jax.main?")
    return _parse(path.read_text(encoding="utf-8"), str(path))


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file, though the run has results; run it again")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_parse(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1)]


def read_logits(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels."""
    # Asked first because NumPy leaves a file that is no archive open.
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: expected an npz archive, this is none; run the method again")
    with np.load(path, allow_pickle=False) as archive:
        return archive["logits"], archive["labels"]


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not valid JSON ({error.msg}); remove or mend it") from None
