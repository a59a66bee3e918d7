"""The figure of a run, drawn from the lines of its JSONL."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calib_jax.report._style import COLORS

Lines = Sequence[dict[str, Any]]

_BLUE, _RED, _GREEN = COLORS[:3]
_PALE, _TARGET = "#9ecae1", "#333333"
_MOST_RACES = 45
_BAR, _TEXT = 0.72, 8


def draw(lines: Lines) -> Figure | None:
    """Draw all panels that have data: comparisons on the left, the cost of our methods on the right."""
    races = _races(lines)
    panels = [(title, of, show) for title, pick, show in _PANELS if (of := pick(lines))]
    if not races and not panels:
        return None
    rows = -(-len(panels) // 2)
    height = max(4.0, 3.4 * rows, 0.215 * len(races) + 1.2 if races else 0.0)
    widths = [w for w, there in ((1.05, races), (1.3, panels)) if there]
    figure = Figure(figsize=(7.6 * sum(widths), height), layout="constrained")
    figure.set_facecolor("white")
    parts = iter(
        figure.subfigures(1, len(widths), squeeze=False, width_ratios=widths, wspace=0.03)[0]
    )
    if races:
        _draw_races(next(parts).subplots(), races)
    if panels:
        places = next(parts).subplots(rows, min(2, len(panels)), squeeze=False).ravel()
        for axes, (title, of, show) in zip(places, panels, strict=False):
            axes.set_title(title, fontsize=10, loc="left", fontweight="bold")
            axes.tick_params(labelsize=_TEXT)
            axes.spines[["top", "right"]].set_visible(False)
            show(axes, of)
        for axes in places[len(panels) :]:
            axes.set_axis_off()
    return figure


def _races(lines: Lines) -> list[dict[str, Any]]:
    """The rivals that could be timed, slowest last; if they are too many, first those with a target."""
    found = [x for x in lines if x.get("ratio") and not x["overhead"]]
    found = [x for x in found if x["ratio"] != 1 and not x["contestant"].startswith("calib_jax")]
    if len(found) > _MOST_RACES:
        found = [x for x in found if x["target"]] + [x for x in found if not x["target"]]
    return sorted(found[:_MOST_RACES], key=lambda x: x["ratio"])


def _draw_races(axes: Axes, races: Lines) -> None:
    """Bars of a logarithmic ratio: to the right ours is faster, to the left the rival."""
    ratios = np.array([x["ratio"] for x in races])
    y = np.arange(len(races))
    colors = [_BLUE if r >= 1 else _RED for r in ratios]
    axes.barh(y, ratios - 1, left=1, height=_BAR, color=colors)
    for i, x in enumerate(races):
        right = x["ratio"] >= 1
        axes.text(x["ratio"] * (1.06 if right else 0.94), i, _times(x["ratio"]), va="center",
                  ha="left" if right else "right", fontsize=_TEXT)  # fmt: skip
        _mark(axes, _target(x), i)
    axes.set_yticks(y, [f"{x['case']}  ·  {x['contestant']}" for x in races], fontsize=_TEXT)
    axes.set_xscale("log")
    axes.set_xlim(min(0.3, 0.35 * ratios.min()), max(10.0, 2.2 * ratios.max()))
    axes.set_ylim(-0.7, len(races) - 0.3)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xlabel("time over ours (red: they are faster); | is the target", fontsize=_TEXT)
    axes.set_title("Others over ours", fontsize=10, loc="left", fontweight="bold")
    axes.tick_params(labelsize=_TEXT)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _target(line: dict[str, Any]) -> float | None:
    """The number of a target such as `<= 5 %`."""
    return float(line["target"].split()[1]) if line["target"] else None


def _mark(axes: Axes, target: float | None, y: float) -> None:
    if target is not None:
        axes.plot([target, target], [y - 0.45, y + 0.45], color=_TARGET, lw=2)


def _times(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def _bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    color: Any,
    form: str,
    targets: Sequence[float | None] = (),
) -> None:
    """Horizontal bars from the top down, each with its number, and a mark where it should end."""
    y = np.arange(len(names))
    axes.barh(y, values, height=_BAR, color=color)
    for i, value in enumerate(values):
        beside = max(value, targets[i] or 0.0) if targets else value
        axes.text(beside, i, "  " + form.format(value), va="center", fontsize=_TEXT)
    for i, target in enumerate(targets):
        _mark(axes, target, i)
    axes.set_yticks(y, names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max(values))


def _show_overhead(axes: Axes, lines: Lines) -> None:
    colors = [_PALE if x["reached"] is None else _BLUE if x["reached"] else _RED for x in lines]
    names = [x["contestant"] + ("" if x["suite"] == "overhead" else ", text") for x in lines]
    targets = [_target(x) for x in lines]
    _bars(axes, names, [x["ratio"] for x in lines], colors, "{:.2f}", targets)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xlabel("step time over cross entropy's; | is the target", fontsize=_TEXT)


def _show_memory(axes: Axes, lines: Lines) -> None:
    values = [x["values"] for x in lines]
    names = [v["method"] for v in values]
    _bars(axes, names, [v["high-water mark"] for v in values], _PALE, "{:.0f}")
    axes.barh(np.arange(len(names)), [v["arguments"] for v in values], height=_BAR, color=_BLUE)
    axes.set_xlabel("MB: state and batch (dark), the rest of the high-water mark", fontsize=_TEXT)


def _show_compile(axes: Axes, lines: Lines) -> None:
    values = [x["values"] for x in lines]
    y = np.arange(len(values))
    for when, shift, color in (("cold", -0.2, _RED), ("warm", 0.2, _GREEN)):
        seconds = [v[f"initialization, {when}"] + v[f"first step, {when}"] for v in values]
        axes.barh(y + shift, seconds, height=0.38, color=color, label=f"{when} cache")
        for i, s in enumerate(seconds):
            axes.text(s, i + shift, f" {s:.1f}", va="center", fontsize=_TEXT)
    axes.set_yticks(y, [v["method"] for v in values])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.legend(fontsize=_TEXT, frameon=False)
    axes.set_xlabel("seconds for initialization and first step, after imports", fontsize=_TEXT)


def _show_reading(axes: Axes, lines: Lines) -> None:
    values = [x["values"] for x in lines]
    names = [v["workers"] for v in values]
    _bars(axes, names, [v["examples/s"] for v in values], _BLUE, "{:.0f}")
    axes.set_xlabel("photographs read per second", fontsize=_TEXT)


def _show_waiting(axes: Axes, lines: Lines) -> None:
    names = [x["values"]["data"].replace(", ", "\n") for x in lines]
    colors = [_BLUE if x["reached"] else _RED for x in lines]
    shares, targets = [100 * x["details"]["share"] for x in lines], [_target(x) for x in lines]
    _bars(axes, names, shares, colors, "{:.1f} %", targets)
    axes.set_xlim(0, max(7.0, 1.2 * max(shares)))
    axes.set_xlabel("% of the time, at most; | is the target", fontsize=_TEXT)


def _show_scale(axes: Axes, lines: Lines) -> None:
    curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for v in (x["values"] for x in lines):
        points = curves.setdefault((v["method"], v["parameters"]), [])
        points.append((int(v["devices"]), v["MB sent / device"]))
    methods = list(dict.fromkeys(method for method, _ in curves))
    for (method, parameters), points in curves.items():
        place = methods.index(method)
        # Ever thinner and smaller: what sends as much as the one before it does not hide it.
        axes.plot(
            *zip(*points, strict=True),
            "s:" if parameters == "fsdp" else "o-",
            color=COLORS[place],
            lw=4 / (1 + place),
            ms=9 / (1 + place),
            label=f"{method}, {parameters}",
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    _size_ticks(axes, [x for points in curves.values() for x, _ in points])
    _legend(axes)
    axes.set_xlabel("devices (simulated)", fontsize=_TEXT)
    axes.set_ylabel("MB sent per device and step", fontsize=_TEXT)


def _show_growth(axes: Axes, lines: Lines) -> None:
    for i, x in enumerate(lines):
        sizes, seconds = (np.array(x["details"][key]) for key in ("sizes", "seconds"))
        label = f"{x['values']['piece']}: {x['values']['exponent']:.2f}"
        axes.plot(sizes, 1e3 * seconds, "o-", color=COLORS[i % len(COLORS)], lw=1.4, ms=3.5,
                  label=label)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    _size_ticks(axes, lines[0]["details"]["sizes"])
    _legend(axes, "fitted exponent")
    axes.set_xlabel(lines[0]["values"]["along"], fontsize=_TEXT)
    axes.set_ylabel("ms", fontsize=_TEXT)


def _size_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    """The sizes themselves on a logarithmic axis, and nothing between."""
    names = [f"{size // 1000}k" if size >= 10_000 else str(size) for size in sorted(set(sizes))]
    axes.set_xticks(sorted(set(sizes)), names)
    axes.minorticks_off()
    axes.grid(alpha=0.25)


def _legend(axes: Axes, title: str = "") -> None:
    """Below the curves, where it hides none."""
    axes.legend(
        fontsize=_TEXT - 1,
        frameon=False,
        title=title or None,
        title_fontsize=_TEXT - 1,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=2,
    )


Pick = Callable[[Lines], list[dict[str, Any]]]


def _of_suite(suite: str, column: str = "", value: str | None = None) -> Pick:
    """Lines of a suite whose tables have this column, with this value there."""

    def pick(lines: Lines) -> list[dict[str, Any]]:
        found = [x for x in lines if x["suite"] == suite and column in x.get("values", {})]
        return [x for x in found if value is None or x["values"][column] == value]

    return pick


def _overhead(lines: Lines) -> list[dict[str, Any]]:
    """Steps over cross entropy's: of images, and of text from the suites of those methods."""
    steps = [x for x in lines if x["suite"] in ("overhead", "aum_mixup", "distill")]
    found = [x for x in steps if x.get("overhead") and x["ratio"] and x["torch_threads"] is None]
    return [x for x in found if x["ratio"] != 1]  # not cross entropy itself


_PANELS: tuple[tuple[str, Pick, Callable[[Axes, Lines], None]], ...] = (
    ("What a method costs: time", _overhead, _show_overhead),
    ("What a method costs: memory", _of_suite("memory", "method"), _show_memory),
    ("How fast data is read", _of_suite("loading", "workers"), _show_reading),
    ("How long training waits for data", _of_suite("loading", "data"), _show_waiting),
    ("Until the first step is done", _of_suite("compile", "method"), _show_compile),
    ("What devices send each other", _of_suite("scale", "devices"), _show_scale),
    ("Growth with examples N", _of_suite("growth", "along", "N"), _show_growth),
    ("Growth with classes K", _of_suite("growth", "along", "K"), _show_growth),
    ("Growth with the batch B", _of_suite("growth", "along", "B"), _show_growth),
    ("Growth with bins", _of_suite("growth", "along", "bins"), _show_growth),
)
