"""A report that is one file: no script, nothing fetched, readable on a phone and in the dark."""

import base64
import dataclasses
import io
import pathlib
import string
import struct
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

from calib_jax._io import write_atomic
from calib_jax.report._comparison import Cell, Table, calibrator_tables, compact_table
from calib_jax.report._text import legend

_SHARPNESS = 1.5  # picture's pixels per pixel of the page
_FRAME = 14  # pixels that a picture's card adds to its width
_WIDE = 700  # a wider picture is scrolled on a phone, not shrunk

_EXPLAINED = (
    ("error", "share of wrong predictions"),
    ("NLL", "mean negative log likelihood of the labels, in nats"),
    ("Brier", "squared distance between probabilities and one-hot label, summed over the classes"),
    (
        "ECE equal width",
        "mean |confidence − accuracy| over 15 bins of equal width, weighted by their examples; the "
        "most common one. Confidence is that of the predicted class",
    ),
    (
        "ECE equal mass",
        "the same with bins that hold equally many examples, so that the crowded end near 1 is "
        "looked at more closely",
    ),
    ("smooth ECE", "the same idea with a kernel that chooses its own width in place of bins"),
    ("classwise ECE", "equal-width ECE of each class's probability, averaged over the classes"),
    ("ECE debiased", "root-mean-square over the bins, less what sampling noise alone would show"),
    ("ECE sweep", "with as many bins, of equal mass or width, as leave the accuracies rising"),
    ("MCE", "the largest gap of a single equal-width bin; noisy, as that bin may be nearly empty"),
    ("AURC", "error rate of the most confident part, averaged over all sizes of that part"),
)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A PNG file's bytes, what it shows in words, and what a reader should know of it."""

    png: bytes
    alt: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the report, in this order: title, text, tables, pictures, preformatted text.

    Attributes:
      title: heading; the line that opens it, if folded.
      text: a paragraph.
      tables: with a row per method, or whatever `corner` says.
      pictures: side by side where the page is wide enough.
      code: shown as it is.
      corner: what the rows of the tables are.
      folded: closed until the reader opens it.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    code: str = ""
    corner: str = "method"
    folded: bool = False


def write_html(
    path: str | pathlib.Path,
    *,
    title: str,
    headline: str,
    summary: Mapping[str, Any],
    sections: Sequence[Section],
) -> None:
    """Writes the report: headline, main tables, sections, every calibrator's table, definitions.

    Args:
      path: of the file.
      title: of the page.
      headline: one or two sentences: what was compared, on what.
      summary: from `summarize`.
      sections: between the main tables and the details; folded ones come after the details' tables.
    """
    splits = list(summary["splits"])
    details = [table for split in splits for table in calibrator_tables(summary, split)]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="headline">{escape(headline)}</p>',
        *(_table(compact_table(summary, split), "method") for split in splits),
        f'<p class="note">{escape(legend(summary))}</p>',
        *(_section(section) for section in sections if not section.folded),
        "<h2>Which number is which</h2>",
        "<dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in _EXPLAINED)
        + "</dl>",
        "<h2>Details</h2>",
        *(_folded(table.title, _table(table, "metric")) for table in details),
        *(_section(section) for section in sections if section.folded),
    ]
    page = string.Template(_PAGE).substitute(title=escape(title), body="\n".join(body))
    write_atomic(pathlib.Path(path), page)


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file, with the pixels that the report needs."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=96 * _SHARPNESS)
    return stream.getvalue()


def _section(section: Section) -> str:
    parts = []
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    parts += [_table(table, section.corner) for table in section.tables]
    if section.pictures:
        parts.append('<div class="pictures">' + "".join(map(_picture, section.pictures)) + "</div>")
    if section.code:
        parts.append(f'<pre tabindex="0">{escape(section.code)}</pre>')
    content = "\n".join(parts)
    if section.folded:
        return _folded(section.title, content)
    return f"<section><h2>{escape(section.title)}</h2>\n{content}</section>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{content}</details>"


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    # A PNG file begins with its signature and its header's length and name, then the sizes.
    width, height = (round(n / _SHARPNESS) for n in struct.unpack(">II", picture.png[16:24]))
    box = ' class="wide" tabindex="0"' if width > _WIDE else ""
    image = f'<img src="data:image/png;base64,{data}" width="{width}" height="{height}"'
    return (
        f'<figure style="width: {width + _FRAME}px"><div{box}>{image} alt="{escape(picture.alt)}"></div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table, corner: str) -> str:
    deep = any(table.columns)
    rows = f' rowspan="{1 + deep}"' if deep else ""
    first = [f'<th scope="col"{rows}>{escape(corner)}</th>']
    second = []
    start = 0
    for title, count in table.groups:
        names = table.columns[start : start + count]
        start += count
        if any(names):
            first.append(f'<th scope="colgroup" colspan="{count}">{_unbroken(title)}</th>')
            second += [f'<th scope="col">{escape(name or "before")}</th>' for name in names]
        else:
            first.append(f'<th scope="col"{rows}>{_unbroken(title)}</th>')
    head = _row(first) + (_row(second) if deep else "")
    lines = (
        _row([f'<th scope="row">{escape(name)}</th>', *map(_cell, cells)])
        for name, cells in table.rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}"><table>'
        f"<caption>{escape(table.title)}</caption>"
        f"<thead>{head}</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _unbroken(title: str) -> str:
    return escape(title).replace(" %", "&nbsp;%")


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>\n"


def _cell(cell: Cell) -> str:
    mean = escape(cell.mean)
    mean = {"best": f"<strong>{mean}</strong>", "near": f"{mean}<sup>†</sup>"}.get(cell.mark, mean)
    small = "".join(f"<small>{escape(part)}</small>" for part in (cell.spread, cell.note) if part)
    kind = f' class="{cell.mark}"' if cell.mark else ""
    return f"<td{kind}>{mean}{small}</td>"


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1c2128; --soft: #5a6472; --line: #d8dee4; --page: #fff;
  --box: #f6f8fa; --best: #e3f1e6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ee; --soft: #9aa5b1; --line: #373f49; --page: #14181d; --box: #1c2229;
    --best: #1d3a28; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 1rem 1.25rem 3rem; color: var(--ink);
  background: var(--page); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .6rem 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
p, dl { max-width: 46rem; }
.headline { font-size: 1.1rem; max-width: 60rem; }
.note, figcaption { color: var(--soft); font-size: .875rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; line-height: 1.3;
  overflow-wrap: normal; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; font-size: 1rem; padding: .2rem 0; }
details caption { display: none; }
th, td { padding: .35rem .4rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; white-space: nowrap; }
thead th { border-bottom-width: 2px; vertical-align: bottom; white-space: normal; min-width: 3.2rem; }
th[colspan] { text-align: center; border-bottom-width: 1px; }
tr > th:first-child[scope=row], tr:first-child > th:first-child { position: sticky; left: 0;
  text-align: left; background: var(--page); }
td small { display: block; color: var(--soft); font-size: .75rem; }
td.best { background: var(--best); }
td.near { position: relative; }
td.text { text-align: left; white-space: normal; min-width: 22rem; max-width: 46rem; }
td sup { position: absolute; line-height: 1; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
figure { margin: 0; max-width: 100%; }
figure > div { background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: 6px; }
figcaption { margin-top: .3rem; max-width: 46rem; }
img { display: block; max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
.wide img { min-width: 700px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; font-size: .9375rem; }
dt { font-weight: 600; }
dd { margin: 0; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: .1rem .8rem; }
summary { cursor: pointer; padding: .4rem 0; font-weight: 600; }
pre { overflow-x: auto; background: var(--box); padding: .8rem; font-size: .8125rem; }
@media (max-width: 40rem) {
  body { padding: .5rem .75rem 2rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
  th[scope=row] { white-space: normal; }
}
</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
"""
