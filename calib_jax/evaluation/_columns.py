"""Which column of a table is what: matched by name, never by position."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LABELS = ("labels", "label", "targets", "target", "ground_truth", "y_true", "true_label", "y")
GROUPS = ("groups", "group", "subgroups", "subgroup")
_IGNORED = (
    *("", "index", "idx", "id", "ids", "row", "unnamed: 0", "__index_level_0__"),
    *("prediction", "predicted", "pred", "y_pred", "confidence"),  # follow from the scores
)
_KINDS = {
    **dict.fromkeys(("logit", "logits"), "logits"),
    **dict.fromkeys(("prob", "probs", "probability", "probabilities", "p", "softmax"), "probs"),
    **dict.fromkeys(("score", "scores", "prediction", "predictions", "output"), "predictions"),
    **dict.fromkeys(("label", "labels", "target", "targets", "y", "y_true"), "labels"),
}
# `prob_cat`, `logit-3`, `p[3]`, `logit3`: what it is, and of which class.
_CLASS_COLUMN = re.compile(
    rf"(?i:({'|'.join(sorted(_KINDS, key=len, reverse=True))}))"
    r"(?:[_\-. :]+(.+)|\[(.+)\]|\((.+)\)|(\d+))"
)
_SHOWN = 4


class Columns(NamedTuple):
    """The meaning of the columns of a table.

    Attributes:
      label: Position of the labels, or `None` where none are expected.
      group: Position of the groups, or `None`.
      scores: Positions of the class columns by kind (`logits`, `probs`, `predictions`), class 0 first;
        of independent labels also `labels`.
      label_names: Names of the classes; empty if the columns are numbered.
      notes: Remarks, one sentence each.
    """

    label: int | None
    group: int | None
    scores: dict[str, list[int]]
    label_names: tuple[str, ...]
    notes: tuple[str, ...]


def match_columns(header: Sequence[str], *, labeled: bool = True) -> Columns:
    """Find labels, groups and classes by the names of the columns.

    Args:
      header: Names of the columns.
      labeled: Whether there must be labels.

    Raises:
      ValueError: With one line, if a name is missing, twice there or of unclear meaning.

    >>> match_columns(["prob_1", "label", "prob_0"]).scores
    {'probs': [2, 0]}
    """
    names = [name.strip() for name in header]
    twice = next((n for i, n in enumerate(names) if n and n in names[:i]), None)
    if twice is not None:
        raise ValueError(f"two columns have the name {twice!r}")
    if independent := _independent_labels(names):
        return independent
    label, group = _position(names, LABELS), _position(names, GROUPS)
    if label is None and labeled:
        raise ValueError(_no_label(names))
    rest = [i for i in range(len(names)) if i not in (label, group)]
    ignored = [i for i in rest if names[i].lower() in _IGNORED]
    scores = _class_columns(names, [i for i in rest if i not in ignored])
    order = _class_order({kind: list(columns) for kind, columns in scores.items()})
    notes = []
    if ignored:
        notes.append(f"ignored: {', '.join(repr(names[i]) for i in ignored)} (no class)")
    is_named = not order[0].isdecimal()
    if is_named and any(name in names for name in order):  # no prefix says that it is a class
        notes.append(f"every other column is a class: {_listed(order)}")
    return Columns(
        label=label,
        group=group,
        scores={kind: [columns[name] for name in order] for kind, columns in scores.items()},
        label_names=tuple(order) if is_named else (),
        notes=tuple(notes),
    )


def _no_label(names: Sequence[str]) -> str:
    one_hot = any(_kind(name)[0] == "labels" for name in names)
    hint = " (one-hot labels? give the number or name of the class)" if one_hot else ""
    return f"expected a header with a 'label' column{hint}, found {_listed(names)}"


def _class_columns(names: Sequence[str], positions: Sequence[int]) -> dict[str, dict[str, int]]:
    """Return the positions of the classes by kind and name; without kinds, of `predictions`."""
    columns = [(i, *_kind(names[i])) for i in positions]
    kinds = {kind for _, kind, _ in columns}
    if not kinds:
        raise ValueError(f"expected a column per class, found {_listed(names)}")
    if "labels" in kinds:
        raise ValueError("one-hot labels: expected one column with the number or name of the class")
    if len(kinds) > 1 and "" in kinds:
        strange = next(name for _, kind, name in columns if not kind)
        raise ValueError(
            f"column {strange!r} is neither a class (logit_…, prob_…) nor a label, group or index; "
            "remove or rename it"
        )
    scores: dict[str, dict[str, int]] = {}
    for i, kind, name in columns:
        if name in scores.setdefault(kind or "predictions", {}):
            raise ValueError(f"two columns are of the class {name!r}")
        scores[kind or "predictions"][name] = i
    return scores


def _kind(name: str) -> tuple[str, str]:
    """Return what a column holds, `logits` or so, and of which class; nothing and its name if unclear."""
    match = _CLASS_COLUMN.fullmatch(name)
    if match is None:
        return "", name
    return _KINDS[match[1].lower()], next(g for g in match.groups()[1:] if g is not None).strip()


def _class_order(classes: dict[str, list[str]]) -> list[str]:
    """Return the names of the classes in their order, which all kinds of scores must share."""
    (_, first), *others = classes.items()
    for kind, names in others:
        if set(names) != set(first):
            raise ValueError(
                f"logits and probs are of different classes ({kind}: {_listed(names)})"
            )
    numbered = [name.isdecimal() for name in first]
    if not any(numbered):
        return first
    if not all(numbered):
        raise ValueError(f"some classes have numbers, others names: {_listed(first)}")
    numbers = sorted(map(int, first))
    k = len(numbers)
    if numbers != list(range(k)):
        hint = "; do they count from 1?" if numbers == list(range(1, k + 1)) else ""
        raise ValueError(
            f"expected columns of the classes 0 to {k - 1}, found {_listed(first)}{hint}"
        )
    return sorted(first, key=int)


def _position(names: Sequence[str], meaning: Sequence[str]) -> int | None:
    """Return the position of the one column that has one of the names of a meaning."""
    positions = [i for i, name in enumerate(names) if name.lower() in meaning]
    if len(positions) > 1:
        both = " and ".join(repr(names[i]) for i in positions[:2])
        raise ValueError(f"the columns {both} mean the same; remove one")
    return positions[0] if positions else None


def _listed(names: Sequence[str]) -> str:
    dots = ", …" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + dots or "nothing"


def _independent_labels(names: Sequence[str]) -> Columns | None:
    """Return the meaning of `label,prob` or `label_a,label_b,prob_a,prob_b`; `None` of other columns."""
    lower = [name.lower() for name in names]
    others = [i for i, name in enumerate(lower) if name not in (*LABELS, *_IGNORED)]
    label = _position(names, LABELS)
    if len(others) == 1 and lower[others[0]] in _KINDS:
        return Columns(label, None, {_KINDS[lower[others[0]]]: others}, (), ())
    scores: dict[str, dict[str, int]] = {}
    for i in others:
        kind, name = _kind(names[i])
        scores.setdefault(kind, {})[name] = i
    if label is not None or "labels" not in scores or "" in scores or len(scores) == 1:
        return None
    order = _class_order({kind: list(columns) for kind, columns in scores.items()})
    positions = {kind: [columns[name] for name in order] for kind, columns in scores.items()}
    return Columns(None, None, positions, () if order[0].isdecimal() else tuple(order), ())
