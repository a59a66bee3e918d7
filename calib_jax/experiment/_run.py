"""An experiment: every method and seed of a config, from data to judged predictions."""

import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from calib_jax import report, train
from calib_jax.experiment import _build, _config, _robustness, _workdir
from calib_jax.experiment._detection import detect
from calib_jax.experiment._judge import Judgement, check_calibrators, judge
from calib_jax.experiment._phases import Phase, phases
from calib_jax.experiment._predictions import Predictions
from calib_jax.experiment._signals import StopRequest


def run(config: Any, workdir: pathlib.Path, say: Callable[[str], None] = print) -> str:
    """Runs what is not finished yet and reports on all of it.

    Args:
      config: from `default_config`.
      workdir: where everything goes; the same config in the same folder goes on.
      say: called with lines for the user.

    Returns:
      The comparison, to be printed.
    """
    _config.check(config)
    names, seeds = _config.method_names(config), _config.seeds(config)
    check_calibrators(config.calibrate)  # now, not after hours of training
    with _workdir.locked(workdir), StopRequest() as stop:
        _workdir.claim(workdir, config)
        sets = functools.cache(lambda: _load(config, say))
        for name in names:
            runner = _Runner(config, name, sets, say, stop.requested)
            for seed in seeds:
                folder = workdir / name / f"seed_{seed}"
                if (folder / "results.json").exists():
                    say(f"{name}, seed {seed}: finished before")
                else:
                    runner.run(seed, folder)
        return report.write_report(workdir)


def _load(config: Any, say: Callable[[str], None]) -> _build.Data:
    sets = _build.load_data(config)
    for part in (sets.train, sets.val, sets.test, *sets.shift.values()):
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
    ) -> None:
        self.config, self.name, self.sets = config, name, sets
        self.say, self.should_stop = say, should_stop
        self.phases = phases(config, name)
        self.first_trainer = functools.cache(lambda: self._trainer(self.phases[0], {}))

    def run(self, seed: int, folder: pathlib.Path) -> None:
        """All phases of one seed that are not finished, and the evaluation of the last."""
        folder.mkdir(parents=True, exist_ok=True)
        described = json.loads(self.config.to_json()) | {"seeds": [seed]}
        described["method"]["name"] = self.name
        _workdir.write_json(folder / "config.json", _workdir.describe(described))
        handed: dict[str, np.ndarray] = {}
        folders = [_workdir.phase_folder(folder, phase.name) for phase in self.phases[:-1]]
        for phase, before in zip(self.phases, folders, strict=False):
            path = before / "handed_over.npz"
            if not path.exists():
                before.mkdir(parents=True, exist_ok=True)
                trainer, state = self._fit(phase, seed, before, handed)
                _workdir.write_npz(path, **phase.hand_over(trainer, state))
            with np.load(path, allow_pickle=False) as arrays:
                handed |= dict(arrays)
        trainer, state = self._fit(self.phases[-1], seed, folder, handed)
        logs = [train.Log(path / "metrics.jsonl").rows() for path in (*folders, folder)]
        seconds = sum(rows[-1]["perf/seconds"] for rows in logs)
        _evaluate(self.config, self.name, seed, folder, self.sets(), trainer, state, seconds)

    def _trainer(self, phase: Phase, handed: dict[str, np.ndarray]) -> train.Trainer:
        return _build.build_trainer(self.config, self.sets(), phase.method, handed)

    def _fit(
        self, phase: Phase, seed: int, folder: pathlib.Path, handed: dict[str, np.ndarray]
    ) -> tuple[train.Trainer, train.TrainState]:
        # What the first phase compiles does not depend on the seed; what another was handed does.
        first = phase is self.phases[0]
        trainer = self.first_trainer() if first else self._trainer(phase, handed)
        title = f"{self.name}, seed {seed}"
        if len(self.phases) > 1:
            title += f", {phase.name}"
        wanted = self.config.checkpoint
        best = wanted.select == "best"
        with train.Checkpoints(
            folder / "checkpoints", best=wanted.best, say=lambda line: self.say(f"{title}: {line}")
        ) as checkpoints:
            state = train.fit(
                trainer,
                seed,
                checkpoints,
                train.Log(
                    folder / "metrics.jsonl",
                    folder / "tensorboard" if self.config.tensorboard else None,
                ),
                title=title,
                save_seconds=wanted.seconds,
                save_best=best,
                should_stop=self.should_stop,
            )
            if best:
                state = checkpoints.restore_best(trainer.abstract_state())
        return trainer, state


def _evaluate(
    config: Any,
    name: str,
    seed: int,
    folder: pathlib.Path,
    sets: _build.Data,
    trainer: train.Trainer,
    state: train.TrainState,
    seconds: float,
) -> None:
    """Predicts every set, judges what has the same classes, and writes results last of all."""
    parts = {"val": sets.val, "test": sets.test, **sets.shift}
    predicted = {}
    for split, part in parts.items():
        feed = trainer.val if split == "val" else trainer.feed(part)
        logits = np.asarray(trainer.predict(state, feed))
        _workdir.write_npz(
            folder / "logits" / f"{split}.npz", logits=logits, labels=part.labels, ids=part.ids
        )
        predicted[split] = Predictions(logits, part.labels)
    judged: dict[str, list[Judgement]] = {}
    for split, part in parts.items():
        if split != "val" and part.label_names == sets.train.label_names:
            judged[split] = judge(
                predicted[split],
                predicted["val"],
                config.calibrate,
                seed=seed,
                num_samples=config.num_bootstrap,
            )
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for split, results in judged.items():
        panels = [(r.name, r.confidence, r.correct) for r in results]
        report.plot_reliability(panels).savefig(plots / f"reliability_{split}.png", dpi=110)
        report.plot_risk_coverage(panels).savefig(plots / f"risk_coverage_{split}.png", dpi=110)
    sizes = [leaf.size for leaf in jax.tree.leaves(state.params)]
    record = {
        "method": name,
        "seed": seed,
        "num_parameters": sum(sizes),
        "train_seconds": round(seconds, 1),
        "splits": {split: [r.to_json() for r in results] for split, results in judged.items()},
        "out_of_distribution": {
            split: detect(predicted["test"], predicted[split], judged["test"])
            for split in sets.shift
        },
    }
    robust = _robustness.evaluate(
        config, sets.test, predicted["test"], judged["test"], trainer, state, seed
    )
    record |= {"robustness": robust} if robust else {}
    _workdir.write_json(folder / "results.json", record)
