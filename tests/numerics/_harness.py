"""One numerics suite for every public function of the arrays-only rooms.

A room's test file lists one `Case` (or more) per public function: the function and how its arrays are
made from a `Batch` of predictions. `Suite` then checks each case

- for its types: bf16, f16, f32, f64 inputs, alone and mixed, under `jax_enable_x64`, strict dtype
  promotion and rank promotion errors: narrow inputs give float32, float64 stays float64;
- in every mode: eager, jit, vmap, grad and `lax.scan` agree in float64, under `jax_debug_nans` too;
  the gradient is the slope of the value;
- in the corners (`SCENES`): one example of two classes, masked classes, ties, all right, all wrong, ...:
  finite values and gradients;
- with padding: rows of weight 0 have no effect even if they hold NaN; all-zero weights give NaN;
- with invalid labels and without examples;
- with 50,000 classes: memory that grows like the input, n K.

The default run takes each of these once; `-m slow` takes all dtypes, scenes and flags one by one.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

NARROW = (jnp.bfloat16, jnp.float16)
WIDE_N, WIDE_K = 64, 50_000

# ------------------------------------------------------------------ inputs


@dataclasses.dataclass(frozen=True)
class Batch:
    """Predictions of n examples and what else a function may need, in float64 on the host."""

    logits: np.ndarray
    labels: np.ndarray
    seed: int = 0

    @property
    def n(self) -> int:
        return self.logits.shape[0]

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]

    @property
    def rng(self) -> np.random.Generator:
        """Always the same one: two inputs of one case must draw from one."""
        return np.random.default_rng(self.seed + 1)

    @functools.cached_property
    def probs(self) -> np.ndarray:
        p = np.exp(self.logits - self.logits.max(-1, keepdims=True, initial=-np.inf))
        return p / p.sum(-1, keepdims=True)

    @functools.cached_property
    def soft(self) -> np.ndarray:
        """Soft labels: 0.9 on the label, the rest on the classes that are not masked."""
        possible = np.isfinite(self.logits)
        hot = np.arange(self.num_classes) == self.labels[:, None]
        return 0.9 * hot + 0.1 * possible / possible.sum(-1, keepdims=True)

    @property
    def confidence(self) -> np.ndarray:
        return self.probs.max(-1)

    @property
    def correct(self) -> np.ndarray:
        return (self.logits.argmax(-1) == self.labels).astype(np.float64)


def _spread(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return 2 * rng.normal(size=(n, k)), rng.integers(0, k, n)


def _masked(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The last class has logit -inf and is nobody's label."""
    logits, labels = _spread(n, k, rng)
    logits[:, -1] = -np.inf
    return logits, labels % (k - 1)


def _single(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All classes but the label's are masked."""
    logits, labels = _spread(n, k, rng)
    return np.where(np.arange(k) == labels[:, None], logits, -np.inf), labels


def _ties(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((n, k)), _spread(n, k, rng)[1]


def _all_correct(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    logits, _ = _spread(n, k, rng)
    return logits, logits.argmax(-1)


def _all_wrong(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    logits, _ = _spread(n, k, rng)
    return logits, logits.argmin(-1)


def _extreme(n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    logits, labels = _spread(n, k, rng)
    return 1e4 * np.sign(logits), labels


SCENES = {
    "spread": _spread,
    "masked": _masked,
    "single": _single,
    "ties": _ties,
    "all correct": _all_correct,
    "all wrong": _all_wrong,
    "extreme": _extreme,
}


@functools.cache
def batch(scene: str = "spread", n: int = 8, k: int = 4, seed: int = 0) -> Batch:
    logits, labels = SCENES[scene](n, k, np.random.default_rng(seed))
    return Batch(logits, labels.astype(np.int32), seed)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A public function and how to call it.

    Attributes:
      function: what is tested, called as `function(**inputs, **options)`.
      inputs: from a batch to the array arguments by name. Float64 arrays are cast to the dtype under
        test; those inside a state (tuple, dataclass) to it or to float32, whichever is wider.
      name: the public name it covers; by default the function's own.
      variant: what tells it from another case of the same name.
      options: arguments that are no arrays.
      grad: inputs to differentiate the sum of the outputs by; none if that has no meaning.
      slope: whether the gradient is the slope of the value; not where part of it is held constant.
      result: dtype of float outputs: `'wide'` (float32, or float64 for float64), `'same'` (that of the
        inputs), `'state'` (that of the state it updates), `'float32'` (always).
      padded: inputs whose rows are filled with NaN where `weights` is 0; none without such an argument.
      rows: whether it returns one value per example (rows of weight 0 are then left out of comparisons).
      alone: whether a row's value depends on that row only.
      no_weight: what all-zero weights give: `'nan'`, or `'kept'` for a state that stays a number.
      labels: the argument that holds integer labels; `None` if there is none.
      carry: the input that the function returns updated, to be carried through `lax.scan`.
      empty: whether n = 0 raises a `ValueError`.
      scenes: those in which value and gradient must be finite.
      no_optimum: those of them in which a fit has none that it could reach (separable or wildly scaled
        examples), so that rounding decides where it stops: eager and jit may differ.
      least: the smallest number of examples it takes.
      wide: whether it runs with 50,000 classes.
      memory: temporary memory allowed there, in multiples of the n K input in float32.
      slow: whether it runs with `-m slow` only.
      modes: of `'eager', 'jit', 'vmap', 'scan'`, those it has. A second case of a function may be left
        with jit (and grad) only, to save time; it is then also left out of the test of narrow inputs.
      rtol: relative tolerance of comparisons between modes in float64.
    """

    function: Callable[..., Any]
    inputs: Callable[[Batch], dict[str, Any]]
    name: str = ""
    variant: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    grad: tuple[str, ...] = ()
    slope: bool = True
    result: str = "wide"
    padded: tuple[str, ...] = ()
    rows: bool = True
    alone: bool = True
    no_weight: str = "nan"
    labels: str | None = None
    carry: str | None = None
    empty: bool = True
    scenes: tuple[str, ...] = tuple(SCENES)
    no_optimum: tuple[str, ...] = ()
    least: int = 1
    wide: bool = True
    memory: float = 16.0
    slow: bool = False
    modes: tuple[str, ...] = ("eager", "jit", "vmap", "scan")
    rtol: float = 1e-10

    def __str__(self) -> str:
        return f"{self.public_name}-{self.variant}" if self.variant else self.public_name

    @property
    def public_name(self) -> str:
        return self.name or self.function.__name__

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        return self.function(**inputs, **self.options)

    def make(self, source: Batch, dtype: Any, state_dtype: Any = None) -> dict[str, Any]:
        """The array arguments in that dtype; those inside a state in `state_dtype`."""
        if state_dtype is None:
            state_dtype = jnp.float32 if dtype in NARROW else dtype

        def cast(x: Any, dtype: Any) -> Any:
            is_float = isinstance(x, np.ndarray) and x.dtype == np.float64
            return jnp.asarray(x, dtype if is_float else None)

        return {
            name: cast(x, dtype)
            if isinstance(x, np.ndarray | jax.Array)
            else jax.tree.map(lambda leaf: cast(leaf, state_dtype), x)
            for name, x in self.inputs(source).items()
        }


# ------------------------------------------------------------------ helpers


@contextlib.contextmanager
def strict(nans: bool = True) -> Iterator[None]:
    """All of JAX's flags that forbid something, with float64 allowed."""
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jax.debug_nans(nans),
    ):
        yield


def floats(tree: Any) -> list[jax.Array]:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def total(tree: Any) -> jax.Array:
    """The sum of all floats, to be differentiated."""
    return functools.reduce(jnp.add, [jnp.sum(leaf) for leaf in floats(tree)])


def value_and_grad(case: Case) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """The outputs, and the gradient of their sum by the inputs `case.grad` (None without any)."""

    def run(inputs: dict[str, Any]) -> tuple[Any, Any]:
        if not case.grad:
            return case(inputs), None
        moving = {name: inputs[name] for name in case.grad}

        def objective(moving: dict[str, Any]) -> tuple[jax.Array, Any]:
            outputs = case(inputs | moving)
            return total(outputs), outputs

        (_, outputs), gradient = jax.value_and_grad(objective, has_aux=True)(moving)
        return outputs, gradient

    return run


@functools.cache
def compiled(case: Case) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """`value_and_grad` under jit, compiled once for all tests of a case with inputs of one shape."""
    return jax.jit(value_and_grad(case))


def stack(*inputs: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *inputs)


def part(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def scanned(case: Case, stacked: dict[str, Any]) -> Any:
    """The outputs of a scan: with the state as its carry if there is one, else one by one."""
    if case.carry is None:
        return jax.lax.scan(lambda carry, inputs: (carry, case(inputs)), None, stacked)[1]
    rest = {name: x for name, x in stacked.items() if name != case.carry}

    def step(state: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
        state = case({case.carry: state, **inputs})
        return state, state

    return jax.lax.scan(step, part(stacked[case.carry], 0), rest)[1]


def every_mode(case: Case, stacked: dict[str, Any], direction: Any) -> dict[str, Any]:
    """One program with a case in all of its modes, on two batches."""
    results = {"jit": case(part(stacked, 0))}
    if "vmap" in case.modes:
        results["vmap"] = jax.vmap(case)(stacked)
    if "scan" in case.modes:
        results["scan"] = scanned(case, stacked)
    if case.grad:
        inputs = part(stacked, 0)
        results["grad"] = value_and_grad(case)(inputs)[1]
        for name, step in (("plus", 1e-5), ("minus", -1e-5)):
            moved = {k: inputs[k] + step * direction[k] for k in case.grad}
            results[name] = total(case(inputs | moved))
    return results


def has_weights(case: Case) -> bool:
    return bool(case.padded)


def public_names(room: ModuleType) -> set[str]:
    return {n for n, x in vars(room).items() if not n.startswith("_") and not inspect.ismodule(x)}


def pad(case: Case, source: Batch, filling: float) -> dict[str, Any]:
    """Inputs of a batch whose rows 1 and 5 have weight 0 and hold `filling`."""
    inputs = case.make(source, jnp.float32)
    weights = np.ones(source.n)
    weights[[1, 5]] = 0.0
    for name in case.padded:
        inputs[name] = inputs[name].at[jnp.array([1, 5])].set(filling)
    return inputs | {"weights": jnp.asarray(weights, jnp.float32)}


def drop(case: Case, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs without the rows of weight 0."""
    keep = np.asarray(inputs["weights"]) > 0
    n = keep.shape[0]
    return {
        name: x[keep] if isinstance(x, jax.Array) and x.shape[:1] == (n,) else x
        for name, x in inputs.items()
    }


# ------------------------------------------------------------------ the suite


class Suite:
    """The tests of a room. A subclass gives `room`, `cases`, `exempt` and `invalid`.

    `conftest.py` runs each test with those cases that its `applies` accepts.
    """

    room: ModuleType
    cases: tuple[Case, ...]
    exempt: frozenset[str] = frozenset()  # public names that are no functions of arrays
    invalid: str = "nan"  # or 'raises': eagerly, and NaN under jit

    def test_every_public_name_has_a_case(self) -> None:
        covered = {case.public_name for case in self.cases}
        assert not covered & self.exempt
        assert covered | self.exempt == public_names(self.room)
        assert len({str(case) for case in self.cases}) == len(self.cases)

    def test_types(self, case: Case) -> None:
        check_types(case)

    def test_modes(self, case: Case) -> None:
        check_modes(case)

    def test_corners(self, case: Case) -> None:
        check_corners(case)

    def test_narrow_inputs(self, case: Case) -> None:
        check_narrow_inputs(case)

    test_narrow_inputs.applies = lambda case: case.result == "wide" and "eager" in case.modes

    def test_padding(self, case: Case) -> None:
        check_padding(case)

    test_padding.applies = has_weights

    def test_no_weight_at_all(self, case: Case) -> None:
        check_no_weight_at_all(case)

    test_no_weight_at_all.applies = lambda case: has_weights(case) and not case.rows

    def test_no_examples(self, case: Case) -> None:
        with pytest.raises(ValueError, match=r"n = 0|at least"):
            case(case.make(batch(n=0), jnp.float32))

    test_no_examples.applies = lambda case: case.empty

    def test_invalid_labels(self, case: Case) -> None:
        check_invalid_labels(case, self.invalid)

    test_invalid_labels.applies = lambda case: case.labels is not None

    def test_many_classes(self, case: Case) -> None:
        check_many_classes(case)

    test_many_classes.applies = lambda case: case.wide

    @pytest.mark.slow
    def test_many_classes_run(self, case: Case) -> None:
        check_many_classes(case, run=True)

    test_many_classes_run.applies = lambda case: case.wide

    @pytest.mark.slow
    @pytest.mark.parametrize("flag", ["x64", "strict", "rank", "nans"])
    @pytest.mark.parametrize("dtype", [*NARROW, jnp.float32, jnp.float64], ids=lambda d: d.__name__)
    def test_grid(self, case: Case, dtype: Any, flag: str) -> None:
        check_grid(case, dtype, flag)


def check_types(case: Case) -> None:
    """Traced only: what fails by its types fails before anything is run."""
    source = batch(n=max(case.least, 8))
    with strict():
        for dtype in (*NARROW, jnp.float32, jnp.float64):
            inputs = case.make(source, dtype)
            wide = jnp.float64 if dtype == jnp.float64 else jnp.float32
            want = {"same": dtype, "float32": jnp.float32}.get(case.result, wide)
            for leaf in jax.tree.leaves(jax.eval_shape(case, inputs)):
                if jnp.issubdtype(leaf.dtype, jnp.floating):
                    chex.assert_type(leaf, want)
        # A state in float32 with predictions in float64, and the other way round.
        for dtype, state_dtype in ((jnp.float64, jnp.float32), (jnp.float32, jnp.float64)):
            inputs = case.make(source, dtype, state_dtype)
            result = jax.eval_shape(case, inputs)
            if case.carry is not None:
                chex.assert_trees_all_equal_shapes_and_dtypes(result, inputs[case.carry])
        # One argument in float32 among others in float64.
        inputs = case.make(source, jnp.float64)
        for name, x in inputs.items():
            if isinstance(x, jax.Array) and x.dtype == jnp.float64:
                jax.eval_shape(case, inputs | {name: x.astype(jnp.float32)})
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        jax.eval_shape(case, case.make(source, jnp.float32))


def check_modes(case: Case) -> None:
    n = max(case.least, 8)
    with strict():
        inputs = [case.make(batch(n=n, seed=seed), jnp.float64) for seed in (0, 1)]
        if case.carry is not None:  # one state, updated twice
            inputs[1][case.carry] = inputs[0][case.carry]
        rng = np.random.default_rng(5)
        direction = {k: jnp.asarray(rng.normal(size=inputs[0][k].shape)) for k in case.grad}
        run = functools.partial(every_mode, case)
        results = jax.jit(run)(stack(*inputs), direction)
        close = functools.partial(
            chex.assert_trees_all_close, rtol=case.rtol, atol=case.rtol, strict=True
        )
        if "eager" in case.modes:
            eager = case(inputs[0])
            chex.assert_tree_all_finite(eager)
            close(results["jit"], eager)
        if "vmap" in case.modes:
            close(part(results["vmap"], 0), results["jit"])
        if "scan" in case.modes:
            close(part(results["scan"], 0), results["jit"])
        if case.carry is None and {"scan", "vmap"} <= set(case.modes):
            close(part(results["scan"], 1), part(results["vmap"], 1))
        if case.grad and case.slope:
            want = (results["plus"] - results["minus"]) / 2e-5
            got = total({k: results["grad"][k] * direction[k] for k in case.grad})
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def check_corners(case: Case) -> None:
    run, n = compiled(case), max(case.least, 8)
    for scene in case.scenes:
        result = run(case.make(batch(scene, n=n), jnp.float32))
        chex.assert_tree_all_finite(result)
    chex.assert_tree_all_finite(run(case.make(batch(n=case.least, k=2), jnp.float32)))


def check_narrow_inputs(case: Case) -> None:
    """Nothing is computed in the narrow type: the same result as for its values in float32."""
    narrow = case.make(batch(n=max(case.least, 8)), jnp.bfloat16)
    wide = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype in NARROW else x, narrow)
    got, want = jax.jit(case)(narrow), compiled(case)(wide)[0]
    chex.assert_trees_all_close(got, want, rtol=1e-5, atol=1e-6, strict=True)


def check_padding(case: Case) -> None:
    run, source = compiled(case), batch(n=max(case.least, 8))
    inputs = pad(case, source, math.nan)
    got, slope = run(inputs)
    want, _ = run(drop(case, inputs))
    keep = np.asarray(inputs["weights"]) > 0
    if case.rows:
        got = jax.tree.map(lambda x: x[keep], got)
    chex.assert_tree_all_finite(got)
    chex.assert_trees_all_close(got, want, rtol=max(2e-5, case.rtol), atol=1e-6)
    if case.grad:
        chex.assert_tree_all_finite(slope)
        chex.assert_trees_all_close(slope, run(pad(case, source, 0.25))[1], rtol=1e-6, atol=1e-7)
        for name in set(case.grad) & set(case.padded):
            np.testing.assert_array_equal(slope[name][~keep], 0.0)


def check_no_weight_at_all(case: Case) -> None:
    inputs = pad(case, batch(n=max(case.least, 8)), 0.25)
    result, _ = compiled(case)(inputs | {"weights": jnp.zeros_like(inputs["weights"])})
    if case.no_weight == "kept":
        chex.assert_tree_all_finite(result)
        return
    for leaf in floats(result):
        assert jnp.all(jnp.isnan(leaf)), result


def check_invalid_labels(case: Case, rule: str) -> None:
    source = batch(n=max(case.least, 8))
    inputs = case.make(source, jnp.float32)
    run = compiled(case)
    want, _ = run(inputs)
    for wrong in (-1, source.num_classes, 2**31 - 1):
        bad = inputs | {case.labels: inputs[case.labels].at[2].set(wrong)}
        got, _ = run(bad)
        if rule == "raises":
            with pytest.raises(ValueError, match="label"):
                case(bad)
        if case.rows:
            others = np.arange(source.n) != 2
            got_others = [leaf[others] for leaf in floats(got)]
            chex.assert_tree_all_finite(got_others)
            if case.alone:
                want_others = [leaf[others] for leaf in floats(want)]
                chex.assert_trees_all_close(got_others, want_others, rtol=1e-5)
            got = [leaf[2] for leaf in floats(got)]
        for leaf in floats(got):
            assert jnp.all(jnp.isnan(leaf)), (wrong, leaf)


def check_many_classes(case: Case, run: bool = False) -> None:
    """Extra memory O(n K) of value and gradient, as compiled; with `run`, finite ones."""
    inputs = case.make(batch(n=WIDE_N, k=WIDE_K), jnp.float32)
    program = compiled(case).lower(inputs).compile()
    used = program.memory_analysis().temp_size_in_bytes
    assert used <= case.memory * 4 * WIDE_N * WIDE_K, f"{used / (4 * WIDE_N * WIDE_K):.1f} n K"
    if run:
        chex.assert_tree_all_finite(program(inputs))


def check_grid(case: Case, dtype: Any, flag: str) -> None:
    """One dtype, one flag, all scenes: the eager and the jitted value, and the gradient."""
    flags = {
        "x64": jax.enable_x64(True),
        "strict": jax.numpy_dtype_promotion("strict"),
        "rank": jax.numpy_rank_promotion("raise"),
        "nans": jax.debug_nans(True),
    }
    with flags[flag], jax.enable_x64(flag == "x64" or dtype == jnp.float64):
        run = jax.jit(value_and_grad(case))  # compiled once: all scenes have one shape
        for scene in case.scenes:
            inputs = case.make(batch(scene, n=max(case.least, 8)), dtype)
            result = run(inputs)
            chex.assert_tree_all_finite(result)
            if "eager" in case.modes:
                rtol = 1e-2 if case.result == "same" else 1e-4
                close = functools.partial(chex.assert_trees_all_close, rtol=rtol, atol=rtol)
                eager = case(inputs)
                chex.assert_tree_all_finite(eager)
                if scene not in case.no_optimum:
                    close(eager, result[0], custom_message=scene)
