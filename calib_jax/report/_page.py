"""The page of a report: tables, pictures and text, rendered by `page.html.jinja` into one file."""

import base64
import dataclasses
import io
import pathlib
import struct
from collections.abc import Sequence

import jinja2
from matplotlib.figure import Figure

from calib_jax._io import write_atomic
from calib_jax.metrics import METRICS
from calib_jax.report._summary import Summary
from calib_jax.report._summary_tables import calibrator_tables, compact_table
from calib_jax.report._summary_text import legend
from calib_jax.report._table import Table

_PIXEL_RATIO = 1.5  # picture's pixels per pixel of the page
_FRAME = 14  # pixels that a picture's frame adds to its width
_SCROLLED_WIDTH = 700  # a wider picture is scrolled on a phone, not shrunk
_EXPLAINED = (
    *("error", "nll", "brier", "ece", "ece_mass", "smooth_ece", "classwise_ece"),
    *("ece_debiased", "ece_sweep", "mce", "aurc"),
)
_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("calib_jax.report", "."),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture of the page.

    Attributes:
      png: Bytes of a PNG file.
      alt: What it shows, in words.
      caption: What a reader should know about it.
    """

    png: bytes
    alt: str
    caption: str

    @property
    def base64(self) -> str:
        """Return the file as text for a data URL."""
        return base64.b64encode(self.png).decode("ascii")

    @property
    def width(self) -> int:
        """Return the width on the page, in pixels."""
        return self._size()[0]

    @property
    def height(self) -> int:
        """Return the height on the page, in pixels."""
        return self._size()[1]

    def _size(self) -> tuple[int, int]:
        # A PNG file begins with its signature and its header's length and name, then the sizes.
        width, height = struct.unpack(">II", self.png[16:24])
        return round(width / _PIXEL_RATIO), round(height / _PIXEL_RATIO)


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the page, in this order: title, text, tables, pictures, preformatted text.

    Attributes:
      title: Heading; the line that opens the section, if folded.
      text: Paragraph.
      tables: Tables, one below the other.
      pictures: Pictures, side by side where the page is wide enough.
      code: Preformatted text.
      folded: Whether it is closed until the reader opens it.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    code: str = ""
    folded: bool = False


def write_html(
    path: str | pathlib.Path,
    *,
    title: str,
    headline: str,
    summary: Summary,
    sections: Sequence[Section],
) -> None:
    """Write the page: headline, main tables, sections, definitions, a table per calibrator.

    Args:
      path: File to write.
      title: Title of the page.
      headline: One or two sentences: what was compared, on what.
      summary: Summary from `summarize`.
      sections: Sections between the main tables and the definitions; folded ones come last.
    """
    splits = list(summary["splits"])
    page = _TEMPLATES.get_template("page.html.jinja").render(
        title=title,
        headline=headline,
        main_tables=[compact_table(summary, split) for split in splits],
        legend=legend(summary),
        sections=sections,
        explained=[METRICS[key] for key in _EXPLAINED],
        detail_tables=[table for split in splits for table in calibrator_tables(summary, split)],
        frame=_FRAME,
        scrolled_width=_SCROLLED_WIDTH,
    )
    write_atomic(pathlib.Path(path), page)


def png(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file, with as many pixels as the page needs."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=96 * _PIXEL_RATIO)
    return stream.getvalue()
