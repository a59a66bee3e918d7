"""Colors and line styles that all plots share."""

# Okabe and Ito's colors, which the color-blind tell apart too, without the yellow.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LINE_STYLES = ("-", "--", "-.", ":")


def color_and_style(i: int) -> tuple[str, str]:
    """Return the color and the line style of the i-th line: a new style when all colors are used."""
    return COLORS[i % len(COLORS)], LINE_STYLES[i // len(COLORS) % len(LINE_STYLES)]
