"""Variants: rows of one comparison with options and training of their own."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest
from experiment import small
from experiment.conftest import Command, NoFigure, assert_same_run

from calib_jax import experiment, report
from calib_jax.experiment import _build, _evaluate
from calib_jax.experiment._build import build_recipe
from calib_jax.experiment._variants import run_config


@pytest.fixture
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that only train: no judgements, plots and reports."""
    monkeypatch.setattr(_evaluate, "evaluate", lambda *_, **__: [])
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())


def test_settings_are_merged_into_a_copy_of_the_config() -> None:
    config = small.config()
    config.method.variants = {
        "a": {
            "of": "mixup",
            "objective": "adafocal",
            "method": {"adafocal": {"gamma_max": float("inf")}},
            "optimizer": {"learning_rate": 1, "milestones": [3, 4]},
            "train": {"batch_size": 6, "sum_loss": True},
        },
        "brier": {"train": {"epochs": 550}},
    }
    method, merged = run_config(config, "a")
    assert method == "mixup"
    assert merged.method.mixup.objective == "adafocal"
    assert merged.method.adafocal.gamma_max == np.inf
    assert merged.optimizer.learning_rate == 1.0
    assert merged.optimizer.milestones == (3, 4)
    assert (merged.train.batch_size, merged.train.epochs, merged.train.sum_loss) == (6, 2, True)
    assert build_recipe(config, "a").phases[-1].method.loss
    assert run_config(config, "brier")[0] == "brier"
    assert run_config(config, "brier")[1].train.epochs == 550
    # The experiment's own are what they were, and so is a row without settings.
    assert run_config(config, "focal") == ("focal", config)
    assert config.method.adafocal.gamma_max == 20.0
    assert (config.train.batch_size, config.train.epochs) == (24, 2)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"trian": {"epochs": 3}}, r"a\.trian: expected .*method, optimizer, train.*mean 'train'"),
        ({"train": {"epoch": 3}}, r"a\.train\.epoch: expected .*did you mean 'epochs'"),
        ({"train": {"epochs": 0}}, r"a\.train\.epochs=0: expected at least 1"),
        ({"train": {"epochs": "x"}}, r"a\.train\.epochs='x': expected int, such as 2"),
        ({"train": 3}, r"a\.train=3: expected settings of accumulate, "),
        ({"optimizer": {"warmup": 1.5}}, r"a\.optimizer\.warmup=1.5: expected at least 0 and"),
        ({"method": {"adafocl": {}}}, r"a\.method\.adafocl: .*did you mean 'adafocal'"),
        ({"method": {"focal": {"gama": 1.0}}}, r"a\.method\.focal\.gama: .*mean 'gamma'"),
        ({"method": {"mixup": {"alpha": 1.0}}}, r"a\.method\.mixup: expected one of cross_entr"),
        ({"model": {"name": "x"}}, r"a\.model: expected one of"),
    ],
)
def test_mistakes(variant: dict, message: str, tmp_path: pathlib.Path) -> None:
    config = small.config()
    config.method.variants = {"a": {"of": "focal"} | variant}
    with pytest.raises(ValueError, match=message) as raised:
        experiment.run(config, tmp_path)
    assert "\n" not in str(raised.value)


def test_a_variant_is_a_dict() -> None:
    config = small.config()
    config.method.variants = {"a": "focal"}
    with pytest.raises(ValueError, match=r"variants\.a='focal': expected settings such as"):
        run_config(config, "a")


def test_variants_of_the_command_line() -> None:
    config = small.config(method__name="cross_entropy,ada_10")
    experiment.add_variants(
        config,
        [
            "ada_10=adafocal,num_bins=10,gamma_max=inf",
            "smooth=label_smoothing,kind=uniform,train.epochs=7, optimizer.milestones=(3,5)",
            "mixed=mixup,objective=focal,method.focal.gamma=5,train.sum_loss=True",
        ],
    )
    assert config.method.name == "cross_entropy,ada_10,smooth,mixed"  # those not named yet join
    assert config.method.variants.to_dict() == {
        "ada_10": {"of": "adafocal", "num_bins": 10, "gamma_max": np.inf},
        "smooth": {
            "of": "label_smoothing",
            "kind": "uniform",
            "train": {"epochs": 7},
            "optimizer": {"milestones": (3, 5)},
        },
        "mixed": {
            "of": "mixup",
            "objective": "focal",
            "method": {"focal": {"gamma": 5}},
            "train": {"sum_loss": True},
        },
    }
    assert run_config(config, "mixed")[1].method.focal.gamma == 5.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ada_10", "--variant ada_10: expected NAME=METHOD,KEY=VALUE"),
        ("ada_10=", "--variant ada_10=: expected NAME=METHOD,KEY=VALUE"),
        ("ada_10=num_bins=10", "expected NAME=METHOD,KEY=VALUE"),
        ("ada_10=adafocal,num_bins", "expected NAME=METHOD,KEY=VALUE"),
        ("ada_10=adafocl", "variants.ada_10.of='adafocl': .*did you mean 'adafocal'"),
        ("ada_10=adafocal,num_bin=10", "variants.ada_10.num_bin: .*did you mean 'num_bins'"),
        ("ada_10=adafocal,num_bins=ten", "ada_10.num_bins='ten': expected int, such as 15"),
        ("focal=adafocal", "variants.focal: expected a name that no method has"),
        ("old=adafocal", "the config has a variant 'old'; change it by --config.method.variants"),
    ],
)
def test_mistakes_on_the_command_line(text: str, message: str) -> None:
    config = small.config()
    config.method.variants = {"old": {"of": "focal"}}
    with pytest.raises(ValueError, match=message):
        experiment.add_variants(config, [text])


def test_help_and_dry_run_of_the_command(command: Command) -> None:
    assert "--variant" in command("--help").out
    done = command(
        "--config", "configs/smoke/digits.py", "--dry_run",
        "--variant", "long=adafocal,num_bins=10,train.epochs=7,train.batch_size=10",
    )  # fmt: skip
    assert done.code == 0, done.err
    # A hundred examples: five batches of 24 in each of three epochs, or ten of 10 in each of seven.
    assert "train      cross_entropy: 15 steps of 24;" in done.out
    assert "train      long: 70 steps of 10;" in done.out
    assert "variant    long: adafocal, num_bins=10, train.batch_size=10, train.epochs=7" in done.out
    done = command(
        "--config", "configs/smoke/digits.py", "--dry_run", "--variant", "a=focal,gama=2"
    )
    assert (done.code, done.out) == (2, "")
    assert done.err.strip().endswith("a.gama: expected one of gamma, method, optimizer, train; "
                                     "did you mean 'gamma'?")  # fmt: skip


def _logits(workdir: pathlib.Path, name: str, seed: int = 0) -> np.ndarray:
    return small.arrays(workdir / name / f"seed_{seed}" / "logits" / "test.npz")["logits"]


@pytest.mark.usefixtures("unjudged")
def test_a_row_with_settings_is_the_run_of_a_config_with_them(tmp_path: pathlib.Path) -> None:
    settings = {
        "train": {"epochs": 3, "batch_size": 10, "sum_loss": False},
        "optimizer": {"name": "adam", "learning_rate": 0.01},
    }
    config = small.config(method__name="brier,brier_2", train__sum_loss=True)
    config.method.variants = {"brier": settings, "brier_2": {"of": "brier"}}
    experiment.run(config, tmp_path / "rows")

    alone = {f"{a}__{b}": value for a, part in settings.items() for b, value in part.items()}
    experiment.run(small.config(method__name="brier", **alone), tmp_path / "alone")
    np.testing.assert_array_equal(
        _logits(tmp_path / "rows", "brier"), _logits(tmp_path / "alone", "brier")
    )
    experiment.run(small.config(method__name="brier", train__sum_loss=True), tmp_path / "plain")
    np.testing.assert_array_equal(
        _logits(tmp_path / "rows", "brier_2"), _logits(tmp_path / "plain", "brier")
    )
    rows = {name: small.rows(tmp_path / "rows" / name / "seed_0") for name in ("brier", "brier_2")}
    assert [row["step"] for row in rows["brier"]] == [6, 12, 18]
    assert [row["step"] for row in rows["brier_2"]] == [3, 6]
    written = json.loads((tmp_path / "rows" / "brier" / "seed_0" / "config.json").read_text())
    assert written["config"]["train"]["epochs"] == 3
    assert written["config"]["optimizer"]["name"] == "adam"


@pytest.mark.usefixtures("unjudged")
def test_seeds_in_parallel_have_the_settings_too(tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="focal,long", seeds=(0, 1))
    config.method.variants = {"long": {"of": "focal", "train": {"epochs": 3, "batch_size": 10}}}
    experiment.run(config, tmp_path / "apart")
    config.seeds_in_parallel = True
    experiment.run(config, tmp_path / "parallel")
    for seed in (0, 1):
        rows = small.rows(tmp_path / "parallel" / "long" / f"seed_{seed}")
        assert [row["step"] for row in rows] == [6, 12, 18]
        np.testing.assert_allclose(
            _logits(tmp_path / "parallel", "long", seed),
            _logits(tmp_path / "apart", "long", seed),
            atol=1e-4,
        )


def test_teachers_and_recordings_keep_their_own_settings() -> None:
    config = small.config(method__name="student,mixed", data__options__num_train=60)
    config.method.variants = {
        "long": {"of": "focal", "train": {"epochs": 5}},
        "student": {
            "of": "csd", "teacher": "long", "generations": 2, "train": {"batch_size": 10},
        },
        "mixed": {"of": "aum_mixup", "train": {"epochs": 4}},
    }  # fmt: skip
    shown = experiment.describe(config)
    assert re.search(r"train +long: 15 steps of 24;", shown)
    assert re.search(r"train +student, generation_2: 12 steps of 10;", shown)
    assert re.search(r"train +all, records: 6 steps of 24;", shown)  # as the config says
    assert re.search(r"variant +long: focal, train.epochs=5", shown)


@pytest.mark.usefixtures("unjudged")
def test_variants_may_join_a_workdir_but_not_change_in_it(tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="a")
    config.method.variants = {"a": {"of": "focal", "gamma": 2.0}}
    experiment.run(config, tmp_path)

    other = small.config(method__name="b")
    other.method.variants = {"b": {"of": "focal", "train": {"epochs": 1}}}
    experiment.run(other, tmp_path)
    kept = json.loads((tmp_path / "config.json").read_text())["config"]["method"]["variants"]
    assert sorted(kept) == ["a", "b"]
    said: list[str] = []
    experiment.run(config, tmp_path, log=said.append)
    assert said[0] == "a, seed 0: finished before"

    other.method.variants.b.train.epochs = 2
    line = "config.method.variants.b.train.epochs: 1 there, 2 now"
    with pytest.raises(ValueError, match=line):
        experiment.run(other, tmp_path)
    # A method that may have been run without settings cannot have some later.
    third = small.config(method__name="focal")
    third.method.variants = {"focal": {"train": {"epochs": 1}}}
    with pytest.raises(ValueError, match=r"config.method.variants.focal: '\(not set\)' there"):
        experiment.run(third, tmp_path)


def test_the_report_says_what_the_variants_are(tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="cross_entropy,soft", train__log_test=True)
    config.method.variants = {"soft": {"of": "focal", "gamma": 2.0, "train": {"epochs": 1}}}
    experiment.run(config, tmp_path, log=lambda _: None)
    assert "- soft: focal, gamma=2.0, train.epochs=1\n" in (tmp_path / "summary.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Variants</h2>" in page
    assert "soft: focal, gamma=2.0, train.epochs=1" in page


@pytest.mark.usefixtures("unjudged")
def test_test_metrics_are_logged_and_select_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = _build.load_data

    def with_wrong_test_labels(*args):
        sets = load(*args)
        wrong = (sets.test.labels + 1) % 10  # the better a network, the worse for its test metrics
        return sets._replace(test=dataclasses.replace(sets.test, labels=wrong))

    monkeypatch.setattr(_build, "load_data", with_wrong_test_labels)
    options = {
        "method__name": "adafocal", "train__epochs": 4, "method__watch_bins": True,
        "checkpoint__select": "best", "checkpoint__seconds": 0.0,
    }  # fmt: skip
    for log_test in (False, True):
        config = small.config(**options, train__log_test=log_test)
        experiment.run(config, tmp_path / str(log_test))
    plain, logged = (small.rows(tmp_path / f / "adafocal" / "seed_0") for f in ("False", "True"))
    without = [{k: v for k, v in row.items() if not k.startswith("test/")} for row in logged]
    assert without == plain
    assert {k for k in logged[0] if k.startswith("test/")} == {
        "test/nll", "test/refinement", "test/accuracy", "test/f1", "test/ece", "test/ece_mass",
    }  # fmt: skip
    best = {k: int(np.argmin([row[k] for row in logged])) for k in ("val/nll", "test/nll")}
    assert best == {"val/nll": 3, "test/nll": 0}
    np.testing.assert_array_equal(
        _logits(tmp_path / "True", "adafocal"), _logits(tmp_path / "False", "adafocal")
    )
    # What was selected is the network of the row with validation's best; the log says the same of it.
    found = small.arrays(tmp_path / "True" / "adafocal" / "seed_0" / "logits" / "test.npz")
    accuracy = np.mean(found["logits"].argmax(1) == found["labels"])
    assert logged[best["val/nll"]]["test/accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_a_variant_that_was_killed_goes_on(command: Command, tmp_path: pathlib.Path) -> None:
    """Its own epochs and batches, bins that were half collected and test metrics included."""
    arguments = (
        "--config", "configs/smoke/digits.py", "--config.method.name=long",
        "--config.method.watch_bins=True", "--config.train.log_test=True",
        "--variant", "long=adafocal,num_bins=4,train.epochs=2,train.batch_size=10",
    )  # fmt: skip
    done = command(*arguments, "--workdir", tmp_path / "whole", light=True)
    assert done.code == 0, done.err
    assert "long, seed 0: step 20/20" in done.err
    parts = ("--workdir", tmp_path / "parts", "--config.checkpoint.seconds=0")
    for moment, number in [("training", 4), ("after_epoch", 1)]:
        done = command(*arguments, *parts, interrupt=[(moment, number, "SIGKILL")], light=True)
        assert done.code == -9, (moment, done)
    done = command(*arguments, *parts, light=True)
    assert done.code == 0, done.err
    assert "resumed at step" in done.err
    assert_same_run(tmp_path / "parts" / "long" / "seed_0", tmp_path / "whole" / "long" / "seed_0")
    (_, last) = small.rows(tmp_path / "parts" / "long" / "seed_0")
    assert len(last["method/train_own_confidence"]) == 15
    assert len(last["method/gamma"]) == 4
    assert "test/ece_mass" in last
