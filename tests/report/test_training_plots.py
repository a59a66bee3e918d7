"""Pictures of training: what the lines, bands and titles say."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from calib_jax import report


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
    assert (band.min(), band.max()) == pytest.approx((1.0, 15.0))
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


def test_gamma_needs_gamma() -> None:
    with pytest.raises(ValueError, match="expected some with 'method/gamma', found none"):
        report.plot_gamma(_runs(1)[0])
