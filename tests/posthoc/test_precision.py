"""No product of matrices is left to an accelerator's default, which rounds float32 to 8 bits."""

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses, methods, metrics, posthoc

N, K = 24, 4
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(N, K)).astype(np.float32)
LABELS = RNG.integers(0, K, N)
SOFT = RNG.dirichlet(np.ones(K), N).astype(np.float32)
CORRECT = LOGITS.argmax(1) == LABELS
BINS = metrics.BinStats(*np.ones((3, 5), np.float32), np.linspace(0, 1, 6, dtype=np.float32))
STATE = losses.adafocal_init(5)


def of_logits(function: Any, z: jax.Array) -> Any:
    return function(z, LABELS)


def of_confidence(function: Any, z: jax.Array) -> Any:
    return function(jax.nn.softmax(z)[:, 0], CORRECT)


# What is not called with logits and integer labels alone, as a function of logits.
LOSSES = {
    "adafocal": lambda z: losses.adafocal(z, LABELS, STATE),
    "adafocal_init": lambda z: losses.adafocal_init(),
    "adafocal_update": lambda z: losses.adafocal_update(STATE, jax.nn.softmax(z)[:, 0], CORRECT),
    "adafocal_trajectory": lambda z: losses.adafocal_trajectory(
        STATE, jax.nn.softmax(z)[None, :, 0], CORRECT[None]
    ),
    "calfocal": lambda z: losses.calfocal(z, LABELS, BINS, lam=1.0, per_sample=True),
    "distillation": lambda z: losses.distillation(z, z, LABELS, weight=0.5),
    "focal": lambda z: losses.focal(z, SOFT, 2.0),
    "inverse_focal": lambda z: losses.inverse_focal(z, SOFT, 2.0),
    "dual_focal": lambda z: losses.dual_focal(z, SOFT),
    "jensen_shannon": lambda z: losses.jensen_shannon(jnp.stack([z, z], 1)),
    "label_aware_contrastive": lambda z: losses.label_aware_contrastive(z, LABELS, z, tau=0.3),
    "sigmoid_adafocal": lambda z: losses.sigmoid_adafocal(z, SOFT > 0.3, STATE),
    "sigmoid_focal": lambda z: losses.sigmoid_focal(z, SOFT > 0.3, 2.0),
    "teacher_annealing": lambda z: losses.teacher_annealing(z, 10),
}
BINARY = [
    *("aurc", "auroc", "bin_stats", "brier_decomposition", "e_aurc", "ece", "ece_debiased"),
    *("ece_sweep", "fpr_at_tpr", "mce", "risk_coverage", "roc_curve", "smooth_curve", "smooth_ece"),
    *("binary_ece", "binary_summary"),
]
SETS = ["coverage", "size_stratified_coverage", "worst_class_coverage"]


def of_sets(function: Any, z: jax.Array) -> Any:
    return function(z > 0, LABELS)


METRICS = {
    "coverage_at_risk": lambda z: metrics.coverage_at_risk(*metrics.top_label(z, LABELS), 0.1),
    "risk_at_coverage": lambda z: metrics.risk_at_coverage(*metrics.top_label(z, LABELS), 0.9),
    "consistency_test": lambda z: metrics.consistency_test(
        metrics.ece, *metrics.top_label(z, LABELS), key=jax.random.key(0), num_samples=8
    ),
    "energy_score": metrics.energy_score,
    "max_logit_score": metrics.max_logit_score,
    "multilabel_summary": lambda z: metrics.multilabel_summary(jax.nn.sigmoid(z), SOFT > 0.3),
    "set_size": lambda z: metrics.set_size(z > 0),
    "bootstrap": lambda z: metrics.bootstrap(metrics.summary, z, LABELS, key=jax.random.key(0)),
    "classwise_ece": lambda z: metrics.classwise_ece(z, LABELS, scheme="mass"),
    "predictive_entropy": metrics.predictive_entropy,
    "true_calibration_error": lambda z: metrics.true_calibration_error(jax.nn.softmax(z), SOFT),
    "truth_summary": lambda z: metrics.truth_summary(z, SOFT),
}
for _name in BINARY:
    METRICS[_name] = partial(of_confidence, getattr(metrics, _name))
for _name in SETS:
    METRICS[_name] = partial(of_sets, getattr(metrics, _name))


def functions(room: Any, special: dict[str, Any]) -> dict[str, Any]:
    """Every public function of a room as one of the logits."""
    return {
        name: special.get(name, partial(of_logits, f))
        for name, f in vars(room).items()
        if callable(f) and not inspect.isclass(f) and not name.startswith("_")
    }


def calibrated(z: jax.Array, name: str) -> jax.Array:
    if name == "Isotonic":  # fitted on the host
        return posthoc.Isotonic(jnp.zeros((K, 2)), jnp.ones((K, 2)))(z)
    if name in ("Platt", "Beta"):
        z = z[:, :2]
        return getattr(posthoc, name).fit(z, LABELS % 2)(z)
    if name == "ConformalSets":
        probs = jax.nn.softmax(z)
        return posthoc.ConformalSets.fit(probs, LABELS, alpha=0.2, score="aps")(probs)
    return getattr(posthoc, name).fit(z, LABELS)(z)


CALIBRATORS = {
    name: partial(calibrated, name=name)
    for name, x in vars(posthoc).items()
    if inspect.isclass(x)
    and hasattr(x, "fit")
    and name not in ("Auto", "Calibrator")  # on the host; the base
}


def watched_step(z: jax.Array) -> Any:
    method = methods.bin_monitor(methods.Method(init=lambda info: (), loss=lambda *_: None))
    batch = methods.Batch({}, LABELS, np.arange(N), np.ones(N, np.float32))
    state = method.init(methods.Info(N, K))
    return method.after_step(state, batch, methods.Aux(z, {}))


FUNCTIONS = {
    **functions(losses, LOSSES),
    **functions(metrics, METRICS),
    **CALIBRATORS,
    "watched": watched_step,
}


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those inside loops, branches and calls included."""
    for equation in jaxpr.eqns:
        yield equation
        for leaf in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(leaf, "jaxpr", leaf)  # closed or not
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def products(function: Any) -> list[Any]:
    found = equations(jax.make_jaxpr(function)(LOGITS).jaxpr)
    return [e for e in found if e.primitive.name in ("dot_general", "conv_general_dilated")]


def slope(function: Any) -> Any:
    return jax.grad(lambda z: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(function(z))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_product_is_in_full_precision(name: str) -> None:
    found = products(FUNCTIONS[name])
    if hasattr(losses, name):
        found += products(slope(FUNCTIONS[name]))
    highest = jax.lax.Precision.HIGHEST
    assert all(e.params["precision"] in (highest, (highest, highest)) for e in found), found


def test_products_inside_loops_and_calls_are_found() -> None:
    looped = jax.jit(lambda z: jax.lax.fori_loop(0, 3, lambda i, x: x @ z[:K], z))
    branched = jax.jit(
        lambda z: jax.lax.cond(z[0, 0] > 0, lambda: z @ z.T, lambda: jnp.ones((N, N)))
    )
    for function in (looped, branched):
        (product,) = products(function)
        assert product.params["precision"] is None
    for name in ("mmce", "label_aware_contrastive", "Dirichlet", "watched"):
        assert products(FUNCTIONS[name]), name
