"""Names for what is read from the JSON files of a workdir."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = Any  # value in a JSON file
Record = Mapping[str, Json]  # content of a run's results.json
Summary = Mapping[str, Json]  # what `summarize` returns
Config = Mapping[str, Json]  # content of a config.json
Row = Mapping[str, Json]  # line of a metrics.jsonl
Rows = Sequence[Row]  # lines of one run

PLOT_FORMATS = ("png", "svg", "pdf")  # of the files of plots
