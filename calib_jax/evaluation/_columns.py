"""Which column of a table is what: matched by name, never by position."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LABELS = ("labels", "label", "targets", "target", "ground_truth", "y_true", "true_label", "y")
_GROUPS = ("groups", "group", "subgroup", "subgroups")
_IGNORED = ("", "index", "idx", "id", "ids", "row", "unnamed: 0", "__index_level_0__")
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
    lower = [name.lower() for name in names]
    twice = next((n for i, n in enumerate(names) if n and n in names[:i]), None)
    if twice is not None:
        raise ValueError(f"two columns have the name {twice!r}")
    if independent := _independent_labels(names):
        return independent
    label, group = _position(lower, LABELS), _position(lower, _GROUPS)
    if label is None and labeled:
        one_hot = [n for n in names if _kind(n)[0] == "labels"]
        hint = " (one-hot labels? give the number or name of the class)" if one_hot else ""
        raise ValueError(f"expected a header with a 'label' column{hint}, found {_listed(names)}")
    ignored = [i for i, name in enumerate(lower) if name in _IGNORED and i not in (label, group)]
    rest = [i for i in range(len(names)) if i not in (label, group, *ignored)]
    kinds = {i: _kind(names[i]) for i in rest}
    if any(kind == "labels" for kind, _ in kinds.values()):
        raise ValueError("one-hot labels: expected one column with the number or name of the class")
    if any(kind for kind, _ in kinds.values()):
        strange = [names[i] for i, (kind, _) in kinds.items() if not kind]
        if strange:
            raise ValueError(
                f"column {strange[0]!r} is neither a class (logit_…, prob_…) nor a label, group or "
                "index; remove or rename it"
            )
    scores: dict[str, dict[str, int]] = {}
    for i in rest:
        kind, name = kinds[i]
        scores.setdefault(kind or "predictions", {})[name] = i
    if not scores:
        raise ValueError(f"expected a column per class, found {_listed(names)}")
    order = _class_order({kind: list(columns) for kind, columns in scores.items()})
    notes = []
    if ignored:
        notes.append(f"ignored: {', '.join(repr(names[i]) for i in ignored)} (no class)")
    return Columns(
        label=label,
        group=group,
        scores={kind: [columns[name] for name in order] for kind, columns in scores.items()},
        label_names=() if order[0].isdecimal() else tuple(order),
        notes=tuple(notes),
    )


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


def _position(lower: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the position of the one column with one of the names."""
    positions = [i for i, name in enumerate(lower) if name in names]
    if len(positions) > 1:
        both = " and ".join(repr(lower[i]) for i in positions[:2])
        raise ValueError(f"the columns {both} mean the same; remove one")
    return positions[0] if positions else None


def _listed(names: Sequence[str]) -> str:
    dots = ", …" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + dots or "nothing"


def _independent_labels(names: Sequence[str]) -> Columns | None:
    """Return the meaning of `label,prob` or `label_a,label_b,prob_a,prob_b`; `None` of other columns."""
    lower = [name.lower() for name in names]
    others = [i for i, name in enumerate(lower) if name not in (*LABELS, *_IGNORED)]
    label = _position(lower, LABELS)
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
