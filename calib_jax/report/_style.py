"""Colors, line styles, grids of panels and legends that all plots share."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colors, which the color-blind tell apart too, without the yellow.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LINE_STYLES = ("-", "--", "-.", ":")
OVER, UNDER = "#c8553d", "#2f6db5"  # over-confident and focal; under-confident and inverse focal


def color_and_style(i: int) -> tuple[str, str]:
    """Return the color and the line style of the i-th line: a new style when all colors are used."""
    return COLORS[i % len(COLORS)], LINE_STYLES[i // len(COLORS) % len(LINE_STYLES)]


def panel_grid(
    num_panels: int,
    max_columns: int,
    size: tuple[float, float] = (3.5, 3.1),
    *,
    shared: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, in rows of at most `max_columns`.

    Args:
      num_panels: Number of panels.
      max_columns: Number of panels in a full row.
      size: Width and height of a panel in inches.
      shared: Whether all panels have the same axes.
    """
    columns = min(max_columns, num_panels)
    rows = -(-num_panels // columns)
    figsize = (0.6 + size[0] * columns, 0.6 + size[1] * rows)
    figure = Figure(figsize=figsize, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).flat
    for axes in grid[num_panels:]:
        axes.remove()
    for axes in grid[max(0, num_panels - columns) : num_panels]:
        axes.tick_params(labelbottom=True)  # shared axes label the last row only, which has gaps
    return figure, list(grid[:num_panels])


def legend_below(figure: Figure, panels: Sequence[Axes], max_columns: int = 4) -> None:
    """Put one legend of all panels below them; what several have in common is there once."""
    entries = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center",
        ncols=min(max_columns, len(entries)), frameon=False, fontsize=9,
    )  # fmt: skip
