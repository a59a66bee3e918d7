"""Numerics of every calibrator, fitted and called: see `_harness.py`."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numerics._harness import WIDE_K, Batch, Case, Suite, batch, check_types

from calib_jax import posthoc


def hard(b: Batch) -> dict[str, Any]:
    return {"logits": b.logits, "labels": b.labels}


def plain(b: Batch) -> dict[str, Any]:
    return {"logits": b.logits}


def query(logits: jax.Array) -> jax.Array:
    """Logits to call a calibrator with that depend on nothing but the number of classes.

    The compiler must not take them for constants: it would sort 50,000 of them for 40 seconds.
    """
    grid = np.cos(np.arange(3 * logits.shape[-1])).reshape(3, -1)
    return jax.lax.optimization_barrier(jnp.asarray(3 * grid, logits.dtype))


def fit(name: str, **options: Any) -> Any:
    """Fit, and what is predicted for other logits: the parameters of some depend on n."""

    def fitted(logits: jax.Array, labels: jax.Array, weights: Any = None) -> jax.Array:
        calibrator = getattr(posthoc, name).fit(logits, labels, weights=weights, **options)
        return calibrator(query(jnp.asarray(logits, calibrated_dtype(logits))))

    return fitted


def calibrated_dtype(logits: jax.Array) -> Any:
    return jnp.float64 if logits.dtype == jnp.float64 else jnp.float32


def two(b: Batch) -> dict[str, Any]:
    """The first two classes; those of the others are the second, if that is not masked."""
    labels = np.minimum(b.labels, 1)
    possible = np.isfinite(np.take_along_axis(b.logits[:, :2], labels[:, None], axis=1)[:, 0])
    logits = np.where(possible[:, None], b.logits[:, :2], 0.0)
    return {"logits": logits, "labels": labels}


def answers(b: Batch) -> dict[str, Any]:
    """One yes/no label for each class, with finite log odds far from [0, 1]."""
    logits = np.clip(b.logits, -1e4, 1e4) - 3
    return {"logits": logits, "labels": (b.labels[:, None] + np.arange(b.num_classes)) % 2}


def conformal(score: str, **options: Any) -> Any:
    def fitted(probs: jax.Array, labels: jax.Array, weights: Any = None) -> jax.Array:
        sets = posthoc.ConformalSets.fit(
            probs, labels, alpha=0.4, score=score, weights=weights, **options
        )
        finite = jnp.minimum(sets.threshold, 9.0)  # infinite where a class has too few examples
        return finite, sets(jax.nn.softmax(query(probs.astype(calibrated_dtype(probs)))))

    return fitted


def fits(name: str, variant: str = "fit", options: Any = (), **more: Any) -> Case:
    defaults = {"rows": False, "padded": ("logits",), "labels": "labels", "rtol": 1e-5}
    function = fit(name, **dict(options))
    return Case(function, name=name, variant=variant, **({"inputs": hard} | defaults | more))


def calls(name: str, *params: Any, **more: Any) -> Case:
    """A calibrator of given parameters, called; they may be of another type than the logits."""

    def called(logits: jax.Array) -> jax.Array:
        k = logits.shape[-1]
        leaves = [p(k) if callable(p) else p for p in params]
        return getattr(posthoc, name)(*(jnp.asarray(x, jnp.float32) for x in leaves))(logits)

    defaults = {"variant": "call", "grad": ("logits",), "empty": False}
    return Case(called, name=name, **({"inputs": plain} | defaults | more))


def steps(k: int) -> np.ndarray:
    """Rising functions, one for each class, on six points."""
    return np.linspace(0, 1, 6) * np.linspace(0.5, 1, k)[:, None]


class TestPosthoc(Suite):
    room = posthoc
    # A question about values and a choice by them, outside jit; the base class, tables and files.
    exempt = frozenset(
        {
            *("looks_like_probabilities", "Auto", "Calibrator", "Fit"),
            *("CALIBRATORS", "LABEL_CALIBRATORS", "save", "load"),
        }
    )
    invalid = "raises"
    cases = (
        fits("Temperature"),
        fits("Temperature", "ece", {"criterion": "ece", "grid": [0.5, 1.0, 2.0]}),
        fits("Temperature", "ece_mass", {"criterion": "ece_mass", "grid": [0.5, 1.0]}, slow=True),
        # Newton steps by nested jvps: 17 n K.
        fits("EnsembleTemperature", slow=True, memory=20.0),
        fits("Spline", wide=False),
        fits("VectorScaling", wide=False, no_optimum=("all correct",)),
        fits(
            "Dirichlet",
            options={"odir": 100.0, "bias": 1.0},
            wide=False,
            rtol=2e-4,
            slow=True,
            no_optimum=("extreme",),
        ),
        fits("HistogramBinning", options={"num_bins": 4}),
        fits("HistogramBinning", "mass", {"num_bins": 4, "scheme": "mass"}, slow=True),
        fits("FocalTemperature", slow=True),
        fits("Spline", "fit many", slow=True),
        fits("VectorScaling", "fit many", slow=True, no_optimum=("all correct",)),
        calls("Temperature", 1.7),
        calls("EnsembleTemperature", 1.7, [0.5, 0.3, 0.2]),
        calls("FocalTemperature", 1.7, 2.0),
        calls("Spline", np.linspace(0.2, 1.0, 5), np.linspace(0.1, 0.9, 5)),
        calls("VectorScaling", lambda k: np.linspace(0.5, 2, k), lambda k: np.linspace(-1, 1, k)),
        calls("Dirichlet", lambda k: np.eye(k) - 0.1, lambda k: np.linspace(-1, 1, k), wide=False),
        calls("Isotonic", lambda k: np.sort(steps(k)), steps),
        calls("HistogramBinning", lambda k: steps(k)[:, 1:-1], lambda k: steps(k)[:, 1:], grad=()),
        fits("StructuredVectorScaling", wide=False, rtol=1e-4, slow=True),
        fits("StructuredMatrixScaling", wide=False, rtol=1e-4, slow=True),
        fits("StructuredVectorScaling", "fit many", slow=True, rtol=1e-4),
        fits("Platt", inputs=two, wide=False, rtol=1e-4, slow=True),
        fits("Beta", inputs=two, wide=False, rtol=1e-3, slow=True),
        fits("Platt", "fit labels", inputs=answers, wide=False, rtol=1e-4, slow=True),
        calls(
            "StructuredVectorScaling",
            *(1.7, 0.1, lambda k: np.linspace(0.5, 2, k), lambda k: np.linspace(-1, 1, k)),
        ),
        calls(
            "StructuredMatrixScaling",
            *(1.7, 0.1, lambda k: np.eye(k) - 0.1, lambda k: np.linspace(-1, 1, k)),
            wide=False,
        ),
        calls("Platt", 1.7, 0.3, inputs=lambda b: {"logits": two(b)["logits"]}, wide=False),
        calls("Beta", 1.7, 0.6, 0.3, inputs=lambda b: {"logits": two(b)["logits"]}, wide=False),
        *(
            Case(
                conformal(score, **options),
                lambda b: {"probs": b.probs, "labels": b.labels},
                name="ConformalSets",
                variant=f"{score} {', '.join(options)}",
                rows=False,
                padded=("probs",),
                labels="labels",
            )
            for score, options in (
                ("lac", {}),
                ("lac", {"class_conditional": True}),
                ("aps", {}),
                ("raps", {"k_reg": 2}),
            )
        ),
        Case(
            posthoc.logits_from_binary_probs,
            lambda b: {"probs": np.clip(b.probs, 1e-3, 1 - 1e-3)},
            grad=("probs",),
            empty=False,
        ),
        Case(posthoc.logits_from_probs, lambda b: {"probs": b.probs}, grad=("probs",), empty=False),
    )


@pytest.mark.parametrize("slow_case", [c for c in TestPosthoc.cases if c.slow], ids=str)
def test_types_of_what_takes_long(slow_case: Case) -> None:
    check_types(slow_case)
    with pytest.raises(ValueError, match="labels"):
        slow_case(hard(batch()) | {"labels": np.full(8, 4)})


@pytest.mark.parametrize("name", ["Dirichlet", "StructuredMatrixScaling"])
def test_a_matrix_between_many_classes_is_refused_in_one_line(name: str) -> None:
    many = batch(n=2, k=WIDE_K)
    with pytest.raises(ValueError, match=r"50000 classes.*at most 2000") as error:
        getattr(posthoc, name).fit(many.logits, many.labels)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="2001 classes"):
        getattr(posthoc, name).fit(np.eye(2, 2001) - 1, np.arange(2))


def isotonic(scene: str) -> jax.Array:
    b = batch(scene)
    return posthoc.Isotonic.fit(b.logits, b.labels)(query(jnp.asarray(b.logits)))


@pytest.mark.parametrize("scene", ["spread", "masked", "single", "ties", "all correct", "extreme"])
def test_isotonic_is_fitted_on_the_host(scene: str) -> None:
    probs = isotonic(scene)
    chex.assert_tree_all_finite(probs)
    chex.assert_type(probs, jnp.float32)
    chex.assert_trees_all_close(jnp.sum(probs, axis=1), jnp.ones(3), atol=1e-5)


def test_isotonic_padding_and_nothing() -> None:
    b = batch()
    weights = np.array([1.0, 0.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    broken = np.where(weights[:, None] == 0, np.nan, b.logits)
    labels = np.where(weights == 0, -1, b.labels)
    got = posthoc.Isotonic.fit(broken, labels, weights=weights)(b.logits)
    rows = np.repeat(np.arange(8), weights.astype(int))
    want = posthoc.Isotonic.fit(b.logits[rows], b.labels[rows])(b.logits)
    chex.assert_trees_all_close(got, want, atol=1e-6)
    nothing = posthoc.Isotonic.fit(b.logits, b.labels, weights=np.zeros(8))(b.logits)
    assert jnp.all(jnp.isnan(nothing))


def test_isotonic_in_float64() -> None:
    with jax.enable_x64(True):
        chex.assert_type(isotonic("spread"), jnp.float64)
