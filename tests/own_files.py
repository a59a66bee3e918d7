"""Small files of every format, for the tests of readers of your own data."""

import csv
import io
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

Rows = Sequence[dict[str, Any]]


def texts(n: int = 60, classes: Sequence[Any] = ("no", "yes"), first: int = 0) -> Rows:
    """Different texts, the classes in turn."""
    return [
        {"text": f"text number {i}", "label": classes[i % len(classes)]}
        for i in range(first, first + n)
    ]


def write_csv(path: pathlib.Path, rows: Rows, **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), **options)
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def write_jsonl(path: pathlib.Path, rows: Rows) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_parquet(
    path: pathlib.Path, rows: Rows, names: dict[str, Sequence[str]] | None = None
) -> str:
    """Write parquet; `names` are class names of columns, as Hugging Face's `datasets` stores them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    if names:
        kinds = {str: {"dtype": "string", "_type": "Value"}, dict: {"_type": "Image"}}
        number = {"dtype": "int64", "_type": "Value"}
        features: dict[str, Any] = {k: kinds.get(type(v), number) for k, v in rows[0].items()}
        for key, values in names.items():
            label = {"names": list(values), "_type": "ClassLabel"}
            is_list = isinstance(rows[0][key], list)
            features[key] = {"feature": label, "_type": "List"} if is_list else label
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    pq.write_table(table, path)
    return str(path)


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}


def write_images(folder: pathlib.Path, number: int, side: int = 6, classes: str = "ab") -> None:
    """Write different gray images of each class, as PNG files."""
    for c, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(number):
            pixels = np.full((side, side), 5 * i + 100 * c, np.uint8)
            pixels[0, 0] = c
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def png(value: int, side: int = 6) -> bytes:
    """Return a gray image as PNG."""
    content = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(content, "PNG")
    return content.getvalue()
