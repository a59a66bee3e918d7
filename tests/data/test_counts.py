"""Every count of examples in a docstring is checked: by a constant, by the publishers' files, or both."""

import inspect
import pathlib
import re
import zipfile

import numpy as np
import pytest

from calib_jax import data
from calib_jax.data import _counts, _emotion, _load

SPLITS = ("train", "val", "test")


def _numbers(text: str | None) -> list[int]:
    """Numbers of four digits and more, as they are written in text: 1,234."""
    return [int(n.replace(",", "")) for n in re.findall(r"\d{1,3}(?:,\d{3})+", text or "")]


def _sum(name: str) -> int:
    return sum(_counts.ROWS[name].values())


# Reader -> its docstring's numbers, each from the constant of the completeness check that it must equal.
# Numbers that stand for something else are checked by the test that is named.
CONSTANTS = {
    "digits": [1_797],  # test_load.py: it comes with scikit-learn
    "fashion_mnist": [*_counts.ROWS["fashion_mnist"].values()],
    "cifar10": [*_counts.ROWS["cifar10"].values()],
    "cifar100": [*_counts.ROWS["cifar100"].values()],
    "cifar10_c": [_counts.ROWS["cifar10"]["test"]],
    "svhn": [*_counts.ROWS["svhn"].values()],
    "tiny_imagenet": [*_counts.ROWS["tiny_imagenet"].values()],
    "imagenet": [
        *_counts.ROWS["imagenet"].values(),
        1_000,  # classes
        *[_counts.ROWS["imagenet"]["validation"] // 2] * 2,
    ],
    "imagenet_c": [_counts.ROWS["imagenet"]["validation"]],
    "snli": [_sum("snli")],
    "mnli": [_sum("mnli")],
    "qqp": [_sum("qqp")],
    "twitter_ppdb": [*[sum(_counts.TWITTER_PPDB_PAIRS.values())] * 2, _sum("twitter_ppdb")],
    "msrp": [*_counts.ROWS["msrp"].values()],
    "swag": [*_counts.ROWS["swag"].values()],
    "hellaswag": [*_counts.ROWS["hellaswag"].values()],
    "goemotions": [_sum("goemotions"), 27_963, 3_524, 3_533],  # test_emotion.py
    "dailydialog": [13_118],  # below
    "empathetic_dialogues": [_sum("empathetic_dialogues")],
    "ssec": [_sum("ssec"), 1_286, 1_274],  # of files that are not at hand
    "isear": [_sum("isear"), 6_395],  # test_emotion.py
    "emotion_stimulus": [_sum("emotion_stimulus"), 2_199, 2_197],  # test_emotion.py
    "newsgroups": [_sum("newsgroups")],
    "known_truth": [2_000, 1_000, 20_000],  # test_known_truth.py
}


@pytest.mark.parametrize("name", [n for n in data.NAMES if n not in data.FORMATS])
def test_docstrings_have_the_numbers_of_the_completeness_check(name: str) -> None:
    assert _numbers(inspect.getdoc(_load._READERS[name])) == CONSTANTS.get(name, [])


def test_numbers_of_the_publishers_are_these() -> None:
    # As the sets' papers and pages have them, in total where they give no parts.
    totals = {
        "fashion_mnist": 70_000,
        "cifar10": 60_000,
        "cifar100": 60_000,
        "svhn": 99_289,
        "tiny_imagenet": 110_000,
        "imagenet": 1_331_167,
        "newsgroups": 18_846,
        "snli": 569_033,
        "mnli": 402_517,
        "qqp": 404_276,
        "swag": 93_552,
        "hellaswag": 49_947,
        "msrp": 5_801,
        "goemotions": 54_263,
        "empathetic_dialogues": 24_847,
        "isear": 7_666,
        "dailydialog": 102_979,
        "ssec": 4_870,
        "emotion_stimulus": 2_414,
        "twitter_ppdb": 10_370,
    }
    assert {name: _sum(name) for name in _counts.ROWS} == totals
    assert sum(_counts.TWITTER_PPDB_PAIRS.values()) == 51_524


# ---- the publishers' own files


def _need(data_dir: pathlib.Path, path: str) -> pathlib.Path:
    if not (data_dir / path).exists():
        pytest.skip(f"needs {path} in CALIB_JAX_DATA")
    return data_dir / path


FILES = {
    "goemotions": ("goemotions", "train.tsv", "dev.tsv", "test.tsv"),
    "msrp": ("MSRParaphraseCorpus", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"),
    "hellaswag": ("hellaswag", "hellaswag_train.jsonl", "hellaswag_val.jsonl"),
}


@pytest.mark.parametrize("name", FILES)
def test_real_files_have_as_many_lines(name: str, data_dir: pathlib.Path) -> None:
    folder, *files = FILES[name]
    header = name == "msrp"
    found = [
        _need(data_dir, f"{folder}/{file}").read_bytes().rstrip(b"\r\n").count(b"\n") + 1 - header
        for file in files
    ]
    assert found == list(_counts.ROWS[name].values())


def test_real_empathetic_dialogues_have_as_many_conversations(data_dir: pathlib.Path) -> None:
    found = []
    for part in ("train", "valid", "test"):
        lines = _need(data_dir, f"empatheticdialogues/{part}.csv").read_text("utf-8").split("\n")
        found.append(len({line.split(",")[0] for line in lines[1:] if line}))
    assert found == list(_counts.ROWS["empathetic_dialogues"].values())


def test_real_dailydialog_has_as_many_dialogues_and_turns(data_dir: pathlib.Path) -> None:
    dialogues, emotions = [], []
    for part in ("train", "validation", "test"):
        path = _need(data_dir, f"ijcnlp_dailydialog/{part}.zip")
        with zipfile.ZipFile(path) as archive:
            labels = archive.read(f"{part}/dialogues_emotion_{part}.txt").decode().splitlines()
        dialogues.append(len(labels))
        emotions.append(sum(len(line.split()) for line in labels))
    assert sum(dialogues) == 13_118
    # One training dialogue has a turn more than emotions, so that there are 87,171 turns.
    assert emotions == list(_counts.ROWS["dailydialog"].values())


def test_real_isear_has_as_many_reports_of_nothing(data_dir: pathlib.Path) -> None:
    lines = _need(data_dir, "isear/isear.csv").read_text("utf-8").rstrip("\n").split("\n")[1:]
    assert len(lines) == _counts.ROWS["isear"]["all"]
    nothing = 0
    for line in lines:
        text = " ".join(" ".join(line.split("|")[40:-2]).replace("á", " ").split())
        nothing += bool(_emotion._NO_REPORT.fullmatch(text.strip(" []().").lower()))
    assert nothing == 157  # guilt included, as in the paper's 154
    docstring = " ".join((inspect.getdoc(_emotion.isear) or "").split())
    assert "here: a pattern matches 157" in docstring


def test_real_sets_are_cut_as_their_docstrings_say(data_dir: pathlib.Path) -> None:
    _need(data_dir, "isear")
    _need(data_dir, "emotion-stimulus")
    sizes = {
        name: [len(data.load(name, split, data_dir)) for split in SPLITS]
        for name in ("isear", "emotion_stimulus")
    }
    assert sum(sizes["isear"]) == 6_395
    np.testing.assert_allclose(np.array(sizes["isear"]) / 6_395, [0.6, 0.2, 0.2], atol=1e-3)
    assert sum(sizes["emotion_stimulus"]) == 2_197
    np.testing.assert_allclose(sizes["emotion_stimulus"][0] / 2_197, 0.05, atol=1e-3)
