"""All that runs on the device is lowered for GPU and TPU, from the CPU; nothing is compiled or run.

The networks have their own such test, in `models/test_create.py`; here one is as small as can be.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import augment, data, dynamics, losses, methods, metrics, models, posthoc, targets
from calib_jax import train as training

ROOMS = (augment, dynamics, losses, metrics, posthoc, targets)
# Nothing of these runs on a device: a number for a name, an answer for an `if`.
ON_THE_HOST = {
    "augment.corruption_strengths",
    "augment.op_number",
    "posthoc.Auto",  # the choice depends on values
    "posthoc.Calibrator",  # the base of the others
    "posthoc.load",
    "posthoc.looks_like_probabilities",
    "posthoc.save",
}
N, K = 16, 4


@pytest.fixture(autouse=True)
def _as_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program is another one on the CPU (steps one by one, no loops), take the others'."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")


def lower(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    exported = jax.export.export(jitted, platforms=["cuda", "tpu"])(*arguments, **options)
    assert exported.platforms == ("cuda", "tpu")
    text = exported.mlir_module()
    for banned in ("callback", "xf64>", "<f64>"):  # nothing that waits for Python, no slow type
        assert banned not in text, f"{banned} in the program"


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def integers(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def weighted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without weights, and with those that come last."""
    return lambda *arrays: (function(*arrays[:-1]), function(*arrays[:-1], weights=arrays[-1]))


def gradient(loss: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The value, and the gradient with respect to the first argument."""
    return jax.value_and_grad(
        lambda *arrays: sum(map(jnp.sum, jax.tree.leaves(loss(*arrays, **options))))
    )


def fitted(kind: Any, **options: Any) -> Callable[..., Any]:
    return lambda logits, labels: kind.fit(logits, labels, **options)(logits)


def image_loss(images: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.mean(images, (1, 2, 3)) * labels


KEY = jax.eval_shape(lambda: jax.random.key(0))
LOGITS, LABELS, ROWS, ONE = floats(N, K), integers(N), floats(N), floats()
SETS, TWO_LOGITS = jax.ShapeDtypeStruct((N, K), jnp.bool_), floats(N, 2)
IMAGES, UNIT, TWO = jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.uint8), floats(2, 8, 8, 3), floats(2)
ADAFOCAL = jax.eval_shape(losses.adafocal_init)
BINS = jax.eval_shape(metrics.bin_stats, ROWS, ROWS)
AUM = jax.eval_shape(lambda: dynamics.aum_init(9))
DATA_MAP = jax.eval_shape(lambda: dynamics.datamap_init(9))
ISOTONIC = posthoc.Isotonic.fit(np.eye(K)[np.arange(N) % 3] - 1, np.arange(N) % K)  # on the host

# The name of a public function (after a space, which case of it), what to lower, and its arguments.
CASES: dict[str, tuple[Any, ...]] = {
    "augment.augmix": (augment.augmix, KEY, IMAGES),
    "augment.augmix chains": (functools.partial(augment.augmix, chains=3), KEY, UNIT),
    "augment.flip": (augment.flip, KEY, IMAGES),
    "augment.gradient_saliency": (
        functools.partial(augment.gradient_saliency, losses.cross_entropy), LOGITS, LABELS,
    ),
    "augment.pad_crop": (functools.partial(augment.pad_crop, padding=2), KEY, IMAGES),
    "augment.partners": (augment.partners, floats(2, 6), floats(N, 6)),
    "augment.partners at random": (
        lambda key, *a: augment.partners(*a, key=key, eps=1e-6), KEY, floats(2, 6), floats(N, 6),
    ),
    "augment.pgd_start": (functools.partial(augment.pgd_start, eps=0.1), KEY, UNIT),
    "augment.pgd_step": (
        functools.partial(augment.pgd_step, image_loss, eps=0.1), UNIT, UNIT, TWO
    ),
    "augment.randaug": (augment.randaug, KEY, IMAGES, TWO, integers(2)),
    "augment.saliency": (augment.saliency, LOGITS, LABELS),
    "dynamics.aum_init": (lambda: dynamics.aum_init(9),),
    "dynamics.aum_update": (dynamics.aum_update, AUM, LABELS, LOGITS, LABELS, ROWS),
    "dynamics.aum_values": (dynamics.aum_values, AUM),
    "dynamics.datamap_init": (lambda: dynamics.datamap_init(9),),
    "dynamics.datamap_update": (dynamics.datamap_update, DATA_MAP, LABELS, LOGITS, LABELS, ROWS),
    "dynamics.datamap_values": (dynamics.datamap_values, DATA_MAP),
    "dynamics.margin": (dynamics.margin, LOGITS, LABELS),
    "dynamics.median_split": (dynamics.median_split, ROWS),
    "losses.adafocal": (gradient(losses.adafocal), LOGITS, LABELS, ADAFOCAL),
    "losses.adafocal_init": (losses.adafocal_init,),
    "losses.adafocal_trajectory": (
        weighted(losses.adafocal_trajectory), ADAFOCAL, floats(3, N), floats(3, N), floats(3, N)
    ),
    "losses.adafocal_update": (weighted(losses.adafocal_update), ADAFOCAL, ROWS, ROWS, ROWS),
    "losses.distillation": (gradient(losses.distillation, weight=0.5), LOGITS, LOGITS, LABELS),
    "losses.focal": (gradient(losses.focal), LOGITS, LABELS, ROWS),
    "losses.inverse_focal": (gradient(losses.inverse_focal), LOGITS, LABELS, ROWS),
    "losses.jensen_shannon": (gradient(losses.jensen_shannon), floats(N, 3, K)),
    "losses.label_aware_contrastive": (
        gradient(functools.partial(losses.label_aware_contrastive, tau=0.3)),
        *(floats(N, 6), LABELS, LOGITS),
    ),
    "losses.sigmoid_adafocal": (gradient(losses.sigmoid_adafocal), LOGITS, LOGITS, ADAFOCAL),
    "losses.sigmoid_focal": (gradient(losses.sigmoid_focal), ROWS, LABELS, ROWS),
    "losses.teacher_annealing": (losses.teacher_annealing, integers(), integers()),
    "metrics.bootstrap": (
        lambda key, *arrays: metrics.bootstrap(metrics.ece, *arrays, key=key, num_samples=64),
        *(KEY, ROWS, ROWS),
    ),
    "metrics.consistency_test": (
        lambda key, *arrays: metrics.consistency_test(
            metrics.ece, *arrays, key=key, num_samples=64
        ),
        *(KEY, ROWS, ROWS),
    ),
    "metrics.energy_score": (metrics.energy_score, LOGITS),
    "metrics.max_logit_score": (metrics.max_logit_score, LOGITS),
    "metrics.multilabel_summary": (weighted(metrics.multilabel_summary), LOGITS, integers(N, K), ROWS),
    "metrics.predictive_entropy": (metrics.predictive_entropy, LOGITS),
    "metrics.set_size": (weighted(metrics.set_size), SETS, ROWS),
    "metrics.true_calibration_error": (
        weighted(metrics.true_calibration_error), LOGITS, LOGITS, ROWS
    ),
    "metrics.truth_summary": (weighted(metrics.truth_summary), LOGITS, LOGITS, ROWS),
    "metrics.top_label": (metrics.top_label, LOGITS, LABELS),
    "metrics.top_label_probs": (metrics.top_label_probs, LOGITS, LABELS),
    "posthoc.Isotonic": (lambda isotonic, logits: isotonic(logits), ISOTONIC, LOGITS),
    "posthoc.Temperature ece": (fitted(posthoc.Temperature, criterion="ece"), LOGITS, LABELS),
    "posthoc.Temperature mass": (fitted(posthoc.Temperature, criterion="ece_mass"), LOGITS, LABELS),
    "posthoc.HistogramBinning mass": (
        fitted(posthoc.HistogramBinning, scheme="mass"), LOGITS, LABELS
    ),
    "posthoc.Beta": (fitted(posthoc.Beta), TWO_LOGITS, LABELS),
    "posthoc.Platt": (fitted(posthoc.Platt), TWO_LOGITS, LABELS),
    "posthoc.logits_from_binary_probs": (posthoc.logits_from_binary_probs, ROWS),
    "posthoc.logits_from_probs": (posthoc.logits_from_probs, LOGITS),
    "targets.autolabel": (functools.partial(targets.autolabel, num_classes=K), LABELS, ROWS),
    "targets.autolabel_mixup": (
        functools.partial(targets.autolabel_mixup, num_classes=K), LABELS, LABELS, ROWS, ROWS
    ),
    "targets.autolabel_update": (targets.autolabel_update, ROWS, ROWS, ROWS, ROWS, ONE),
    "targets.ccat": (functools.partial(targets.ccat, num_classes=K), LABELS, ROWS, ONE),
    "targets.mix": (targets.mix, LOGITS, LOGITS, ROWS),
    "targets.one_hot": (functools.partial(targets.one_hot, num_classes=K), LABELS),
}  # fmt: skip
for _name in augment.CORRUPTIONS:
    _corrupt = functools.partial(augment.corrupt, name=_name, severity=3)
    CASES[f"augment.corrupt {_name}"] = (_corrupt, KEY, IMAGES)
for _restarts in (1, 2):
    CASES[f"augment.pgd {_restarts}"] = (
        lambda *a, r=_restarts: augment.pgd(a[0], image_loss, *a[1:], eps=0.1, restarts=r),
        *(KEY, IMAGES, TWO),
    )
for _name in ("brier", "bsce_gra", "cross_entropy", "dual_focal", "flsd53", "logit_norm"):
    CASES[f"losses.{_name}"] = (gradient(getattr(losses, _name)), LOGITS, LABELS)
for _name in ("mbls", "mdca", "mmce", "mmce_weighted"):
    CASES[f"losses.{_name}"] = (gradient(weighted(getattr(losses, _name))), LOGITS, LABELS, ROWS)
for _each in (False, True):
    _calfocal = functools.partial(losses.calfocal, lam=5.0, per_sample=_each)
    CASES[f"losses.calfocal {_each}"] = (gradient(_calfocal), LOGITS, LABELS, BINS)
for _name in ("aurc", "auroc", "e_aurc", "ece_sweep", "fpr_at_tpr", "risk_coverage", "roc_curve"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), ROWS, ROWS, ROWS)
for _name in ("smooth_curve", "smooth_ece"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), ROWS, ROWS, ROWS)
for _scheme in ("width", "mass"):
    for _name in ("bin_stats", "brier_decomposition", "ece", "ece_debiased", "mce"):
        _metric = functools.partial(getattr(metrics, _name), scheme=_scheme)
        CASES[f"metrics.{_name} {_scheme}"] = (weighted(_metric), ROWS, ROWS, ROWS)
    _metric = functools.partial(metrics.classwise_ece, scheme=_scheme)
    CASES[f"metrics.classwise_ece {_scheme}"] = (weighted(_metric), LOGITS, LABELS, ROWS)
for _name in ("binary_ece", "binary_summary"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), ROWS, LABELS, ROWS)
for _name in ("coverage_at_risk", "risk_at_coverage"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), ROWS, ROWS, ONE, ROWS)
for _name in ("coverage", "size_stratified_coverage", "worst_class_coverage"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), SETS, LABELS, ROWS)
for _name in ("accuracy", "brier_score", "confusion_matrix", "f1", "inverse_temperature", "nll"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), LOGITS, LABELS, ROWS)
for _name in ("refinement", "summary"):
    CASES[f"metrics.{_name}"] = (weighted(getattr(metrics, _name)), LOGITS, LABELS, ROWS)
for _name, _kind in vars(posthoc).items():
    if hasattr(_kind, "fit") and _name not in (
        "Auto",
        "Beta",
        "Calibrator",
        "ConformalSets",
        "Isotonic",
        "Platt",
    ):
        CASES[f"posthoc.{_name}"] = (fitted(_kind), LOGITS, LABELS)
for _score in ("lac", "aps", "raps"):
    _fit = fitted(posthoc.ConformalSets, alpha=0.1, score=_score, class_conditional=True)
    CASES[f"posthoc.ConformalSets {_score}"] = (_fit, LOGITS, LABELS)
for _kind in ("others", "all"):
    _smooth = functools.partial(targets.smooth, num_classes=K, kind=_kind)
    CASES[f"targets.smooth {_kind}"] = (lambda y, s, f=_smooth: f(y, smoothing=s), LABELS, ROWS)


def test_nothing_public_is_left_out() -> None:
    public = {
        f"{room.__name__.rpartition('.')[2]}.{name}"
        for room in ROOMS
        for name, value in vars(room).items()
        if name[0] != "_"
        and callable(value)
        and (hasattr(value, "fit") or not inspect.isclass(value))
    }
    assert {name.partition(" ")[0] for name in CASES} == public - ON_THE_HOST


@pytest.mark.parametrize("name", CASES)
def test_functions_lower(name: str) -> None:
    function, *arguments = CASES[name]
    lower(function, *arguments)


def trainer(method: str, optimizer: str = "sgd", **setup: Any) -> training.Trainer:
    """The runner's own, with a perceptron on images of 8 x 8 pixels."""
    pixels = np.zeros((N, 8, 8, 3), np.uint8)
    labels = np.arange(N, dtype=np.int32) % K
    names = tuple(map(str, range(K)))
    images = data.Dataset("toy", "train", {"image": pixels}, labels, np.arange(N), names)
    scores = np.arange(N, dtype=np.float32)
    handed = {name: scores for name in ("aum", "confidence", "variability")}
    teacher = {"teacher_logits": np.zeros((N, K), np.float32), "teacher_temperature": np.ones(())}
    schedule = training.make_schedule("cosine", 0.1, total_steps=8, warmup_steps=2)
    return training.Trainer(
        training.Network(models.create("mlp", K, widths=(8,))),
        methods.recipe(method).phases[-1],
        lambda *_: training.make_optimizer(optimizer, schedule, clip_norm=1.0),
        images,
        images,
        training.Setup(batch_size=4, epochs=2, **setup),
        artifacts=handed | teacher,
    )


def lower_steps(made: training.Trainer) -> None:
    """The program of the runner: a loop over the steps of a chunk."""
    chunk = next(made.train.chunks(made.train.shuffled(0, 0), 0, made.train.steps))
    assert chunk.num_steps > 1
    lower(made.advance, made.abstract_state(), chunk, KEY)


@pytest.mark.parametrize("method", methods.NAMES)
def test_train_steps_lower(method: str) -> None:
    lower_steps(trainer(method))


@pytest.mark.parametrize("optimizer", training.OPTIMIZERS)
def test_optimizers_lower(optimizer: str) -> None:
    lower_steps(trainer("adafocal", optimizer, accumulate=2, sum_loss=True))


def test_evaluation_lowers() -> None:
    made = trainer("cross_entropy")
    chunk = next(made.val.chunks(made.val.in_order(), 0, 1))
    state = made.abstract_state()
    lower(made._logits, state.params, state.model_state, chunk)
    lower(made.validation_metrics, LOGITS, LABELS)


@pytest.mark.parametrize("method", [name for name in methods.NAMES if "autolabel" in name])
def test_measuring_buckets_lowers(method: str) -> None:
    made = trainer(method)
    chunk = next(made.val.chunks(made.val.in_order(), 0, 1))
    state = made.abstract_state()
    asked: dict[str, Any] = {}

    class Evaluator:
        def validation(self) -> Any:
            return jnp.zeros((N, K)), jnp.zeros(N, jnp.int32)

        def per_bucket(self, measure: Any, args: Any, limit: int = 0) -> Any:
            asked.update(measure=measure, args=args)
            raise StopIteration

    with pytest.raises(StopIteration):
        made.method.after_epoch(made.method.init(made.info), Evaluator(), jax.random.key(0))
    lower(made.bucket_evaluator._all, state.params, state.model_state, chunk, **asked)
