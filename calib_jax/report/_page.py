"""The page of a report: tables, pictures and text, rendered by `page.html.jinja` into one file."""

import base64
import dataclasses
import functools
import io
import pathlib
from collections.abc import Sequence

import jinja2
import matplotlib
from matplotlib.figure import Figure

from calib_jax._hints import check_choice
from calib_jax._io import write_atomic
from calib_jax.metrics import METRICS
from calib_jax.report._interactive import Sample
from calib_jax.report._table import Table
from calib_jax.report._types import PLOT_FORMATS

_PIXEL_RATIO = 1.5  # picture's pixels per pixel of the page
_FRAME = 14  # pixels that a picture's frame adds to its width
_SCROLLED_WIDTH = 700  # a wider picture is scrolled on a phone, not shrunk
_EXPLAINED = (
    *("error", "gap", "nll", "brier", "ece", "ece_mass", "smooth_ece", "classwise_ece"),
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
      figure: Figure to show.
      alt: What it shows, in words.
      caption: What a reader should know about it.
      name: Name of its file in `plots/`, without suffix; empty if it is only on the page.
    """

    figure: Figure
    alt: str
    caption: str
    name: str = ""

    @functools.cached_property
    def base64(self) -> str:
        """Return a PNG file as text for a data URL."""
        return base64.b64encode(_render(self.figure, "png")).decode("ascii")

    @property
    def width(self) -> int:
        """Return the width on the page, in pixels."""
        return round(96 * self.figure.get_figwidth())

    @property
    def height(self) -> int:
        """Return the height on the page, in pixels."""
        return round(96 * self.figure.get_figheight())


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
    verdicts: Sequence[str],
    headline: str,
    tables: Sequence[Table],
    legend: str,
    sections: Sequence[Section],
    samples: Sequence[Sample] = (),
    explained: Sequence[str] = _EXPLAINED,
) -> None:
    """Write the page: verdicts, headline, main tables, interactive figure, sections, definitions.

    Args:
      path: File to write.
      title: Title of the page.
      verdicts: Sentences that a reader should see first.
      headline: One or two sentences: what was compared, on what.
      tables: Main tables.
      legend: What their marks mean.
      sections: Sections between the main tables and the definitions; folded ones come last.
      samples: Predictions of the interactive figure; without any there is none, and no script.
      explained: Keys of the metrics whose definitions it has.
    """
    page = _TEMPLATES.get_template("page.html.jinja").render(
        title=title,
        verdicts=verdicts,
        headline=headline,
        tables=tables,
        legend=legend,
        sections=sections,
        samples=[sample.to_json() for sample in samples],
        explained=[METRICS[key] for key in explained],
        frame=_FRAME,
        scrolled_width=_SCROLLED_WIDTH,
    )
    write_atomic(pathlib.Path(path), page)


def save_plot(figure: Figure, path: str | pathlib.Path) -> None:
    """Write a figure, atomically, as PNG, SVG or PDF by the suffix of the path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_plot(Figure(), f"{folder}/empty.svg")

    Args:
      path: File to write, in a folder that exists.
      figure: Figure to draw.

    Raises:
      ValueError: The suffix is another one.
    """
    path = pathlib.Path(path)
    plot_format = path.suffix.removeprefix(".")
    check_choice("plot_format", plot_format, PLOT_FORMATS)
    write_atomic(path, _render(figure, plot_format))


@functools.lru_cache(maxsize=4)  # a figure that is saved and shown on the page is drawn once
def _render(figure: Figure, plot_format: str) -> bytes:
    """Return the content of a picture's file; the same figure gives the same bytes."""
    stream = io.BytesIO()
    dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "calib_jax"}):
        figure.savefig(
            stream, format=plot_format, dpi=96 * _PIXEL_RATIO, metadata=dates[plot_format]
        )
    return stream.getvalue()
