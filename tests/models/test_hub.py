"""Networks by Hugging Face id: cache, revision, what is downloaded, messages without a network."""

import pathlib
import shutil
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.utils
import jax
import numpy as np
import pytest

from calib_jax import _hub, models

GOLDEN = pathlib.Path(__file__).parent / "golden"
COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A cache with two commits of a repository, and no network."""
    folder = tmp_path / "models--org--tiny"
    for commit, name in ((COMMIT, "bert"), (OTHER, "distilbert")):
        shutil.copytree(GOLDEN / name, folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "refs" / "v2").write_text(OTHER)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    _hub.download.cache_clear()
    return folder


def test_a_folder_is_used_as_it_is(tmp_path: pathlib.Path) -> None:
    assert models.find_pretrained(GOLDEN / "bert") == (GOLDEN / "bert", "")
    assert models.find_pretrained(str(GOLDEN / "bert")).folder == GOLDEN / "bert"


@pytest.mark.parametrize(
    ("given", "commit", "model_type"),
    [
        ("org/tiny", COMMIT, "bert"),
        ("org/tiny@main", COMMIT, "bert"),
        ("org/tiny@v2", OTHER, "distilbert"),
        (f"org/tiny@{OTHER}", OTHER, "distilbert"),
    ],
)
def test_an_id_of_the_cache(given: str, commit: str, model_type: str, cache: pathlib.Path) -> None:
    assert models.find_pretrained(given) == (cache / "snapshots" / commit, commit)
    module, params = models.load_pretrained(given)
    assert module.config.model_type == model_type
    jax.tree.map(
        np.testing.assert_array_equal, params, models.load_pretrained(GOLDEN / model_type)[1]
    )


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("org/absent", "hf download org/absent"),
        ("bert-base-uncased", "hf download bert-base-uncased"),
        ("org/tiny@v3", "hf download org/tiny --revision v3"),
    ],
)
def test_without_a_network_one_line_has_the_command(given: str, command: str) -> None:
    with pytest.raises(ValueError, match=f"^{given}: no such folder, not in the Hugging") as caught:
        models.load_pretrained(given)
    assert str(caught.value).endswith(f"; where there is a network: {command}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["/no/such/folder", "a/b/c", "org/a b", "../x", "org/name@"])
def test_what_is_no_id_is_not_looked_for(given: str) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        models.load_pretrained(given)


def test_only_safetensors_configs_and_tokenizers_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, cache: pathlib.Path
) -> None:
    calls: list[dict[str, Any]] = []

    def download(repo: str, **options: Any) -> str:
        calls.append({"repo": repo, **options})
        return str(cache / "snapshots" / COMMIT)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for _ in range(2):  # the second time from memory: seeds of one run have one revision
        assert models.find_pretrained("org/tiny@main").revision == COMMIT
    assert [(call["repo"], call["revision"]) for call in calls] == [("org/tiny", "main")]
    files = ["config.json", "model.safetensors", "model-00001-of-00002.safetensors"]
    files += ["model.safetensors.index.json", "tokenizer.json", "vocab.txt", "merges.txt"]
    files += ["sentencepiece.bpe.model", "preprocessor_config.json"]
    others = ["pytorch_model.bin", "model.bin", "modeling_custom.py", "tf_model.h5", "a.pkl"]
    others += [
        "flax_model.msgpack",
        "onnx/model.onnx",
        "onnx/model.safetensors",
        "training_args.bin",
    ]
    patterns = calls[0]["allow_patterns"]
    asked = huggingface_hub.utils.filter_repo_objects(files + others, allow_patterns=patterns)
    assert list(asked) == files
