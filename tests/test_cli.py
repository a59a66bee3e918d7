"""The command `calib-jax`, and configs by name."""

import pathlib
import subprocess
import sys

import pytest

import calib_jax
from calib_jax import cli, experiment

ROOT = pathlib.Path(__file__).parent.parent


def _call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["calib-jax", *arguments])
    return cli.main()


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _call(monkeypatch, *arguments) == 0
    text = capsys.readouterr().out
    for name in ("run", "evaluate", "predict", "llm", "list"):
        assert f"  {name} " in text


def test_an_unknown_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _call(monkeypatch, "evalute") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: calib-jax evalute: expected one of run, evaluate,")
    assert "did you mean 'evaluate'?" in error


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == calib_jax.__version__


def test_the_arguments_reach_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert _call(monkeypatch, "evaluate", str(tmp_path / "none.npz")) == 2
    assert "none.npz: no such file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        _call(monkeypatch, "predict", "--help")
    assert "python -m calib_jax.predict" in capsys.readouterr().out


def test_run_and_list_outside_the_clone(tmp_path: pathlib.Path) -> None:
    """In processes of their own: flags are defined once per process."""
    script = "import sys; from calib_jax import cli; sys.exit(cli.main())"

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    listed = call("list")
    assert listed.returncode == 0, listed.stderr
    assert "quickstart: Cross entropy against AdaFocal" in listed.stdout
    shown = call("run", "--config", "adafocal/cifar10:resnet110", "--print_config")
    assert shown.returncode == 0, shown.stderr
    assert "resnet110" in shown.stdout
    wrong = call("run", "--config=quickstrat", "--dry_run")
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "error: config 'quickstrat': expected a file or a name that --list shows; "
        "did you mean 'quickstart'?\n"
    )


def test_a_reader_that_leaves_is_no_error() -> None:
    """`calib-jax list | head -1`: the pipe is closed before anything is written."""
    script = "import sys; from calib_jax import cli; input(); sys.exit(cli.main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "list"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_file_comes_before_a_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "configs" / "smoke" / "digits.py"
    assert experiment.find_config(f"{path}:x") == f"{path}:x"
    assert experiment.find_config("smoke/digits") == experiment.find_config(
        "configs/smoke/digits.py"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text("")
    assert experiment.find_config("quickstart") == "quickstart"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.py").write_text('"""Mine."""')
    assert dict(experiment.config_files())["mine"] == pathlib.Path("configs/mine.py")
    assert experiment.find_config("mine:3") == "configs/mine.py:3"


def test_nothing_needs_fcntl_to_be_imported() -> None:
    """Windows has no such module."""
    script = "import sys; sys.modules['fcntl'] = None; import calib_jax.main, calib_jax.predict"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
