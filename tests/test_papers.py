"""docs/papers.md: every command can begin, and every table and figure has a row."""

import dataclasses
import pathlib
import re
import shlex
import sys
from unittest import mock

import numpy as np
import pytest
from absl import flags
from config_cases import fake, without_weights
from config_cases import fake_data as fake_data
from ml_collections import config_flags

from calib_jax import data, experiment
from calib_jax.experiment._recipe import phases
from calib_jax.llm import __main__ as llm

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "papers.md").read_text()
# One command may be written for several configs: "`…cifar10.py:resnet50 …`; likewise `:resnet110`".
COMMANDS = sorted(set(re.findall(r"`python -m calib_jax\.main (--config [^`]+)`", TEXT)))
ASKED = sorted(set(re.findall(r"`python -m calib_jax\.llm ([^`]+)`", TEXT)))
SCRIPTS = sorted(set(re.findall(r"`python -c \"([^`]+)\"`", TEXT)))
COMPARISONS = sorted(set(re.findall(r"`python -m calib_jax\.main (--compare [^`]+)`", TEXT)))


def _parse(command: str) -> flags.FlagValues:
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", flag_values=values)
    for name in ("workdir", "compare", "by"):
        flags.DEFINE_string(name, "", "", flag_values=values)
    flags.DEFINE_multi_string("variant", [], "", flag_values=values)
    arguments = ["main", *shlex.split(command)]
    with mock.patch.object(sys, "argv", arguments):  # where config_flags looks for overrides
        assert values(arguments)[1:] == []
    if values.config is not None:
        experiment.add_variants(values.config, values.variant)
    return values


@pytest.mark.parametrize("command", COMMANDS)
def test_dry_run(command: str, fake_data, monkeypatch, tmp_path) -> None:
    """The config can be built with every row that the command asks for; the last one is traced."""
    monkeypatch.chdir(ROOT)
    values = _parse(command)
    assert values.workdir.startswith("runs/")
    config = without_weights(values.config, tmp_path)
    names = config.method.name.split(",")
    for name in names:
        assert phases(config, name)
    config.method.name = names[-1]
    if (
        "image" in fake(config.data.name, "train").inputs
    ):  # tests/test_configs.py traces the large ones
        config.model.name, config.model.options.stages = "resnet20", (1, 1, 1)
    for variant in config.method.variants.values():
        if "generations" in variant:
            variant["generations"] = 2
    assert re.search(rf"train      {names[-1]}[,:]", experiment.describe(config))


@pytest.mark.parametrize("command", COMPARISONS)
def test_comparisons_are_of_workdirs_that_a_command_makes(command: str) -> None:
    values = _parse(command)
    made = {_parse(c).workdir for c in COMMANDS}
    for workdir in values.compare.split(","):
        # "likewise :4" stands for a command that differs in what follows the colon.
        stem = re.sub(r"[0-9.]+$", "", workdir)
        assert any(w.startswith(stem) for w in made) or "llm" in workdir, workdir
    if values.by:
        config = _parse(COMMANDS[0]).config
        for key in values.by.split("."):
            config = config[key]


def _posts(name: str, split: str, data_dir=None, **options) -> data.Dataset:
    """Two texts of each class, others in each split."""
    few = fake(name, split)
    labels = np.repeat(np.arange(few.num_classes, dtype=np.int32), 2)
    text = np.array([f"post {i} of {split}" for i in range(len(labels))], object)
    ids = np.arange(len(labels), dtype=np.int32)
    return dataclasses.replace(few, inputs={"text": text}, labels=labels, ids=ids)


@pytest.mark.parametrize("shots", ["", "--shots 2"])
@pytest.mark.parametrize("command", ASKED)
def test_dry_run_of_language_models(command: str, shots: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(data, "load", _posts)
    assert llm.main([*shlex.split(f"{command} {shots}"), "--dry_run"]) == 0
    shown = capsys.readouterr().out
    assert "12 requests" in shown
    assert shown.count("of train") == (12 if shots else 0)


@pytest.mark.parametrize("code", SCRIPTS)
def test_scripts_run(code: str, fake_data, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out
    assert "Counter({" in printed or (tmp_path / "losses.png").stat().st_size > 10_000


def test_commands_of_every_kind_are_found() -> None:
    kinds = (COMMANDS, COMPARISONS, ASKED, SCRIPTS)
    assert sum(map(len, kinds)) == len(set(re.findall(r"`(python -[mc] [^`]+)`", TEXT))) - 1
    assert all(kinds)  # the one left out is that of the measured hours


# The tables and figures of each paper, in its numbering.
PAPERS = {
    "AdaFocal": ("Table 1 and 2", *(f"Fig. {n}" for n in range(1, 7)), *"BCEFGHKNP"),
    "Mixup guided": ("Tables 1 and 2", "Table 3"),
    "AutoLabel": (
        "Fig. 2 and 3", "fig. 5", "Fig. 6", "fig. 7", "Table II", "Table III", "Table IV",
        "tables V and VI", "Figures 1 and 4", "table I",
    ),
    "Sim-MixUp": (
        "Tables 1 to 4", "11 and 12", "fig. 1", "table 10", "Tables 5 and 6", "table 7",
        "Tables 8 and 9", "Tables 13 to 18",
    ),
}  # fmt: skip


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_has_a_row(paper: str) -> None:
    section = re.split(rf"^## {paper}", TEXT, flags=re.M)[1].split("\n## ")[0]
    for item in PAPERS[paper]:
        wanted = rf"[Aa]ppendix {item}\b" if len(item) == 1 else re.escape(item)
        assert re.search(wanted, section), item


def test_no_estimate_is_left_open() -> None:
    assert not re.search(r"\{\w+\}", TEXT)
