"""Reliability diagrams and their neighbors: panels, legends, small bins, file formats."""

import pathlib

import numpy as np
import pytest

from calib_jax import metrics, report
from calib_jax.report._prediction_plots import _risk_coverage


def _panels(number: int, n: int = 300) -> list[tuple[str, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, n)
    correct = rng.uniform(size=n) < confidence - 0.1
    return [(f"calibrator {i}", confidence, correct) for i in range(number)]


def test_nine_panels_wrap_and_have_one_legend_outside() -> None:
    figure = report.plot_reliability(_panels(9))
    assert len(figure.axes) == 18
    assert figure.get_figwidth() < 12
    assert not any(axes.get_legend() for axes in figure.axes)
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert {"fewer than 10 examples", "95 % bootstrap band", "confidence above accuracy"} <= {
        *texts
    }


def test_title_has_the_signed_gap_and_the_errors() -> None:
    ((_, confidence, correct),) = _panels(1)
    title = report.plot_reliability(_panels(1)).axes[0].get_title()
    gap = 100 * (confidence.mean() - correct.mean())
    ece, smooth = (100 * float(f(confidence, correct)) for f in (metrics.ece, metrics.smooth_ece))
    assert title.splitlines()[1:] == [
        f"ECE-15 {ece:.2f} %, smooth {smooth:.2f} %",
        f"confidence {100 * confidence.mean():.1f} %, accuracy {100 * correct.mean():.1f} %, "
        f"gap {gap:+.1f}",
    ]


def test_small_bins_are_light_and_gaps_are_colored_by_their_sign() -> None:
    confidence = np.r_[np.full(100, 0.95), np.full(9, 0.55), np.full(50, 0.75)]
    correct = np.r_[np.arange(100) < 80, np.arange(9) < 3, np.arange(50) < 45]
    figure = report.plot_reliability([("x", confidence, correct)], num_bins=10)
    bars = figure.axes[0].patches
    light = {round(float(bar.get_x()), 2) for bar in bars if bar.get_alpha() == 0.3}
    assert light == {0.5}
    edges = {
        round(float(bar.get_x()), 2): bar.get_edgecolor()
        for bar in bars
        if bar.get_hatch() is not None
    }
    assert edges[0.9][:3] != edges[0.7][:3], "over- and underconfident"


def test_smoothed_curve_is_that_of_metrics() -> None:
    ((_, confidence, correct),) = _panels(1, n=3000)
    figure = report.plot_reliability([("x", confidence, correct)])
    diagonal, line = figure.axes[0].lines
    assert list(diagonal.get_xdata()) == [0, 1]
    sigma = np.clip(float(metrics.smooth_curve(confidence, correct).bandwidth), 0.04, 0.08)
    curve = metrics.smooth_curve(confidence, correct, bandwidth=sigma)
    x, y = line.get_data()
    expected = np.interp(x, np.asarray(curve.confidence), np.asarray(curve.accuracy))
    shown = np.isfinite(y) & (x > 0.45)
    np.testing.assert_allclose(y[shown], expected[shown], atol=0.01)


def test_smoothed_curve_follows_the_bars_of_a_large_error() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 20_000)
    correct = rng.random(20_000) < confidence**4  # 0.3 too sure in the middle, right at the end
    line = report.plot_reliability([("x", confidence, correct)]).axes[0].lines[1]
    at = np.array([0.5, 0.65, 0.8, 0.9])
    np.testing.assert_allclose(np.interp(at, *line.get_data()), at**4, atol=0.05)


def test_risk_coverage_is_that_of_metrics_with_ties_too() -> None:
    rng = np.random.default_rng(0)
    confidence = np.round(rng.uniform(size=200), 1).astype(np.float32)
    correct = (rng.uniform(size=200) < 0.7).astype(np.float32)
    for found, expected in zip(
        _risk_coverage(confidence, correct), metrics.risk_coverage(confidence, correct), strict=True
    ):
        np.testing.assert_allclose(found, np.asarray(expected), atol=1e-5)
    figure = report.plot_risk_coverage([("x", confidence, correct)])
    area = 100 * float(metrics.aurc(confidence, correct))
    assert figure.legends[0].get_texts()[0].get_text() == f"x  AURC {area:.2f} %"


def test_unavoidable_risk_is_that_of_the_highest_accuracy() -> None:
    confidence = np.linspace(0.3, 1, 10)
    right = {"a": np.arange(10) < 8, "b": np.arange(10) < 5}
    figure = report.plot_risk_coverage([(name, confidence, y) for name, y in right.items()])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[-1] == "unavoidable at 80.0 % accuracy"
    (area,) = figure.axes[0].collections
    assert area.get_paths()[0].vertices[:, 1].max() == pytest.approx(20)


@pytest.mark.parametrize("suffix", report.PLOT_FORMATS)
def test_plots_are_saved_in_three_formats_and_are_the_same_each_time(
    tmp_path: pathlib.Path, suffix: str
) -> None:
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    contents = []
    for _ in range(2):
        report.save_plot(report.plot_risk_coverage(_panels(1)), tmp_path / f"plot.{suffix}")
        contents.append((tmp_path / f"plot.{suffix}").read_bytes())
    assert contents[0].startswith(starts[suffix])
    assert contents[0] == contents[1]


def test_other_formats_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="plot_format='jpg': expected one of png, svg, pdf"):
        report.save_plot(report.plot_focal_losses(), tmp_path / "x.jpg")


def test_confusion_matrices_can_share_a_scale() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1])
    figures = [
        report.plot_confusion(predicted, labels, "ab", top=50.0)
        for predicted in (np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 1, 1]))
    ]
    assert [figure.axes[0].images[0].get_clim() for figure in figures] == [(0, 50), (0, 50)]
