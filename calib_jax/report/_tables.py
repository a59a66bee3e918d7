"""Text tables for people."""

from collections.abc import Mapping, Sequence

# name, how it is called in a table, percent?, is more better? (None: neither)
METRICS = (
    ("accuracy", "accuracy %", True, True),
    ("f1_macro", "F1 macro %", True, True),
    ("f1_weighted", "F1 weighted %", True, True),
    ("confidence", "mean confidence %", True, None),
    ("nll", "NLL (nats)", False, False),
    ("refinement", "NLL after best T", False, False),
    ("brier", "Brier", False, False),
    ("ece", "ECE-15 equal width %", True, False),
    ("ece_10", "ECE-10 equal width %", True, False),
    ("ece_mass", "ECE-15 equal mass %", True, False),
    ("ece_debiased", "ECE-15 debiased L2 %", True, False),
    ("ece_sweep", "ECE sweep equal mass %", True, False),
    ("ece_sweep_width", "ECE sweep equal width %", True, False),
    ("smooth_ece", "smooth ECE %", True, False),
    ("classwise_ece", "classwise ECE-15 %", True, False),
    ("mce", "MCE-15 %", True, False),
    ("aurc", "AURC %", True, False),
    ("e_aurc", "E-AURC %", True, False),
)


def metric_table(
    columns: Sequence[tuple[str, Mapping[str, float], Mapping[str, tuple[float, float]]]],
    *,
    starred: bool = True,
) -> str:
    """A Markdown table, aligned to be read as it is: a row per metric, a column per method.

    Args:
      columns: for each method its name, its metrics and the intervals of some of them. A metric that
        one of them lacks has no row.
      starred: star the best value of a row.
    """
    header = ["metric", *(name for name, _, _ in columns)]
    rows = [header]
    for key, title, percent, more_is_better in METRICS:
        if not all(key in values for _, values, _ in columns):
            continue
        shown = [_cell(values[key], spans.get(key), percent) for _, values, spans in columns]
        if starred and more_is_better is not None and len(columns) > 1:
            values = [v[key] for _, v, _ in columns]
            best = max(values) if more_is_better else min(values)
            if max(values) > min(values):
                shown = [s + "*" * (v == best) for s, v in zip(shown, values, strict=True)]
        rows.append([title, *shown])
    return markdown_table(rows)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, the header first, as an aligned Markdown table: names left, numbers right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0])]
        cells += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def _cell(value: float, span: tuple[float, float] | None, percent: bool) -> str:
    scale, digits = (100, 2) if percent else (1, 4)
    text = f"{scale * value:.{digits}f}"
    if span is None:
        return text
    low, high = (f"{scale * end:.{digits}f}" for end in span)
    return f"{text} [{low}, {high}]"
