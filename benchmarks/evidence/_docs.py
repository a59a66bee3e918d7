"""The tables of docs/results.md, written from the numbers in docs/results."""

import json
import pathlib

from benchmarks.evidence import _claims, _estimators, _fresh

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def tables(folder: pathlib.Path = DOCS / "results") -> dict[str, str]:
    """Return the tables by name, as Markdown.

    Args:
      folder: Folder of `claims.json`, `known_truth_*.json` and `estimators.json`.
    """
    tested = json.loads((folder / "claims.json").read_text())
    made = {"claims": _claims.claims_table(tested)}
    for source, data in _claims.read(folder).items():
        made[source] = _claims.methods_table(data)
    path = folder / "fresh_draws.json"
    if path.exists():
        made["fresh"] = _fresh.sentence(json.loads(path.read_text())) + "\n"
    path = folder / "estimators.json"
    if path.exists():
        found = json.loads(path.read_text())
        for name in _estimators.PREDICTORS:
            made[name] = _estimators.estimators_table(found["estimators"], name)
        made["calibrators"] = _estimators.calibrators_table(found["calibrators"])
    return made


def with_tables(text: str, made: dict[str, str]) -> str:
    """Return a text with each table between its two comments, `<!-- NAME -->` and `<!-- end -->`.

    Args:
      text: Text with such comments.
      made: Tables by name.

    >>> with_tables("<!-- a -->\\nold\\n<!-- end -->", {"a": "new\\n"})
    '<!-- a -->\\n\\nnew\\n\\n<!-- end -->'
    """
    for name, table in made.items():
        before, marker, rest = text.partition(f"<!-- {name} -->\n")
        if not marker:
            raise ValueError(f"there is no comment <!-- {name} --> for the table of that name")
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{marker}\n{table}\n{end}{after}"
    return text
