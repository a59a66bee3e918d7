"""What devices send each other, read from the text of a compiled program."""

import math
import re
from typing import NamedTuple

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2}
_BYTES |= {"s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
# Of one byte of the result, what a device sends round a ring of n: a sum goes round twice, once to be
# made and once to be told; of a scattered result a device keeps one part in n only.
_SENT = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,
    "collective-permute": lambda n: 1.0,
}
_INSTRUCTION = re.compile(rf"= (.*?) ({'|'.join(_SENT)})\(")
_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")


class Collective(NamedTuple):
    """One instruction, and the bytes of its result on one device."""

    kind: str
    bytes: int


def collectives(text: str) -> list[Collective]:
    """Those of a program of the CPU backend, which are not asynchronous; in a loop, each counts once."""
    return [
        Collective(kind, sum(_num_bytes(*array) for array in _ARRAY.findall(shapes)))
        for shapes, kind in _INSTRUCTION.findall(text)
    ]


def sent(found: list[Collective], devices: int) -> float:
    """Bytes that each device sends, if all take part in every collective and stand in a ring."""
    return sum(_SENT[kind](devices) * size for kind, size in found)


def _num_bytes(kind: str, shape: str) -> int:
    return _BYTES[kind] * math.prod(int(n) for n in shape.split(",") if n)
