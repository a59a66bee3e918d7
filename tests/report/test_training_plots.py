"""Pictures of training: what the lines, bands and titles say."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from calib_jax import losses, metrics, report


def _runs(num_seeds: int = 3, epochs: int = 5) -> list[list[dict]]:
    rng = np.random.default_rng(0)
    return [
        [
            {"epoch": float(e), "train/loss": 1 / e + rng.uniform(), "val/accuracy": 0.9 - 0.1 / e,
             "val/ece_mass": 0.01 * e * (1 + seed)}
            for e in range(1, epochs + 1)
        ]
        for seed in range(num_seeds)
    ]  # fmt: skip


def _gamma_rows(epochs: int = 6, num_bins: int = 15) -> list[dict]:
    gammas = np.linspace(-2, 20, num_bins)
    return [
        {"epoch": float(e), "method/gamma": (1 + (gammas - 1) * e / epochs).tolist(),
         "method/gap": np.linspace(-0.2, 0.2, num_bins).tolist(),
         "method/edges": np.linspace(0.3, 0.99995, num_bins - 1).tolist()}
        for e in range(1, epochs + 1)
    ]  # fmt: skip


def _drawn(figure: Figure) -> np.ndarray:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    return np.asarray(Image.open(stream).convert("RGB"), float)


def test_curves_are_means_over_seeds_in_a_band() -> None:
    runs = _runs()
    figure = report.plot_curves({"ce": runs, "adafocal": runs[:1]})
    loss, error, ece = figure.axes
    losses = np.array([[row["train/loss"] for row in run] for run in runs])
    np.testing.assert_allclose(loss.lines[0].get_ydata(), losses.mean(0))
    np.testing.assert_allclose(
        error.lines[0].get_ydata(), [100 * (0.1 + 0.1 / e) for e in range(1, 6)]
    )
    np.testing.assert_allclose(ece.lines[0].get_ydata(), [2.0 * e for e in range(1, 6)])
    band = ece.collections[0].get_paths()[0].vertices[:, 1]
    # Seeds at 1, 2 and 3 times the epoch: a mean of 2 and a standard deviation of 1.
    assert (band.min(), band.max()) == pytest.approx((1.0, 15.0))
    band = loss.collections[0].get_paths()[0].vertices[:, 1]
    std = losses.std(0, ddof=1)
    assert band.max() == pytest.approx((losses.mean(0) + std).max())
    assert band.min() == pytest.approx((losses.mean(0) - std).min())
    assert loss.get_yscale() == "log"
    assert error.get_ylim()[0] == 0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ce", "adafocal"]
    assert _drawn(figure).std() > 10


def test_curves_of_seeds_that_stopped_early_use_those_that_went_on() -> None:
    long, short = _runs(2)
    figure = report.plot_curves({"ce": [long, short[:2]]})
    ece = figure.axes[2].lines[0]
    np.testing.assert_allclose(ece.get_xdata(), [1, 2, 3, 4, 5])
    np.testing.assert_allclose(ece.get_ydata(), [1.5, 3, 3, 4, 5])


def test_curves_leave_out_what_no_run_has() -> None:
    run = [{"epoch": 1.0, "train/loss": -0.5}, {"epoch": 2.0, "train/loss": -0.7}]
    figure = report.plot_curves({"ce": [run], "empty": [[]]})
    assert len(figure.axes) == 1
    assert figure.axes[0].get_yscale() == "linear", "a negative loss has no logarithm"
    with pytest.raises(ValueError, match="no row holds any of train/loss, val/accuracy"):
        report.plot_curves({"ce": [[{"epoch": 1.0}]]})


def test_gamma_has_a_panel_per_bin_with_its_probabilities() -> None:
    rows = _gamma_rows()
    figure = report.plot_gamma(rows)
    gammas, gaps = figure.axes[1::2], figure.axes[0::2]
    assert len(gammas) == len(gaps) == 15
    titles = [axes.get_title() for axes in gaps]
    assert titles[0] == "bin 1:  p 0 to 0.30"
    assert titles[-1] == "bin 15:  p 0.999950 to 1"
    for b, axes in enumerate(gammas):
        values = [row["method/gamma"][b] for row in rows]
        line = next(
            x for x in axes.lines if len(x.get_xdata()) == len(rows) and x.get_color() == "#222222"
        )
        np.testing.assert_allclose(line.get_ydata(), values)
        assert axes.get_ylim()[0] <= min(values)
        assert axes.get_ylim()[1] >= max(values)
        assert axes.texts[0].get_text() == f"{values[-1]:.2g}".replace("-", "−")
    assert len({axes.get_ylim() for axes in gammas}) == 1, "panels compare"
    assert _drawn(figure).std() > 10


def test_gamma_is_warm_above_zero_and_cool_below() -> None:
    axes = report.plot_gamma(_gamma_rows()).axes[1]
    (focal, inverse) = sorted(axes.patches, key=lambda p: -p.get_extents().y1)
    assert focal.get_facecolor()[0] > focal.get_facecolor()[2]
    assert inverse.get_facecolor()[2] > inverse.get_facecolor()[0]
    zero = axes.transData.transform((0, 0))[1]
    assert focal.get_extents().y0 == pytest.approx(zero)
    assert inverse.get_extents().y1 == pytest.approx(zero)


def test_gamma_without_gap_or_edges() -> None:
    keep = ("epoch", "method/gamma")
    rows = [{k: row[k] for k in keep} for row in _gamma_rows(num_bins=7)]
    figure = report.plot_gamma([{"epoch": 0.5, "train/loss": 1.0}, *rows])
    assert [axes.get_title() for axes in figure.axes] == [f"bin {b}" for b in range(1, 8)]
    assert _drawn(figure).std() > 10


def test_gamma_of_a_single_epoch_is_drawn() -> None:
    assert _drawn(report.plot_gamma(_gamma_rows(epochs=1))).std() > 5


def test_gap_alone_is_drawn() -> None:
    rows = [{k: v for k, v in row.items() if k != "method/gamma"} for row in _gamma_rows()]
    figure = report.plot_gamma(rows)
    assert len(figure.axes) == 15
    assert figure.axes[0].get_title() == "bin 1:  p 0 to 0.30"
    assert figure.axes[0].get_ylabel() == "gap, %"
    low, high = (figure.axes[b].collections for b in (0, 14))
    assert low[1].get_paths()[0].vertices[:, 1].min() == pytest.approx(-20)  # under-confident
    assert high[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(20)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["confidence above accuracy on validation", "below"]
    assert _drawn(figure).std() > 5


def test_gamma_needs_gamma_or_gap() -> None:
    with pytest.raises(ValueError, match="expected some with 'method/gamma' or 'method/gap', foun"):
        report.plot_gamma(_runs(1)[0])


def _correspondence_rows(epochs: int = 6, num_bins: int = 15) -> list[dict]:
    accuracy = np.linspace(0.4, 1.0, num_bins)
    return [
        {"epoch": float(e), "method/train_confidence": (accuracy - 0.2 + 0.05 * e).tolist(),
         "method/val_confidence": (accuracy - 0.1 + 0.05 * e).tolist(),
         "method/val_accuracy": accuracy.tolist(),
         "method/edges": np.linspace(0.3, 0.95, num_bins - 1).tolist()}
        for e in range(1, epochs + 1)
    ]  # fmt: skip


def test_correspondence_has_a_low_a_middle_and_a_high_bin() -> None:
    rows = _correspondence_rows()
    rows[2]["method/train_confidence"][0] = 0.0  # no training example was there
    figure = report.plot_correspondence([{"epoch": 0.0}, *rows])
    assert [a.get_title() for a in figure.axes] == [
        "bin 1:  p 0 to 0.30", "bin 8:  p 0.60 to 0.65", "bin 15:  p 0.950 to 1",
    ]  # fmt: skip
    for axes, b in zip(figure.axes, (0, 7, 14), strict=True):
        train, confidence, accuracy = axes.lines
        for line, key in (
            (train, "train_confidence"), (confidence, "val_confidence"), (accuracy, "val_accuracy"),
        ):  # fmt: skip
            values = np.array([row[f"method/{key}"][b] for row in rows])
            np.testing.assert_allclose(line.get_ydata(), np.where(values == 0, np.nan, values))
            np.testing.assert_allclose(line.get_xdata(), range(1, 7))
        # The marks of the paper's figure: training solid, validation starred, accuracy dashed.
        assert (train.get_linestyle(), train.get_marker()) == ("-", "None")
        assert confidence.get_marker() == "*"
        assert accuracy.get_linestyle() == "--"
    assert np.isnan(figure.axes[0].lines[0].get_ydata()[2])
    assert _drawn(figure).std() > 10


def test_correspondence_of_few_bins_and_one_epoch() -> None:
    figure = report.plot_correspondence(_correspondence_rows(epochs=1, num_bins=2))
    assert [a.get_title() for a in figure.axes] == ["bin 1:  p 0 to 0.30", "bin 2:  p 0.30 to 1"]
    assert all(line.get_marker() == "*" for line in figure.axes[0].lines), "a point is seen"
    with pytest.raises(ValueError, match=r"expected some with method/train_confidence, .*none"):
        report.plot_correspondence(_gamma_rows())


def _monitor_rows(scale: float = 1.0, epochs: int = 6, num_bins: int = 15) -> list[dict]:
    rows = _correspondence_rows(epochs, num_bins)
    for row in rows:
        confidence = np.array(row["method/train_confidence"])
        row["method/val_edges"] = row.pop("method/edges")
        row["method/val_gap"] = (scale * np.linspace(-0.2, 0.2, num_bins)).tolist()
        row["method/train_top_confidence"] = (confidence + 0.01).tolist()
        row["method/train_own_confidence"] = (confidence + 0.02).tolist()
        row["method/train_own_edges"] = np.linspace(0.2, 0.9, num_bins - 1).tolist()
    return rows


def test_titles_are_of_the_bins_that_are_shown() -> None:
    """A method with five bins, monitored by fifteen."""
    rows = [
        monitored | row
        for monitored, row in zip(_monitor_rows(), _gamma_rows(num_bins=5), strict=True)
    ]
    gammas = report.plot_gamma(rows)
    assert len(gammas.axes) == 2 * 5
    assert gammas.axes[-2].get_title() == "bin 5:  p 0.999950 to 1"
    titles = [axes.get_title() for axes in report.plot_correspondence(rows).axes]
    assert titles == ["bin 1:  p 0 to 0.30", "bin 8:  p 0.60 to 0.65", "bin 15:  p 0.950 to 1"]
    # Of a method without bins, those of the monitor.
    gaps = report.plot_gamma(_monitor_rows())
    assert len(gaps.axes) == 15
    assert gaps.axes[-1].get_title() == "bin 15:  p 0.950 to 1"


def test_bins_of_methods_side_by_side() -> None:
    runs = {"ce": [_monitor_rows(1.0), _monitor_rows(3.0)], "none": [_runs(1)[0]]}
    runs["focal"] = [_monitor_rows(2.0)]
    runs["focal"][0][1]["method/train_confidence"][0] = 0.0  # no example was there
    figure = report.plot_bins(runs)
    assert [axes.get_title() for axes in figure.axes[:3]] == [
        "bin 1 of 15", "bin 8 of 15", "bin 15 of 15",
    ]  # fmt: skip
    low, _, high, below = figure.axes[:4]
    np.testing.assert_allclose(low.lines[0].get_ydata(), -40)  # the mean of -20 and -60
    band = high.collections[0].get_paths()[0].vertices[:, 1]
    std = 20 * np.sqrt(2)
    assert (band.min(), band.max()) == pytest.approx((40 - std, 40 + std))
    train, val, other, _ = below.lines
    np.testing.assert_allclose(train.get_ydata(), [0.2 + 0.05 * e for e in range(1, 7)])
    np.testing.assert_allclose(val.get_ydata(), [0.3 + 0.05 * e for e in range(1, 7)])
    assert (train.get_marker(), val.get_marker()) == ("None", "*")
    assert np.isnan(other.get_ydata()[1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ce", "focal"]
    assert _drawn(figure).std() > 10
    with pytest.raises(ValueError, match="expected some with method/val_gap"):
        report.plot_bins({"ce": _runs(1)})


def test_training_bins_by_class_and_in_bins_of_their_own() -> None:
    figure = report.plot_training_bins([{"epoch": 0.0}, *_monitor_rows()])
    above, below = figure.axes[2], figure.axes[5]  # of the last bin
    true, top = (line.get_ydata() for line in above.lines)
    np.testing.assert_allclose(true, [0.8 + 0.05 * e for e in range(1, 7)])
    np.testing.assert_allclose(top - true, 0.01)
    own, val = (line.get_ydata() for line in below.lines)
    np.testing.assert_allclose(own - true, 0.02)
    np.testing.assert_allclose(val, [0.9 + 0.05 * e for e in range(1, 7)])
    ends = [c.get_paths()[0].vertices[:, 1] for c in below.collections]
    assert [(y.min(), y.max()) for y in ends] == [pytest.approx((0.9, 1)), pytest.approx((0.95, 1))]
    assert _drawn(figure).std() > 10
    assert _drawn(report.plot_training_bins(_monitor_rows(epochs=1))).std() > 5
    with pytest.raises(ValueError, match="expected some with method/train_own_confidence"):
        report.plot_training_bins(_correspondence_rows())


def test_curves_of_the_test_set_where_they_were_logged() -> None:
    runs = _runs(2)
    for run in runs:
        for row in run:
            row |= {"test/accuracy": row["val/accuracy"] - 0.1, "test/ece_mass": 0.5}
    figure = report.plot_curves({"ce": runs})
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[3:] == ["test error, %", "test ECE-15 equal mass, %"]
    np.testing.assert_allclose(
        figure.axes[3].lines[0].get_ydata(), [100 * (0.2 + 0.1 / e) for e in range(1, 6)]
    )
    np.testing.assert_allclose(figure.axes[4].lines[0].get_ydata(), 50)


def test_focal_losses_are_those_of_the_library() -> None:
    figure = report.plot_focal_losses()
    lines = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    accuracy = 0.8
    for label, line in lines.items():
        kind, _, number = label.partition(", ")
        if kind.startswith("accuracy"):
            np.testing.assert_allclose(line.get_xdata(), accuracy)
            continue
        p = line.get_xdata()
        logits = np.stack([np.log(p[:-1]), np.log1p(-p[:-1])], axis=1)
        labels = np.zeros(len(p) - 1, int)
        value = float(number.partition(" = ")[2] or 0)
        if kind == "CalFocal":
            bins = metrics.BinStats(*np.array([[10.0], [9.0], [10 * accuracy]]), np.array([0, 1.0]))
            want = losses.calfocal(logits, labels, bins, lam=value, per_sample=True)
        else:
            want = losses.focal(logits, labels, -value if kind == "inverse focal" else value)
        np.testing.assert_allclose(line.get_ydata()[:-1], want, rtol=1e-3, atol=1e-5, err_msg=label)
    assert len(lines) == 6 + 3 + 1
    assert _drawn(figure).std() > 10


def test_dynamics_have_the_medians_of_both_panels() -> None:
    rng = np.random.default_rng(0)
    keys = ("confidence", "variability", "correctness")
    records = {"aum": rng.normal(size=41), **{key: rng.uniform(size=41) for key in keys}}
    records["aum"][0] = records["confidence"][0] = np.nan  # an example that was never seen
    figure = report.plot_dynamics(records)
    margins, data_map = figure.axes[:2]
    aum, confidence = (float(np.nanmedian(records[key])) for key in ("aum", "confidence"))
    assert set(margins.lines[0].get_xdata()) == {aum}
    assert set(data_map.lines[0].get_ydata()) == {confidence}
    told = [axes.texts[0].get_text() for axes in (margins, data_map)]
    assert told == [f"median {aum:.2f}", f"median {confidence:.2f}"]
    assert _drawn(figure).std() > 10


def test_roc_has_a_color_per_method_solid_before_and_dashed_after() -> None:
    rng = np.random.default_rng(0)
    outside = np.arange(300) >= 200
    before = (rng.normal(size=300) + outside, outside)
    after = (rng.normal(size=300) + 2 * outside, outside)
    figure = report.plot_roc({"ce": [before, after], "brier": [after]})
    chance, *curves = figure.axes[0].lines
    assert list(chance.get_xdata()) == list(chance.get_ydata()) == [0, 1]
    assert [line.is_dashed() for line in curves] == [False, True, False]
    assert curves[0].get_color() == curves[1].get_color() != curves[2].get_color()
    area = [float(metrics.auroc(*pair)) for pair in (before, after)]
    for line, want in zip(curves, (area[0], area[1], area[1]), strict=True):
        assert np.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(want, abs=1e-4)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [
        f"ce  AUROC {100 * area[0]:.2f} %, +T {100 * area[1]:.2f} %",
        f"brier  AUROC {100 * area[1]:.2f} %",
    ]
    assert _drawn(figure).std() > 10
