"""Numerics of training dynamics: see `_harness.py`."""

from typing import Any

import numpy as np
from numerics._harness import Batch, Case, Suite

from calib_jax import dynamics

N = 8


def batch(b: Batch) -> dict[str, Any]:
    """The first example is not of the data set, the others are in reverse order."""
    ids = np.arange(b.n, dtype=np.int32)[::-1].copy()
    return {"ids": ids, "logits": b.logits, "labels": b.labels}


def filled(state: Any, n: int = N) -> Any:
    rng = np.random.default_rng(0)
    return type(state)(*[rng.integers(1, 4, n).astype(np.float64) for _ in state._fields])


def in_order(b: Batch) -> dict[str, Any]:
    return batch(b) | {"ids": np.arange(b.n, dtype=np.int32)}


AUM = dynamics.AumState(*"ts")
MAP = dynamics.DataMapState(*"fdsct")


def aum_of(**arrays: Any) -> Any:
    return dynamics.aum_values(dynamics.aum_update(dynamics.aum_init(N), **arrays))


def map_of(**arrays: Any) -> Any:
    return dynamics.datamap_values(dynamics.datamap_update(dynamics.datamap_init(N), **arrays))


def updates(function: Any, state: Any) -> Case:
    return Case(
        function,
        lambda b: batch(b) | {"state": filled(state)},
        carry="state",
        result="state",
        padded=("logits",),
        rows=False,
        no_weight="kept",
    )


def initial(function: Any) -> Case:
    return Case(
        lambda zeros: function(zeros.shape[0]),
        lambda b: {"zeros": np.zeros(b.n, np.int32)},
        name=function.__name__,
        result="float32",
        wide=False,
    )


class TestDynamics(Suite):
    room = dynamics
    exempt = frozenset({"AumState", "DataMap", "DataMapState"})  # tuples of arrays
    cases = (
        Case(
            dynamics.margin,
            lambda b: {"logits": b.logits, "labels": b.labels},
            grad=("logits",),
            labels="labels",
        ),
        initial(dynamics.aum_init),
        initial(dynamics.datamap_init),
        updates(dynamics.aum_update, AUM),
        updates(dynamics.datamap_update, MAP),
        # From no state to values, example by example.
        Case(aum_of, in_order, name="aum_update", variant="values", labels="labels", least=N,
             result="float32", wide=False),
        Case(map_of, in_order, name="datamap_update", variant="values", labels="labels", least=N,
             result="float32", wide=False),
        Case(
            dynamics.aum_values, lambda b: {"state": filled(AUM)}, empty=False, wide=False
        ),
        Case(
            dynamics.datamap_values, lambda b: {"state": filled(MAP)}, empty=False, wide=False
        ),
        Case(dynamics.median_split, lambda b: {"values": b.confidence}),
    )  # fmt: skip
