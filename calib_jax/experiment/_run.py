"""An experiment: every method and seed of a config, from data to judged predictions."""

import contextlib
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from calib_jax import report, train
from calib_jax._signals import StopRequest
from calib_jax.evaluation import Evaluation, Predictions, check_calibrators, detect, evaluate
from calib_jax.experiment import _build, _config, _robustness, _workdir
from calib_jax.experiment._errors import confident_errors, num_kept
from calib_jax.experiment._fine_tune import num_examples, tuning_trainer
from calib_jax.experiment._generations import best_of
from calib_jax.experiment._phases import Phase, phases, with_teachers
from calib_jax.experiment._variants import run_config

Trained = Callable[[], tuple[train.Trainer, train.TrainState]]
_HANDED_OVER = "handed_over.npz"
_APART = 1_000_003  # between the seeds of one run's trainings: others' are not so far from 0


def run(
    config: Any,
    workdir: pathlib.Path,
    say: Callable[[str], None] = print,
    sweep_index: int | None = None,
) -> str:
    """Runs what is not finished yet and reports on all of it.

    Args:
      config: from `default_config`.
      workdir: where everything goes; the same config in the same folder goes on.
      say: called with lines for the user.
      sweep_index: do only this of the runs, which are all seeds of the first method, then of the second
        and so on, and what it builds on. Others may be done in the same workdir at the same time.

    Returns:
      The comparison, to be printed.
    """
    _config.check(config)
    names, seeds = with_teachers(config, _config.method_names(config)), _config.seeds(config)
    check_calibrators(config.calibrate)  # now, not after hours of training
    job: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if sweep_index is not None:
        name, seed = _chosen(names, seeds, sweep_index)
        names, seeds = with_teachers(config, [name]), [seed]
        # Not the lock of the run's folder: who builds on the run may be doing it, then we wait.
        job = _workdir.locked(_workdir.run_folder(workdir, name, seed), ".job")
    with _workdir.locked(workdir, shared=sweep_index is not None), StopRequest() as stop:
        in_turn = functools.partial(_workdir.locked, say=say, should_stop=stop.requested)
        with in_turn(workdir, ".turn"):
            if train.is_primary():
                _workdir.claim(workdir, config)
            train.barrier("the workdir is ours")
        sets = functools.cache(lambda: _load(config, say))
        with job:
            for name in names:
                runner = _Runner(config, name, sets, say, stop.requested, in_turn)
                if config.seeds_in_parallel:
                    runner.train_ahead(seeds, workdir / name)
                for seed in seeds:
                    folder = _workdir.run_folder(workdir, name, seed)
                    with in_turn(folder):
                        if (folder / "results.json").exists():
                            say(f"{name}, seed {seed}: finished before")
                        else:
                            runner.run(seed, folder)
        # Whoever of a sweep comes last finds all of it finished.
        with in_turn(workdir, ".turn"):
            return report.write_report(workdir) if train.is_primary() else ""


def _chosen(names: Sequence[str], seeds: Sequence[int], index: int) -> tuple[str, int]:
    runs = [(name, seed) for name in names for seed in seeds]
    if not 0 <= index < len(runs):
        raise ValueError(
            f"sweep_index={index}: expected 0 to {len(runs) - 1}, as there are {len(runs)} runs "
            f"({len(names)} methods x {len(seeds)} seeds)"
        )
    return runs[index]


def _load(config: Any, say: Callable[[str], None]) -> _build.Data:
    sets = _build.load_data(config)
    for part in sets.parts():
        for note in part.notes:
            say(f"{part.name} {part.split}: {note}")
    return sets


class _Runner:
    """All seeds of one method; they share what is compiled."""

    def __init__(
        self,
        config: Any,
        name: str,
        sets: Callable[[], _build.Data],
        say: Callable[[str], None],
        should_stop: Callable[[], bool],
        in_turn: Callable[[pathlib.Path], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.config, self.name, self.sets = config, name, sets
        self.say, self.should_stop, self.in_turn = say, should_stop, in_turn
        self.phases = phases(config, name)
        _, self.run_config = run_config(config, name)
        self.first_trainer = functools.cache(lambda: self._trainer(self.phases[0], {}))

    def run(self, seed: int, folder: pathlib.Path) -> None:
        """All phases of one seed that are not finished; of its own, the best is its result."""
        folder.mkdir(parents=True, exist_ok=True)
        described = json.loads(self.run_config.to_json()) | {"seeds": [seed]}
        described["method"]["name"] = self.name
        _workdir.write_json(folder / "config.json", _workdir.describe(described))
        handed: dict[str, np.ndarray] = {}
        places: list[pathlib.Path] = []
        generations = []
        for phase in self.phases:
            place = _workdir.phase_folder(folder, phase.name, phase.row)
            places.append(place)
            # Trains, goes on, or only reads the end of a training; asked for if something is missing.
            trained = functools.cache(
                functools.partial(self._fit_one, phase, seed, place, dict(handed))
            )
            if phase is not self.phases[-1]:
                # What is not the run's own, others of a sweep may be training or asking for, too.
                own = phase.row == self.name
                with contextlib.nullcontext() if own else self.in_turn(place):
                    handed |= self._handed_over(phase, place, trained)
            if phase.row == self.name:
                path = place / ("results.json" if place == folder else "evaluation.json")
                if not path.exists():
                    found = self._evaluate(phase.name, seed, places, trained, handed)
                    _workdir.write_json(path, found)
                    train.barrier(f"{path} is written")
                generations.append((place, json.loads(path.read_text())))
            elif phase.row:  # a method that this one builds on, and that has been run before
                generations.append((place, json.loads((place / "results.json").read_text())))
        if train.is_primary():
            results = best_of(generations, folder, self.config.checkpoint.best)
            _workdir.write_json(folder / "results.json", results)
        train.barrier(f"{folder} is finished")
        if not self.config.checkpoint.keep:
            results = json.loads((folder / "results.json").read_text())
            chosen = generations[results.get("generation", 0) - 1][0]
            for phase, place in zip(self.phases, places, strict=True):
                if phase.name != "train" and place != chosen:  # a "train" may have to teach others
                    _workdir.remove(place / "checkpoints")

    def _trainer(self, phase: Phase, handed: dict[str, np.ndarray]) -> train.Trainer:
        config = self.config if phase.config is None else phase.config
        return _build.build_trainer(config, self.sets(), phase.method, handed)

    def train_ahead(self, seeds: Sequence[int], folder: pathlib.Path) -> None:
        """Trains all seeds that are not finished at once; `run` then finds them trained."""
        seeds = [s for s in seeds if not (folder / f"seed_{s}" / "results.json").exists()]
        handed: list[dict[str, np.ndarray]] = [{} for _ in seeds]
        for phase in self.phases if len(seeds) > 1 else ():
            places = [
                _workdir.phase_folder(folder / f"seed_{seed}", phase.name, phase.row)
                for seed in seeds
            ]
            is_last = phase is self.phases[-1]
            done = not is_last and all((place / _HANDED_OVER).exists() for place in places)
            if not done and phase.row in ("", self.name):  # another row has been run before
                self._fit(phase, seeds, places, handed)
            for seed, place, given in zip(seeds, places, handed, strict=True):
                if not is_last:
                    trained = functools.partial(self._fit_one, phase, seed, place, dict(given))
                    given |= self._handed_over(phase, place, trained)

    def _handed_over(
        self, phase: Phase, folder: pathlib.Path, trained: Trained
    ) -> dict[str, np.ndarray]:
        """What a phase hands to those after it, once and for all."""
        path = folder / _HANDED_OVER
        if not path.exists():
            _workdir.write_npz(path, **phase.hand_over(*trained()))
            train.barrier(f"{path} is written")
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        # Rows of examples are looked up by position; a phase may have handed over none.
        examples = self.sets().train.ids
        if not np.array_equal(arrays.get("ids", examples), examples):
            raise ValueError(
                f"{path} is of other training examples: the data have changed since; choose "
                "another --workdir"
            )
        return arrays

    def _fit_one(
        self, phase: Phase, seed: int, folder: pathlib.Path, handed: dict[str, np.ndarray]
    ) -> tuple[train.Trainer, train.TrainState]:
        trainers, states = self._fit(phase, [seed], [folder], [handed])
        return trainers[0], states[0]

    def _fit(
        self,
        phase: Phase,
        seeds: Sequence[int],
        folders: Sequence[pathlib.Path],
        handed: Sequence[dict[str, np.ndarray]],
    ) -> tuple[list[train.Trainer], list[train.TrainState]]:
        """Trainers and states of a phase of several seeds."""
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        # What the first phase compiles does not depend on the seed; what another was handed does.
        first = phase is self.phases[0]
        trainers = [self.first_trainer() if first else self._trainer(phase, h) for h in handed]
        several = "s" if len(seeds) > 1 else ""
        title = f"{phase.row or self.name}, seed{several} {', '.join(map(str, seeds))}"
        if len(self.phases) > 1:
            title += f", {phase.name}"
        # What only prepares hands over what it saw in all epochs, not up to the best of them.
        best = self.config.checkpoint.select == "best" and phase.row != ""
        apart = [seed + _APART * phase.number for seed in seeds]
        return trainers, self._train(trainers, apart, folders, title, best)

    def _train(
        self,
        trainers: Sequence[train.Trainer],
        seeds: Sequence[int],
        folders: Sequence[pathlib.Path],
        title: str,
        best: bool,
    ) -> list[train.TrainState]:
        """The last state of each training, or its best, from wherever they have come to."""
        wanted, tensorboard = self.config.checkpoint, self.config.tensorboard
        logs = [
            train.Log(f / "metrics.jsonl", f / "tensorboard" if tensorboard else None)
            for f in folders
        ]
        with contextlib.ExitStack() as opened:
            checkpoints = [
                opened.enter_context(
                    train.Checkpoints(
                        folder / "checkpoints",
                        best=wanted.best,
                        log=lambda line: self.say(f"{title}: {line}"),
                    )
                )
                for folder in folders
            ]
            options: dict[str, Any] = {
                "title": title,
                "save_seconds": wanted.seconds,
                "save_best": best,
                "should_stop": self.should_stop,
            }
            if len(seeds) == 1:
                states = [train.fit(trainers[0], seeds[0], checkpoints[0], logs[0], **options)]
            else:
                states = train.fit_seeds(trainers, seeds, checkpoints, logs, **options)
            if best:
                each = zip(checkpoints, trainers, strict=True)
                states = [saved.restore_best(t.abstract_state()) for saved, t in each]
        return states

    def _evaluate(
        self,
        phase: str,
        seed: int,
        places: Sequence[pathlib.Path],
        trained: Trained,
        handed: dict[str, np.ndarray],
    ) -> dict[str, Any]:
        """Judges a phase, the last of those in `places`, as it is and fine-tuned."""
        trained()
        logs = [train.Log(place / "metrics.jsonl").rows() for place in places]
        seconds = sum(rows[-1]["perf/seconds"] for rows in logs)
        sets, folder, tune = self.sets(), places[-1], self.config.fine_tune
        found = _evaluate(self.config, self.name, seed, folder, sets, *trained(), seconds)
        for share in tune.shares if tune.data else ():
            trainer = tuning_trainer(self.run_config, sets, trained(), handed, share, seed)
            part = f"tuned_{num_examples(share, sets)}"
            place = folder / part
            place.mkdir(exist_ok=True)
            title = f"{self.name}, seed {seed}, {phase}, {part}"
            (state,) = self._train([trainer], [seed], [place], title, best=False)
            after = _evaluate(self.config, self.name, seed, place, sets, trainer, state, seconds)
            if not self.config.checkpoint.keep:
                _workdir.remove(place / "checkpoints")
            found["splits"][f"{tune.data}_{part}"] = after["splits"][tune.data]
        return found


def _evaluate(
    config: Any,
    name: str,
    seed: int,
    folder: pathlib.Path,
    sets: _build.Data,
    trainer: train.Trainer,
    state: train.TrainState,
    seconds: float,
) -> dict[str, Any]:
    """Predicts every set and judges what has the same classes."""
    parts = {"val": sets.val, "test": sets.test, **sets.shift}
    predicted = {}
    for split, part in parts.items():
        feed = trainer.val if split == "val" else trainer.loader(part)
        logits = np.asarray(trainer.predict(state, feed))
        _workdir.write_npz(
            folder / "logits" / f"{split}.npz", logits=logits, labels=part.labels, ids=part.ids
        )
        predicted[split] = Predictions(logits, part.labels)
    judged: dict[str, list[Evaluation]] = {}
    for split, part in parts.items():
        if split != "val" and part.label_names == sets.train.label_names:
            judged[split] = evaluate(
                predicted[split],
                predicted["val"],
                config.calibrate,
                seed=seed,
                num_samples=config.num_bootstrap,
            )
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for split, results in judged.items() if train.is_primary() else ():
        panels = [(r.name, r.confidence, r.correct) for r in results]
        report.plot_reliability(panels).savefig(plots / f"reliability_{split}.png", dpi=110)
        report.plot_risk_coverage(panels).savefig(plots / f"risk_coverage_{split}.png", dpi=110)
    sizes = [leaf.size for leaf in jax.tree.leaves(state.params)]
    if sets.texts:
        errors = {
            split: confident_errors(
                predicted[split], parts[split], sets.texts[split], num_kept(split)
            )
            for split in judged
        }
        _workdir.write_json(folder / "errors.json", errors)
    validation = trainer.validation_metrics(predicted["val"].logits, predicted["val"].labels)
    record = {
        "method": name,
        "seed": seed,
        "label_names": sets.train.label_names,
        "num_parameters": sum(sizes),
        "train_seconds": round(seconds, 1),
        "validation": {key: float(value) for key, value in validation.items()},
        "splits": {split: [r.to_json() for r in results] for split, results in judged.items()},
        "out_of_distribution": {
            split: detect(predicted["test"], predicted[split], judged["test"])
            for split in sets.shift
        },
    }
    robust = _robustness.evaluate(config, sets.test, judged["test"], trainer, state, seed)
    return record | ({"robustness": robust} if robust else {})
