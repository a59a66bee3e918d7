"""Errors that all seeds share: which, how sure, in whose words; and confusion over seeds."""

import json
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from calib_jax import report

NAMES = ("joy", "anger", "fear")
LABELS = np.array([0, 0, 1, 1, 2, 2])
# Two seeds. Wrong for both: examples 1 (both anger), 3 (joy, fear) and 4 (both joy).
PREDICTED = np.array([[0, 1, 1, 0, 0, 2], [1, 1, 1, 2, 0, 2]])
CONFIDENCE = np.array([[0.9, 0.6, 0.8, 0.5, 0.9, 0.7], [0.9, 0.8, 0.8, 0.88, 0.96, 0.7]])


def test_errors_of_all_seeds_the_most_confident_first() -> None:
    errors = report.common_errors(PREDICTED, CONFIDENCE, LABELS)
    assert errors.rows.tolist() == [4, 1, 3]  # means 0.93, 0.7, 0.69
    assert errors.predicted.tolist() == [[0, 1, 0], [0, 1, 2]]
    np.testing.assert_allclose(errors.mean, [0.93, 0.7, 0.69], rtol=1e-12)
    # Of two values, divided by n - 1: their distance over the square root of 2.
    np.testing.assert_allclose(errors.std, np.array([0.06, 0.2, 0.38]) / np.sqrt(2), rtol=1e-12)


def test_one_seed_that_is_right_is_enough() -> None:
    errors = report.common_errors(np.stack([LABELS, PREDICTED[1]]), CONFIDENCE, LABELS)
    assert len(errors.rows) == 0


def test_matrix_of_common_errors_has_their_number() -> None:
    errors = report.common_errors(PREDICTED, CONFIDENCE, LABELS)
    (axes,) = report.plot_common_errors(errors, LABELS, NAMES, title="csd").axes
    found = {tuple(map(int, t.get_position())): t.get_text() for t in axes.texts}
    assert found == {(1, 0): "1", (0, 1): "1", (0, 2): "1"}  # column, row; of a tie the first class
    rows = [t.get_text() for t in axes.get_yticklabels()]
    assert rows == ["joy (1 of 2)", "anger (1 of 2)", "fear (1 of 2)"]


def test_confusion_over_seeds_is_the_mean_with_its_spread() -> None:
    (axes,) = report.plot_confusion(PREDICTED, LABELS, NAMES).axes
    found = {tuple(map(int, t.get_position())): t.get_text() for t in axes.texts}
    # Row joy: seed 0 predicts joy, anger, seed 1 anger twice: 50, 50 and 0, 100.
    assert found == {
        (0, 0): "25\n±35.4", (1, 0): "75\n±35.4",
        (0, 1): "25\n±35.4", (1, 1): "50\n±0.0", (2, 1): "25\n±35.4",
        (0, 2): "50\n±0.0", (2, 2): "50\n±0.0",
    }  # fmt: skip
    colors = axes.images[0].get_array()
    np.testing.assert_allclose(np.ma.filled(colors, -1)[0], [-1, 75, 0])


def _workdir(
    workdir: pathlib.Path, *, texts: bool, same: bool = True, seeds: int = 2
) -> tuple[str, pathlib.Path]:
    evaluations = [{"name": "uncalibrated", "metrics": {"accuracy": 0.5, "nll": 1.0},
               "intervals": {}, "parameters": {}}]  # fmt: skip
    for seed in range(seeds):
        folder = workdir / "csd" / f"seed_{seed}"
        (folder / "logits").mkdir(parents=True)
        rest = (1 - CONFIDENCE[seed]) / 2
        probs = np.repeat(rest[:, None], 3, axis=1)
        probs[np.arange(6), PREDICTED[seed]] = CONFIDENCE[seed]
        ids = np.arange(40, 46) + (0 if same else 100 * seed)
        np.savez(folder / "logits" / "test.npz", logits=np.log(probs), labels=LABELS, ids=ids)
        record = {"method": "csd", "seed": seed, "num_parameters": 9, "train_seconds": 1.0,
                  "label_names": NAMES, "splits": {"test": evaluations}}  # fmt: skip
        (folder / "results.json").write_text(json.dumps(record))
        row = {"epoch": 1.0, "train/loss": 1.0, "val/accuracy": 0.8, "val/ece_mass": 0.1}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        if texts:
            # Of example 3 (id 43) no seed has written down the text.
            told = {"label": "joy", "predicted": "fear", "confidence": 0.9}
            errors = [told | {"id": 44 - 3 * seed, "text": f"text of {44 - 3 * seed} & more"}]
            (folder / "errors.json").write_text(json.dumps({"test": errors}))
    (workdir / "config.json").write_text(json.dumps({"config": {"data": {"name": "isear"}}}))
    report.write_report(workdir)
    return (workdir / "report.html").read_text(encoding="utf-8"), workdir / "plots"


def _rows(page: str) -> list[list[str]]:
    """Cells of the table of common errors, without tags."""
    section = page.split("<h2>Errors common to all seeds of csd</h2>")[1].split("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", section.split("<tbody>")[1], re.S)
    return [
        [re.sub(r"<.*?>", " ", c).strip() for c in re.findall(r"<t[hd].*?</t[hd]>", r)]
        for r in rows
    ]


def test_page_with_texts(tmp_path: pathlib.Path) -> None:
    page, plots = _workdir(tmp_path, texts=True)
    assert "3 of 6 test examples (50.0 %) are wrong for all 2 seeds" in page
    assert "where a seed has 58.3 % errors on average" in page
    assert _rows(page) == [
        ["44", "fear", "joy", "93.0 ±4.2", "text of 44 &amp; more"],
        ["41", "joy", "anger", "70.0 ±14.1", "text of 41 &amp; more"],
        ["43", "anger", "joy (1 seed), fear (1 seed)", "69.0 ±26.9", "–"],
    ]
    assert "csd, mean over seeds 0, 1 ± standard deviation." in page
    for name in ("confusion_csd", "common_errors_csd"):
        with Image.open(plots / f"{name}.png") as picture:
            assert picture.size[0] > 200


def test_page_without_texts(tmp_path: pathlib.Path) -> None:
    page, _ = _workdir(tmp_path, texts=False)
    assert _rows(page)[0] == ["44", "fear", "joy", "93.0 ±4.2"]


@pytest.mark.parametrize("options", [{"same": False}, {"seeds": 1}])
def test_nothing_is_common_to_other_examples_or_to_one_seed(
    tmp_path: pathlib.Path, options: dict[str, int]
) -> None:
    page, plots = _workdir(tmp_path, texts=True, **options)
    assert "Errors common" not in page
    assert not (plots / "common_errors_csd.png").exists()
    assert "csd, seed 0." in page  # the matrix is the first seed's
