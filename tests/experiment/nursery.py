"""A process that has imported everything, and forks a child for every command it is told to run.

Each child is `python -m calib_jax.main` with the imports already done: seconds less for every process
that a test needs dead. Nothing of JAX has started when a child is forked. A child may be told to die or
to be interrupted at the n-th call of a function; the library knows nothing of that.

Reads a JSON job per line, answers with the exit code: negative for the signal that killed it.
"""

import functools
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import sklearn.datasets  # noqa: F401 - the library imports it late

from calib_jax import dynamics, experiment, main, methods, report, train
from calib_jax.experiment import _evaluate, _recipe, _run, _workdir
from calib_jax.train import _loader

SECONDS = 150  # no child lives longer


def serve() -> None:
    gc.freeze()  # children end a second sooner if they need not look through all of this
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            sys.exit(_run_job(job))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run_job(job: dict[str, Any]) -> int:
    signal.alarm(SECONDS)
    # What a shell starts in the background ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate((os.devnull, job["stdout"], job["stderr"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    _keep_everything_compiled()
    if job["light"]:
        _leave_out_reports()
    if job["interrupt"]:  # at a step, not after as many steps as the clock allows
        _loader.Pace.update = lambda *_: None
    for what, number, action in job["interrupt"]:
        # To this very thread: two that reach the process while it is busy would count as one.
        INTERRUPT[what](number, functools.partial(signal.raise_signal, getattr(signal, action)))
    for what in job["patch"]:
        PATCH[what]()
    sys.argv = ["main", *job["arguments"]]  # where the config's flags look for overrides
    return main.main()


def _keep_everything_compiled() -> None:
    """However small: the children compile the same things over and over."""
    keep_compiled = experiment.keep_compiled

    def keep() -> None:
        keep_compiled()
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

    experiment.keep_compiled = keep


def _leave_out_reports() -> None:
    """Only training and predictions; and the final state, for a test to compare."""
    _evaluate.evaluate = lambda *_, **__: []
    report.write_report = lambda *_, **__: "done"
    report.plot_reliability = report.plot_risk_coverage = lambda *_, **__: _NoFigure()
    fit = train.fit

    def fit_and_keep(trainer: Any, seed: Any, saved: Any, log: Any, **options: Any) -> Any:
        state = fit(trainer, seed, saved, log, **options)
        leaves = jax.tree_util.tree_leaves_with_path(state)
        arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
        np.savez(log.path.parent / "state.npz", **arrays)
        return state

    train.fit = fit_and_keep


class _NoFigure:
    def savefig(self, *_: object, **__: object) -> None: ...


def _at_call(number: int, act: Callable[[], None], function: Callable[..., Any]) -> Any:
    """`function`, but the n-th call begins with `act()`."""
    calls = 0

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            act()
        return function(*args, **kwargs)

    return counted


def _training(number: int, act: Callable[[], None]) -> None:
    # Asked right before every call.
    train.Trainer.is_compiled = _at_call(number, act, train.Trainer.is_compiled)


def _judging(number: int, act: Callable[[], None]) -> None:
    _evaluate.evaluate = _at_call(number, act, _evaluate.evaluate)


def _after_epoch(number: int, act: Callable[[], None]) -> None:
    init = train.Trainer.__init__

    def made(self: train.Trainer, network: Any, phase: methods.Phase, *rest: Any) -> None:
        after_epoch = _at_call(number, act, phase.method.after_epoch)
        phase = phase._replace(method=phase.method._replace(after_epoch=after_epoch))
        init(self, network, phase, *rest)

    train.Trainer.__init__ = made


def _writing_arrays(number: int, act: Callable[[], None]) -> None:
    """Before the n-th npz is written: what a phase hands over, then logits."""
    _workdir.write_npz = _at_call(number, act, _workdir.write_npz)


def _writing_checkpoint(number: int, act: Callable[[], None]) -> None:
    """While the n-th checkpoint is written in the background."""
    save, calls = train.Checkpoints.save, 0

    def saved(self: train.Checkpoints, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            self.wait()  # for the one before
        save(self, *args)
        if calls == number:
            name = str(args[0])  # then with an ending, as long as it is not complete
            while not any(p.name.split(".")[0] == name for p in self._folder.iterdir()):
                pass  # it has not begun yet
            act()

    train.Checkpoints.save = saved


def _writing_line(number: int, act: Callable[[], None]) -> None:
    """When half of the n-th line of the log has been written."""
    append, calls = train.Log.append, 0

    def appended(self: train.Log, row: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            with self.path.open("a") as file:
                file.write(json.dumps(row)[:40])
            act()
        append(self, row)

    train.Log.append = appended


INTERRUPT: dict[str, Callable[[int, Callable[[], None]], None]] = {
    "training": _training,
    "after_epoch": _after_epoch,
    "writing_checkpoint": _writing_checkpoint,
    "writing_line": _writing_line,
    "writing_arrays": _writing_arrays,
    "judging": _judging,
}


def _two_phases() -> None:
    """A first training that maps the data, a second that leaves the hard half of it out."""

    def after_step(state: Any, batch: methods.Batch, aux: methods.Aux) -> Any:
        return dynamics.datamap_update(
            state, batch.position, aux.logits, batch.labels, batch.weights
        )

    plain = methods.create("cross_entropy")
    mapped = plain._replace(
        init=lambda info: dynamics.datamap_init(info.num_examples), after_step=after_step
    )

    def make(_: train.Trainer, state: train.TrainState) -> dict[str, np.ndarray]:
        values = dynamics.datamap_values(state.method_state)._asdict()
        return {key: np.asarray(value) for key, value in values.items()} | {
            "seen": np.asarray(state.method_state.seen)
        }

    def init(info: methods.Info) -> Any:
        return dynamics.median_split(info.artifacts["confidence"]).astype(np.float32)

    def loss(apply: Any, params: Any, state: Any, batch: methods.Batch, key: Any) -> Any:
        weights = batch.weights * state[batch.position]
        return plain.loss(apply, params, (), batch._replace(weights=weights), key)

    _run.ARTIFACTS["map"] = _recipe.Artifact(make, lambda _: {})
    _run.phases = lambda config, name, *_: [
        methods.Phase("map", mapped, provides="map"),
        methods.Phase("train", plain._replace(init=init, loss=loss), owner=name),
    ]


PATCH: dict[str, Callable[[], None]] = {"two_phases": _two_phases}

if __name__ == "__main__":
    serve()
