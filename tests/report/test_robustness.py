"""The table of corruptions and attacks, and pictures of what AutoLabel has learnt."""

import numpy as np
import pytest

from calib_jax import report


def _record(method: str, seed: int, accuracy: float, attacked: float):
    severity = {
        str(s): {"accuracy": accuracy - s / 20, "ece": 0.01 + s / 50, "ece_temperature": 0.01}
        for s in range(6)
    }
    return {
        "method": method, "seed": seed, "num_parameters": 1, "train_seconds": 1.0, "splits": {},
        "robustness": {
            "corruptions": {"mean": severity["3"], "severity": severity, "type": {"fog": severity["3"]}},
            "operations": {
                "rotate": {str(m): {"accuracy": accuracy - m / 50} for m in range(11)},
                "color": {str(m): {"accuracy": accuracy} for m in range(11)},
            },
            "attack": {"clean_accuracy": accuracy, "accuracy": attacked},
        },
    }  # fmt: skip


SUMMARY = report.summarize(
    [_record("cross_entropy", s, 0.9 + s / 100, 0.0) for s in range(2)]
    + [_record("adversarial", s, 0.8 + s / 100, 0.5) for s in range(2)]
)


def test_delta_is_the_sum_of_both_accuracies_less_that_of_cross_entropy() -> None:
    table = report.robustness_table(SUMMARY)
    titles = [title for title, count in table.groups for _ in range(count)]
    rows = dict(table.rows)
    assert rows["adversarial"][titles.index("Δ %")].mean == "+40.00"
    assert rows["cross_entropy"][titles.index("Δ %")].mean == "–"
    cell = rows["cross_entropy"][titles.index("cAccuracy %")]
    assert (cell.mean, cell.mark) == ("75.50", "best")
    assert report.robustness_table({"robustness": {}}) is None
    text = report.comparison_text(SUMMARY)
    assert max(map(len, text.splitlines())) <= 100
    assert "attacked accuracy %" in text


def test_the_title_names_the_strengths_of_made_corruptions_or_the_files() -> None:
    def titled(*sources: str) -> str:
        records = [_record(f"method {i}", 0, 0.9, 0.0) for i, _ in enumerate(sources)]
        for record, source in zip(records, sources, strict=True):
            record["robustness"]["corruptions"]["source"] = source
        summary = report.summarize(records)
        return report.robustness_table(summary).title

    made, files = (
        "made with the strengths of Tiny-ImageNet-C, for 64 pixels",
        "from the files of a_c",
    )
    assert len(titled(made)) <= 100, "a line of the terminal"
    assert titled(made) == f"Under corruption ({made}) and attack"
    assert titled(made, made) == f"Under corruption ({made}) and attack"
    assert titled(made, files) == f"Under corruption ({files}; {made}) and attack"


def test_severity_curves() -> None:
    left, right = report.plot_severity(SUMMARY).axes
    assert [line.get_label() for line in left.lines] == ["cross_entropy", "adversarial"]
    np.testing.assert_allclose(right.lines[0].get_ydata(), [1, 3, 5, 7, 9, 11])
    np.testing.assert_allclose(left.lines[1].get_ydata(), [80.5, 75.5, 70.5, 65.5, 60.5, 55.5])
    assert report.plot_severity({"robustness": {}}) is None


def test_operations_have_a_line_each_in_a_panel_per_method() -> None:
    panels = report.plot_operations(SUMMARY).axes
    assert [axes.get_title() for axes in panels] == ["cross_entropy", "adversarial"]
    assert [line.get_label() for line in panels[1].lines] == ["rotate", "color"]
    np.testing.assert_allclose(panels[1].lines[0].get_ydata(), 80.5 - 2 * np.arange(11))
    assert report.plot_operations({"robustness": {}}) is None
    assert report.robustness_table({"robustness": {"adafocal": {"operations": {}}}}) is None


@pytest.mark.parametrize(("shape", "panels"), [((4,), 1), ((7, 3), 7)])
def test_label_tables_begin_at_one(shape, panels) -> None:
    tables = np.random.default_rng(0).uniform(0.5, 1, (3, *shape))
    names = {"method/bucket_names": [f"op {i}" for i in range(panels)]}
    rows = [
        {"epoch": e + 1, "method/label_confidence": t.tolist(), **names}
        for e, t in enumerate(tables)
    ]
    figure = report.plot_labels([{"epoch": 0.5}, *rows])
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == panels
    last = tables.reshape(3, panels, -1)[:, -1]
    for line, values in zip(shown[-1].lines, last.T, strict=True):
        np.testing.assert_allclose(line.get_xdata(), [0, 1, 2, 3])
        np.testing.assert_allclose(line.get_ydata(), [100, *(100 * values)])
    assert shown[-1].get_title() == f"op {panels - 1}"
    with pytest.raises(ValueError, match="none holds method/label_confidence"):
        report.plot_labels([{"epoch": 1}])
