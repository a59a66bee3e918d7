"""What the command says: one line for a mistake, no traceback; and what its flags promise."""

import pathlib
import re

import pytest
from experiment.conftest import Command

from calib_jax import data, experiment, methods, models, posthoc
from calib_jax.experiment import _keys

SMOKE = ("--config", "configs/smoke/digits.py")
METHODS, MODELS, SETS = (", ".join(room.NAMES) for room in (methods, models, data))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workdir", "x"], "which config? --config FILE (see --list)"),
        (["quickstart"], "not understood: quickstart (write --FLAG=VALUE, lists a,b,c)"),
        (["--compare", "a", "b", "c"], "not understood: b c (write --FLAG=VALUE, lists a,b,c)"),
        (SMOKE, "where to? --workdir FOLDER"),
        (
            ["--compare=nowhere"],
            "nowhere: no finished run, expected <method>/seed_<n>/results.json; train first",
        ),
        (["--wrkdir=x"], "Unknown command line flag 'wrkdir'. Did you mean: workdir ?"),
    ],
)
def test_flags(command: Command, arguments: list[str], message: str) -> None:
    done = command(*arguments)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "method.name=adafocl",
            f"config.method.name='adafocl': expected one of {METHODS}; did you mean 'adafocal'?",
        ),
        ("method.name=", "config.method.name='': expected different methods"),
        ("method.name=brier,brier", "config.method.name='brier,brier': expected different methods"),
        ("seeds=0,0", "config.seeds=(0, 0): expected different whole numbers from 0"),
        ("seeds=-1", "config.seeds=(-1,): expected different whole numbers from 0"),
        ("seeds=a", "config.seeds=('a',): expected different whole numbers from 0"),
        ("seeds=()", "config.seeds=(): expected different whole numbers from 0"),
        ("seeds=0.5", "config.seeds=(0.5,): expected different whole numbers from 0"),
        (
            "model.dtype=float16",
            "config.model.dtype='float16': expected one of float32, bfloat16; did you mean 'bfloat16'?",
        ),
        (
            "model.name=resnet21",
            f"model='resnet21': expected one of {MODELS}; did you mean 'resnet20'?",
        ),
        (
            "data.name=cifar",
            f"data set 'cifar': expected one of {SETS}; did you mean 'cifar10'?",
        ),
        (
            "data.options.num_train=0",
            "num_train=0: expected 1 to 500, the rest is for validation and test",
        ),
        (
            "optimizer.name=sgdd",
            "config.optimizer.name='sgdd': expected one of sgd, adam, adamw; did you mean 'sgd'?",
        ),
        (
            "optimizer.schedule=cos",
            "config.optimizer.schedule='cos': expected one of constant, milestones, linear, cosine; "
            "did you mean 'cosine'?",
        ),
        ("data.augment=crop", "config.data.augment='crop': expected one of none, pad_crop_flip"),
        (
            "calibrate=temprature",
            f"calibrate='temprature': expected some of {', '.join(posthoc.CALIBRATORS)}",
        ),
        ("calibrate=platt", "calibrate='platt': takes two classes, here are 10"),
        (
            "train.batch_size=0",
            "batch_size=0: expected a multiple of 1 (1 devices x 1 accumulated parts)",
        ),
        (
            "train.epochs=many",
            "flag --config.train.epochs=many: invalid literal for int() with base 10: 'many'",
        ),
        (
            "train.epochs=1.5",
            "flag --config.train.epochs=1.5: invalid literal for int() with base 10: '1.5'",
        ),
        (
            "optimizer.learning_rate=fast",
            "flag --config.optimizer.learning_rate=fast: could not convert string to float: 'fast'",
        ),
    ],
)
def test_values(command: Command, tmp_path: pathlib.Path, override: str, message: str) -> None:
    done = command(*SMOKE, "--workdir", tmp_path, f"--config.{override}", light=True)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")
    assert not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.parametrize("index", [-1, 6])
def test_sweep_index(command: Command, tmp_path: pathlib.Path, index: int) -> None:
    several = ("--config.method.name=cross_entropy,adafocal", "--config.seeds=0,1,2")
    done = command(*SMOKE, *several, "--workdir", tmp_path / "x", f"--sweep_index={index}")
    expected = "expected 0 to 5, as there are 6 runs (2 methods x 3 seeds)"
    assert (done.code, done.err) == (2, f"error: sweep_index={index}: {expected}\n")
    assert not (tmp_path / "x").exists()


def test_two_that_do_not_go_together(command: Command, tmp_path: pathlib.Path) -> None:
    adam = ("--config.optimizer.name=adam", "--config.optimizer.weight_decay=0.1")
    done = command(*SMOKE, "--workdir", tmp_path, *adam)
    message = "optimizer='adam' has no weight decay: use 'adamw' or weight_decay=0"
    assert (done.code, done.err) == (2, f"error: {message}\n")


def test_a_data_set_that_is_not_there(command: Command, tmp_path: pathlib.Path) -> None:
    shifted = (*SMOKE, "--workdir", tmp_path / "x", "--config.data.shift=svhn")
    done = command(*shifted)
    assert done.code == 2
    assert re.fullmatch(
        r"error: svhn is not here\. No data folder was named: .*CALIB_JAX_DATA\. Get .*\n", done.err
    )
    done = command(*shifted, f"--config.data.dir={tmp_path / 'sets'}")
    assert done.code == 2
    assert re.fullmatch(rf"error: svhn is not here\. .*{tmp_path / 'sets'}.* Get .*\n", done.err), (
        done.err
    )


# What is expected of these is the key, the value and a way out, not a certain wording.


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epoch=3", ['Did you mean "epochs" instead of "epoch"?']),
        ("trian.epochs=3", ['Did you mean "train" instead of "trian"?']),
        ("checkpoint.best=val/nl", ["checkpoint.best", "val/nl", "val/nll"]),
        ("checkpoint.select=bst", ["checkpoint.select", "bst", "best"]),
        ("train.epochs=0", ["epochs=0"]),
        ("train.epochs=-1", ["epochs=-1"]),
        ("train.accumulate=0", ["accumulate=0"]),
        ("train.accumulate=-1", ["accumulate=-1"]),
        ("optimizer.warmup=2", ["warmup=2"]),
    ],
)
def test_values_that_are_found_out_late_or_badly_named(
    command: Command, tmp_path: pathlib.Path, override: str, words: list[str]
) -> None:
    done = command(*SMOKE, "--workdir", tmp_path, f"--config.{override}", light=True)
    assert done.code == 2, done.err
    assert re.fullmatch(r"error: .*\n", done.err), done.err
    assert "\\n" not in done.err
    assert all(word in done.err for word in words)


@pytest.mark.parametrize(
    "override",
    [f"train.{k}=-1" for k in ("steps_per_call", "evaluate_every")],
)
def test_negative_numbers_of_steps(command: Command, tmp_path: pathlib.Path, override: str) -> None:
    done = command(*SMOKE, "--workdir", tmp_path, f"--config.{override}", light=True)
    assert done.code == 2
    assert re.fullmatch(rf"error: .*{override}.*\n", done.err), done.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("config.data.options.num_trian = 3", ["num_trian", "did you mean 'num_train'?"]),
        (
            "config.train.epochs = 'many'",
            ["epochs", "int"],
        ),
        ("config.train.epoch = 3", ["epoch", "Did you mean", "epochs"]),
        ("config.checkpoint.second = 3", ["second", "Did you mean", "seconds"]),
        ("config.model.options.width = 3", ["width", "widths"]),
    ],
)
def test_mistakes_in_a_config_file(
    command: Command, tmp_path: pathlib.Path, line: str, words: list[str]
) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        "from calib_jax import experiment\n\n\ndef get_config():\n"
        f"    config = experiment.default_config()\n    {line}\n    return config\n"
    )
    done = command("--config", path, "--workdir", tmp_path / "x", light=True)
    assert done.code == 2, done.err
    assert re.fullmatch(r"error: .*\n", done.err), done.err
    assert all(word in done.err for word in words), done.err


@pytest.mark.parametrize("content", ["broken", "import no_such_module", "def f(:"])
def test_a_config_file_that_is_no_program(
    command: Command, tmp_path: pathlib.Path, content: str
) -> None:
    path = tmp_path / "config.py"
    path.write_text(content)
    done = command("--config", path, "--workdir", tmp_path / "x", light=True)
    assert done.code == 2, done.err
    assert re.fullmatch(rf"error: {re.escape(str(path))}, line 1: .*\n", done.err), done.err


@pytest.mark.parametrize(
    ("config", "workdir", "words"),
    [
        ("configs/none.py", "x", ["configs/none.py"]),
        ("configs/smoke/digits.py", "file", ["file"]),
    ],
)
def test_files_that_are_not_there_or_in_the_way(
    command: Command, tmp_path: pathlib.Path, config: str, workdir: str, words: list[str]
) -> None:
    (tmp_path / "file").touch()
    done = command("--config", config, "--workdir", tmp_path / workdir)
    assert done.code == 2
    assert re.fullmatch(r"error: .*\n", done.err), done.err
    assert all(word in done.err for word in words)


def test_a_message_may_begin_with_a_quote() -> None:
    message = "'logits': expected numbers"
    assert experiment.in_short(ValueError(message)) == message


def test_help(command: Command) -> None:
    for arguments in ([], ["--help"], ["-h"], [*SMOKE, "--help"]):
        done = command(*arguments)
        assert (done.code, done.err) == (0, "")
        assert "python -m calib_jax.main --config configs/quickstart.py --workdir runs/" in done.out
        for flag in ("config", "workdir", "dry_run", "print_config", "list", "compare"):
            assert re.search(rf"^  --{flag} +[A-Z].*\.$", done.out, re.M), flag


def test_list(command: Command) -> None:
    done = command("--list")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:3] == [f"methods   {METHODS}", f"models    {MODELS}", f"data      {SETS}"]
    assert "config    smoke/digits: A perceptron on a hundred digits: seconds." in lines
    assert any(line.startswith("config    quickstart: ") for line in lines)


def test_print_config(command: Command) -> None:
    done = command(*SMOKE, "--print_config", "--config.train.epochs=77", "--config.seeds=4,5")
    assert (done.code, done.err) == (0, "")
    assert re.search(
        r"^config\.train\.epochs = 77 +# passes over the training set$", done.out, re.M
    )
    assert re.search(r"^config\.seeds = \(4, 5\) +# .*mean ± std", done.out, re.M)
    assert re.search(r"^config\.method\.mixup\.alpha = 0\.2 +# .*Beta", done.out, re.M)
    assert re.search(
        r"^config\.model\.options = \{'widths': \(32,\)\} +# attributes", done.out, re.M
    )
    for key in _keys.KEYS:
        assert re.search(rf"^config\.{re.escape(key)} = .* # .", done.out, re.M), key


def test_dry_run(command: Command, tmp_path: pathlib.Path) -> None:
    several = ("--config.method.name=cross_entropy,adafocal", "--config.seeds=0,1,2")
    done = command(*SMOKE, "--dry_run", *several, "--workdir", tmp_path / "x")
    assert (done.code, done.err) == (0, "")
    assert "digits train: 100 examples, image uint8 [8, 8, 1]" in done.out
    assert "digits val: 500 examples" in done.out
    assert "digits test: 797 examples" in done.out
    assert f"mlp: {64 * 32 + 32 + 32 * 10 + 10:,} parameters" in done.out
    assert "3 epochs, batch 24 on 1 devices" in done.out
    assert "2 methods x 3 seeds" in done.out
    order = "the seeds of cross_entropy, then of adafocal"
    assert done.out.endswith(f"runs       6 (--sweep_index 0 to 5): {order}\n")
    for name in ("cross_entropy", "adafocal"):
        assert re.search(rf"^train +{name}: 15 steps of 24; state .* MB", done.out, re.M)
    assert not (tmp_path / "x").exists()
    done = command(*SMOKE, "--dry_run", "--config.method.name=adafocl")
    assert done.code == 2
    assert done.err.startswith("error: config.method.name='adafocl'")
