"""An experiment: every method and seed of a config, from data to evaluated predictions."""

import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from calib_jax import report, train
from calib_jax._signals import StopRequest
from calib_jax.data import FORMATS
from calib_jax.evaluation import check_calibrators
from calib_jax.experiment import _build, _config, _workdir
from calib_jax.experiment._custom import AnyNetwork, DataSets, make_custom
from calib_jax.experiment._ensemble import write_ensembles
from calib_jax.experiment._evaluate import evaluate_state
from calib_jax.experiment._experiment import Experiment
from calib_jax.experiment._fine_tune import num_examples, tuning_trainer
from calib_jax.experiment._generations import best_of
from calib_jax.experiment._keys import Config, JsonDict
from calib_jax.experiment._load import save_network
from calib_jax.experiment._recipe import ARTIFACTS, Arrays, phases, with_teachers
from calib_jax.experiment._variants import run_config
from calib_jax.methods import Method, Objective, Phase, Recipe

_ARTIFACTS_FILE = "artifacts.npz"
_SEED_STRIDE = (
    1_000_003  # between the seeds of one run's phases: no user's seeds are that far apart
)


def run(
    config: Config,
    workdir: str | os.PathLike[str],
    data: DataSets | None = None,
    network: AnyNetwork | None = None,
    method: Method | Objective | Recipe | None = None,
    *,
    log: Callable[[str], None] = print,
    sweep_index: int | None = None,
) -> str:
    """Run what is not finished yet and report on all of it.

    Args:
      config: Config, from `default_config`.
      workdir: Folder for everything; the same config in the same folder continues.
      data: Data sets instead of the config's: `train`, `val` and `test` in this order or by name. Others
        by name are evaluated, too. Raw texts are tokenized as the config says.
      network: Network, or Flax module with a logit for each class, instead of the config's.
      method: Method, objective or recipe to train with. Its row in the tables is the name in
        `config.method.name` that no other method has. If there is none, it takes the place of the
        methods named there, as `custom`.
      log: Function that is called with lines for the user, in the primary process.
      sweep_index: Number of the only run to do, of all seeds of the first method, then of the second
        and so on; what it builds on is done, too. Others may be done in the same workdir meanwhile.

    Returns:
      The comparison, to be printed.
    """
    if not train.is_primary():
        log = _ignore
    _config.check(config)
    workdir = pathlib.Path(workdir)
    config, custom = make_custom(config, data, network, method)
    names = with_teachers(config, _config.method_names(config, custom.name), custom)
    seeds = _config.seeds(config)
    check_calibrators(config.calibrate)  # now, not after hours of training
    job: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if sweep_index is not None:
        name, seed = _select_run(names, seeds, sweep_index)
        names, seeds = with_teachers(config, [name], custom), [seed]
        # Not the lock of the run's folder: who builds on the run may be doing it, then we wait.
        job = _workdir.locked(_workdir.run_folder(workdir, name, seed), ".job")
    with _workdir.locked(workdir, shared=sweep_index is not None), StopRequest() as stop:
        lock = functools.partial(_workdir.locked, log=log, should_stop=stop.requested)
        experiment = Experiment(config, workdir, custom, log, stop.requested, lock)
        experiment.claim_workdir(names, alone=sweep_index is None)
        with job:
            for name in names:
                runner = _MethodRunner(experiment, name)
                if config.seeds_in_parallel:
                    runner.train_seeds(seeds)
                for seed in seeds:
                    folder = _workdir.run_folder(workdir, name, seed)
                    with lock(folder):
                        if (folder / "results.json").exists():
                            log(f"{name}, seed {seed}: finished before")
                        else:
                            runner.run(seed, folder)
        # The last job of a sweep finds all runs finished.
        with lock(workdir, ".turn"):
            if not train.is_primary():
                return ""
            write_ensembles(workdir, config)
            if config.data.name in FORMATS and network is None:
                folder = _workdir.run_folder(workdir, names[-1], seeds[0])
                log(f"to classify new inputs: python -m calib_jax.predict {folder} INPUT")
            return report.write_report(workdir)


def _ignore(_: str) -> None:
    """Print nothing: of several processes only the primary one does."""


def _select_run(names: Sequence[str], seeds: Sequence[int], index: int) -> tuple[str, int]:
    runs = [(name, seed) for name in names for seed in seeds]
    if not 0 <= index < len(runs):
        raise ValueError(
            f"sweep_index={index}: expected 0 to {len(runs) - 1}, as there are {len(runs)} runs "
            f"({len(names)} methods x {len(seeds)} seeds)"
        )
    return runs[index]


class _MethodRunner:
    """All seeds of one method; they share what is compiled."""

    def __init__(self, experiment: Experiment, name: str) -> None:
        self.experiment, self.config, self.name = experiment, experiment.config, name
        self.phases = phases(self.config, name, experiment.custom)
        _, self.run_config = run_config(self.config, name)
        self._first_trainer: train.Trainer | None = None

    def run(self, seed: int, folder: pathlib.Path) -> None:
        """Run the phases of one seed that are not finished, and publish the best of its results."""
        folder.mkdir(parents=True, exist_ok=True)
        description = json.loads(self.run_config.to_json()) | {"seeds": [seed]}
        description["method"]["name"] = self.name
        identity = _workdir.read_identity(self.experiment.workdir)
        _workdir.write_json(folder / "config.json", _workdir.describe(description) | identity)
        artifacts: Arrays = {}
        folders = [_workdir.phase_folder(folder, p.name, p.owner) for p in self.phases]
        generations = []
        for i, phase in enumerate(self.phases):
            is_own = phase.owner == self.name
            # Preparations and teachers may be trained or needed by other jobs of a sweep, too.
            lock = contextlib.nullcontext() if is_own else self.experiment.lock(folders[i])
            results = folders[i] / "results.json"
            if is_own and folders[i] != folder:
                results = folders[i] / "evaluation.json"
            with lock:
                if not self._is_finished(phase, folders[i], results):
                    trainer, state = self._train_or_resume(phase, seed, folders[i], artifacts)
                    self._save_artifacts(phase, folders[i], trainer, state)
                    if is_own and not results.exists():
                        evaluation = self._evaluate(
                            phase.name, seed, folders[: i + 1], trainer, state, artifacts
                        )
                        _workdir.write_json(results, evaluation)
                        train.barrier(f"{results} is written")
            artifacts |= self._load_artifacts(phase, folders[i])
            if phase.is_result:
                generations.append((folders[i], json.loads(results.read_text())))
        self._publish_best(folder, folders, generations)

    def _is_finished(self, phase: Phase, folder: pathlib.Path, results: pathlib.Path) -> bool:
        """Return whether all files of a phase exist, so that it need not be trained or restored."""
        if self._saves_artifacts(phase) and not (folder / _ARTIFACTS_FILE).exists():
            return False
        return phase.owner != self.name or results.exists()

    def _publish_best(
        self,
        folder: pathlib.Path,
        folders: Sequence[pathlib.Path],
        generations: Sequence[tuple[pathlib.Path, JsonDict]],
    ) -> None:
        """Write the results of the best generation and remove checkpoints that are not kept."""
        if train.is_primary():
            results = best_of(generations, folder, self.config.checkpoint.best)
            _workdir.write_json(folder / "results.json", results)
        train.barrier(f"{folder} is finished")
        if self.config.checkpoint.keep:
            return
        results = json.loads((folder / "results.json").read_text())
        chosen, _ = generations[results.get("generation", 0) - 1]
        for phase, phase_folder in zip(self.phases, folders, strict=True):
            if (
                phase.name != "train" and phase_folder != chosen
            ):  # a "train" may have to teach others
                _workdir.remove(phase_folder / "checkpoints")

    def train_seeds(self, seeds: Sequence[int]) -> None:
        """Train all unfinished seeds in one program; `run` then finds them trained."""
        runs = [
            (seed, _workdir.run_folder(self.experiment.workdir, self.name, seed)) for seed in seeds
        ]
        runs = [(seed, folder) for seed, folder in runs if not (folder / "results.json").exists()]
        if len(runs) < 2:
            return
        artifacts: list[Arrays] = [{} for _ in runs]
        for phase in self.phases:
            folders = [_workdir.phase_folder(run, phase.name, phase.owner) for _, run in runs]
            self._train_phase(phase, [seed for seed, _ in runs], folders, artifacts)

    def _train_phase(
        self,
        phase: Phase,
        seeds: Sequence[int],
        folders: Sequence[pathlib.Path],
        artifacts: Sequence[Arrays],
    ) -> None:
        """Train one phase of several seeds, and add what it leaves to the artifacts of each."""
        saved = [(folder / _ARTIFACTS_FILE).exists() for folder in folders]
        is_done = self._saves_artifacts(phase) and all(saved)
        if not is_done and phase.owner in ("", self.name):  # a teacher has been run before
            self._fit_seeds(phase, seeds, folders, artifacts)
        for seed, folder, of_seed in zip(seeds, folders, artifacts, strict=True):
            if self._saves_artifacts(phase) and not (folder / _ARTIFACTS_FILE).exists():
                trained = self._train_or_resume(phase, seed, folder, of_seed)
                self._save_artifacts(phase, folder, *trained)
            of_seed |= self._load_artifacts(phase, folder)

    def _saves_artifacts(self, phase: Phase) -> bool:
        """Return whether a phase has successors; its file, empty if need be, shows it is finished."""
        return phase is not self.phases[-1]

    def _save_artifacts(
        self, phase: Phase, folder: pathlib.Path, trainer: train.Trainer, state: train.TrainState
    ) -> None:
        """Write what a phase leaves for those after it, unless that has been done."""
        path = folder / _ARTIFACTS_FILE
        if self._saves_artifacts(phase) and not path.exists():
            arrays = ARTIFACTS[phase.provides].make(trainer, state) if phase.provides else {}
            _workdir.write_npz(path, **arrays)
            train.barrier(f"{path} is written")

    def _load_artifacts(self, phase: Phase, folder: pathlib.Path) -> Arrays:
        """Return what a phase has left for those after it."""
        if not self._saves_artifacts(phase):
            return {}
        path = folder / _ARTIFACTS_FILE
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        # Rows of examples are looked up by position; some artifacts have none.
        examples = self.experiment.sets.train.ids
        if not np.array_equal(arrays.get("ids", examples), examples):
            raise ValueError(
                f"{path} is of other training examples: the data have changed since; choose "
                "another --workdir"
            )
        return arrays

    def _trainer(self, phase: Phase, artifacts: Arrays) -> train.Trainer:
        """Return the trainer of a phase; the first phase has no artifacts, and one for all seeds."""
        if phase is self.phases[0] and self._first_trainer is not None:
            return self._first_trainer
        if phase is self.phases[0]:
            trainer = self.experiment.built.pop((phase.owner, phase.name), None)
            self._first_trainer = trainer or self._build_trainer(phase, artifacts)
            return self._first_trainer
        return self._build_trainer(phase, artifacts)

    def _build_trainer(self, phase: Phase, artifacts: Arrays) -> train.Trainer:
        _, config = run_config(self.config, phase.owner)
        experiment = self.experiment
        return _build.build_trainer(config, experiment.sets, phase, artifacts, experiment.network)

    def _train_or_resume(
        self, phase: Phase, seed: int, folder: pathlib.Path, artifacts: Arrays
    ) -> tuple[train.Trainer, train.TrainState]:
        """Return the trainer and the last (or best) state of a phase, trained as far as necessary."""
        folder.mkdir(parents=True, exist_ok=True)
        trainer = self._trainer(phase, artifacts)
        title, best = self._title(phase, [seed]), self._selects_best(phase)
        state = self._fit(trainer, seed + _SEED_STRIDE * phase.number, folder, title, best)
        return trainer, state

    def _fit(
        self, trainer: train.Trainer, seed: int, folder: pathlib.Path, title: str, best: bool
    ) -> train.TrainState:
        with self._checkpoints(folder, title) as checkpoints:
            state = train.fit(
                trainer, seed, checkpoints, self._log(folder), **self._fit_options(title, best)
            )
            return checkpoints.restore_best(trainer.abstract_state()) if best else state

    def _fit_seeds(
        self,
        phase: Phase,
        seeds: Sequence[int],
        folders: Sequence[pathlib.Path],
        artifacts: Sequence[Arrays],
    ) -> None:
        """Train one phase of several seeds in one program."""
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        title = self._title(phase, seeds)
        with contextlib.ExitStack() as opened:
            train.fit_seeds(
                [self._trainer(phase, of_seed) for of_seed in artifacts],
                [seed + _SEED_STRIDE * phase.number for seed in seeds],
                [opened.enter_context(self._checkpoints(folder, title)) for folder in folders],
                [self._log(folder) for folder in folders],
                **self._fit_options(title, self._selects_best(phase)),
            )

    def _title(self, phase: Phase, seeds: Sequence[int]) -> str:
        word = "seed" if len(seeds) == 1 else "seeds"
        title = f"{phase.owner or self.name}, {word} {', '.join(map(str, seeds))}"
        return f"{title}, {phase.name}" if len(self.phases) > 1 else title

    def _selects_best(self, phase: Phase) -> bool:
        """Return whether the best state counts; a preparation's artifacts are of all epochs."""
        return self.config.checkpoint.select == "best" and phase.is_result

    def _fit_options(self, title: str, best: bool) -> JsonDict:
        return {
            "title": title,
            "save_seconds": self.config.checkpoint.seconds,
            "save_best": best,
            "should_stop": self.experiment.should_stop,
        }

    def _log(self, folder: pathlib.Path) -> train.Log:
        tensorboard = folder / "tensorboard" if self.config.tensorboard else None
        return train.Log(folder / "metrics.jsonl", tensorboard)

    def _checkpoints(self, folder: pathlib.Path, title: str) -> train.Checkpoints:
        return train.Checkpoints(
            folder / "checkpoints",
            best=self.config.checkpoint.best,
            log=lambda line: self.experiment.log(f"{title}: {line}"),
        )

    def _evaluate(
        self,
        phase: str,
        seed: int,
        folders: Sequence[pathlib.Path],
        trainer: train.Trainer,
        state: train.TrainState,
        artifacts: Arrays,
    ) -> JsonDict:
        """Evaluate a phase, the last of those in `folders`, as it is and fine-tuned."""
        logs = [train.Log(folder / "metrics.jsonl").rows() for folder in folders]
        seconds = sum(rows[-1]["perf/seconds"] for rows in logs)
        sets, folder, tune = self.experiment.sets, folders[-1], self.config.fine_tune
        run = _workdir.run_folder(self.experiment.workdir, self.name, seed)
        save_network(run, self.run_config, sets, trainer)
        evaluation = evaluate_state(
            self.config, self.name, seed, folder, sets, trainer, state, seconds
        )
        for share in tune.shares if tune.data else ():
            tuning = tuning_trainer(self.run_config, sets, (trainer, state), artifacts, share, seed)
            name = f"tuned_{num_examples(share, sets)}"
            (folder / name).mkdir(exist_ok=True)
            title = f"{self.name}, seed {seed}, {phase}, {name}"
            tuned = self._fit(tuning, seed, folder / name, title, best=False)
            after = evaluate_state(
                self.config, self.name, seed, folder / name, sets, tuning, tuned, seconds
            )
            if not self.config.checkpoint.keep:
                _workdir.remove(folder / name / "checkpoints")
            evaluation["splits"][f"{tune.data}_{name}"] = after["splits"][tune.data]
        return evaluation
