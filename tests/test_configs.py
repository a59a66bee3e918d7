"""Every config file describes a run that could begin, on data of the right shapes."""

import importlib.util
import pathlib
import re

import numpy as np
import pytest
from config_cases import fake_data as fake_data
from config_cases import without_weights

from calib_jax import experiment, models
from calib_jax.experiment import _recipe, _robustness
from calib_jax.experiment._build import build_recipe
from calib_jax.experiment._variants import run_config

ROOT = pathlib.Path(__file__).parent.parent
FILES = sorted(p for p in (ROOT / "configs").rglob("*.py") if not p.name.startswith("_"))


def _load(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments(module) -> list:
    """What may stand after the colon of a config's path."""
    return list(getattr(module, "NETWORKS", getattr(module, "STUDIES", [None])))


# Beside the first argument of each file: what takes another branch of the config or of the test.
OTHER_BRANCHES = ("autolabel/adversarial:cifar100:0.03", "own/text:pretrained")


def _is_quick(name: str, network: str | None) -> bool:
    """Deep networks take seconds to trace."""
    deep = network in ("resnet110", "wide_resnet_26_10", "densenet121")
    deep |= network == "resnet50" and "cifar" in name
    return not deep and name not in ("emotion/goemotions", "emotion/empathetic_dialogues")


def _cases():
    """By default one argument of each file; all of them are built, without a network, below."""
    for path in FILES:
        name = path.relative_to(ROOT / "configs").with_suffix("").as_posix()
        networks = _arguments(_load(path))
        first = [n for n in networks if _is_quick(name, n)][:1]
        for network in networks:
            case = f"{name}:{network}"
            default = network in first or case in OTHER_BRANCHES
            marks = [] if default else [pytest.mark.slow]
            yield pytest.param(path, network, id=case, marks=marks)


@pytest.mark.parametrize(("path", "network"), list(_cases()))
def test_dry_run(path, network, fake_data, monkeypatch, tmp_path) -> None:
    config = _load(path).get_config(*([network] if network else []))
    without_weights(config, tmp_path)
    names = config.method.name
    if path.parent.name == "emotion" and network == "roberta":
        # Every row can be built; one of them is gone through, with all of its phases.
        for name in (*names.split(","), *config.method.variants):
            _recipe.phases(config, name)
        assert len(names.split(",")) == 12
        config.method.variants.sim_mixup_csd.generations = 2
        config.method.name = "sim_mixup_csd"
    elif path.parent.name == "evidence":
        config.method.name = "randaug_autolabel" if network == "digits" else "sim_mixup_csd"
    elif "aum_mixup" in names:
        config.method.name = "m_mixup,aum_mixup_ls"
    elif "autolabel" in names:
        # A small network: the steps of an attack are traced one by one.
        config.model.name, config.data.num_train = "resnet20", 0
        config.model.options.stages = (1, 1, 1)
        _robustness.check(config.robustness)
        for name in names.split(","):
            assert build_recipe(config, name)
        config.method.name = ",".join(n for n in names.split(",") if "autolabel" in n)
    elif path.stem == "studies":
        for name in names.split(","):
            assert build_recipe(config, name)
        if network == "switch":
            config.method.name = "adafocal_05"
        else:
            config.model.name = "resnet20"
    elif len(names.split(",")) > 2:
        config.method.name = "adafocal"
    shown = experiment.describe(config)
    assert f"network    {config.model.name}:" in shown
    assert "MB for the gradient of a step" in shown
    # All six methods of the paper's tables can be asked for.
    if "adafocal" in str(path.parent.name):
        assert path.stem == "studies" or set(names.split(",")) - {"focal_3"} == set(SIX)
        assert config.calibrate[0] == "temperature_ece_mass"
    if "aum_mixup" in str(path.parent.name):
        assert len(names.split(",")) == 8
        # A recording phase, then a step of a batch, half of each half.
        batch = config.train.batch_size
        assert re.search(rf"all, records: 3 steps of {batch};", shown)
        assert re.search(rf"aum_mixup_ls: 3 steps of {batch};", shown)
    if "autolabel" in str(path.parent.name):
        larger = path.stem == "adversarial" and not network.endswith(":0.01")
        assert ("cross_entropy" in names) is not larger  # which knows no radius
        assert shown.count("MB for the gradient") == len(config.method.name.split(","))
    docstring = path.read_text().split('"""')[1]
    assert f"--config {path.relative_to(ROOT)}" in docstring


@pytest.mark.parametrize("name", ["snli", "qqp", "swag"])
@pytest.mark.parametrize("network", ["bert", "roberta"])
def test_ablations_are_the_smoothed_row_without_one_part(name: str, network: str) -> None:
    """Table 3's reference row is table 1's with label smoothing."""
    config = _load(ROOT / "configs" / "aum_mixup" / f"{name}.py").get_config(network)
    variants = {key: dict(value) for key, value in config.method.variants.items()}
    reference = variants["aum_mixup_ls"]
    assert reference["smoothing"] > 0
    left_out = {
        "no_aum": {"categorize": "random"},
        "no_saliency": {"partners": "random"},
        "no_similar": {"similar": 0.0},
        "no_dissimilar": {"dissimilar": 0.0},
    }
    for variant, change in left_out.items():
        assert variants[variant] == reference | change
    assert config.method.aum_mixup.batch_split == "halves"
    assert build_recipe(config, "aum_mixup_ls").phases[-1].groups.batch_split == "halves"
    assert build_recipe(config, "aum_mixup_each").phases[-1].groups.batch_split == "each"


@pytest.mark.parametrize("radius", ["0.01", "0.03", "0.1"])
def test_adversarial_configs_have_their_radius_everywhere(radius: str) -> None:
    get_config = _load(ROOT / "configs" / "autolabel" / "adversarial.py").get_config
    config = get_config(f"cifar100:{radius}")
    radii = {config.method[name].eps for name in ("adversarial", "ccat", "adversarial_autolabel")}
    assert radii == {float(radius)}
    assert (config.data.name, config.robustness.attack_eps) == ("cifar100", 0.03)
    swept = [0.02] if radius == "0.01" else [0.1, 0.2, 0.3]
    names = [n for n in config.method.name.split(",") if n.startswith("adversarial_ls")]
    assert [config.method.variants[n]["smoothing"] for n in names] == swept
    assert get_config("cifar100").to_dict() == get_config("cifar100:0.01").to_dict()
    for text, message in [
        ("cifar10:one", "radius 'one': expected more than 0 and less than 1, such as 0.01"),
        ("cifar10:8", "radius '8': expected more than 0"),
        ("cifar11:0.01", "data 'cifar11': expected one of cifar10, cifar100"),
    ]:
        with pytest.raises(ValueError, match=message):
            get_config(text)


@pytest.mark.parametrize(
    ("name", "argument", "published"),
    [("cifar", "cifar10", 0.02), ("cifar", "cifar100", 0.02), ("imagenet", "25", 0.01)],
)
def test_autolabel_configs_sweep_label_smoothing(
    name: str, argument: str, published: float
) -> None:
    config = _load(ROOT / "configs" / "autolabel" / f"{name}.py").get_config(argument)
    for method in ("randaug", "augmix"):
        swept = [config.method.variants[f"{method}_ls_{i:02d}"]["smoothing"] for i in range(1, 11)]
        np.testing.assert_allclose(swept, np.arange(1, 11) / 100)
        assert config.method.variants[f"{method}_ls"]["smoothing"] == published
    # With a gap of 5 points from the first epoch to the last, as eq. 1 has it after every epoch.
    options = config.method.randaug_autolabel
    steps, rest = divmod(config.train.epochs, options.update_every)
    assert rest == 0
    moved = steps * options.update_every * options.alpha * 0.05
    assert 1 - moved == pytest.approx(0.90 if name == "cifar" else 0.91)
    if name == "imagenet":
        assert config.data.num_train == 1_231_167 // 4


SIX = ("cross_entropy", "brier", "mmce", "label_smoothing", "flsd53", "adafocal")
# Of Brier: epochs and initial rate; its reduction is a mean, everything else's a sum.
BRIER = {
    ("cifar10", "resnet50"): (350, 0.1),
    ("cifar10", "wide_resnet_26_10"): (550, 0.1),
    ("cifar100", "resnet50"): (350, 0.1),
    ("cifar100", "resnet110"): (430, 0.1),
    ("tiny_imagenet", "resnet50"): (100, 0.035),
    ("tiny_imagenet", "resnet110"): (100, 0.035),
}


@pytest.mark.parametrize(("name", "network"), BRIER)
def test_adafocal_configs_have_the_published_settings_of_each_loss(name: str, network: str) -> None:
    config = _load(ROOT / "configs" / "adafocal" / f"{name}.py").get_config(network)
    for method in SIX:
        trained = run_config(config, method)[1]
        others = (config.train.epochs, 0.1, True)
        brier = (*BRIER[name, network], False)
        found = (trained.train.epochs, trained.optimizer.learning_rate, trained.train.sum_loss)
        assert found == (brier if method == "brier" else others), method
        assert trained.method.mmce.double_normalized
        assert trained.method.watch_bins
        assert trained.train.log_test
    assert config.method.adafocal.switch == 0.2


def test_adafocal_switches_at_the_published_sizes_on_imagenet() -> None:
    config = _load(ROOT / "configs" / "adafocal" / "imagenet.py").get_config("resnet50")
    switches = {
        name: run_config(config, name)[1].method.adafocal.switch
        for name in ("adafocal", "adafocal_05")
    }
    assert switches == {"adafocal": 0.2, "adafocal_05": 0.5}
    assert config.method.watch_bins


def test_studies_have_the_published_values() -> None:
    def values(study: str, method: str, option: str) -> list:
        config = _load(ROOT / "configs" / "adafocal" / "studies.py").get_config(study)
        merged = [run_config(config, name) for name in config.method.name.split(",")]
        return [m.method[method][option] for base, m in merged if base == method]

    assert values("gammas", "focal", "gamma") == [3, 4, 5]
    assert values("calfocal", "calfocal", "lam") == [10, 100, 10, 100]
    assert values("calfocal", "calfocal", "per_sample") == [True, True, False, False]
    assert values("bins", "adafocal", "num_bins") == [5, 10, 15, 20, 30, 50]
    assert values("gamma_max", "adafocal", "gamma_max") == [20, 50, np.inf]
    assert values("switch", "adafocal", "switch") == [0.2, 0.5]


# Table 7 of the paper on Sim-MixUp and calibrated self-distillation, and its section on fine-tuning.
EMOTION = {
    "goemotions": (64, 2.5e-5, "dailydialog", 8),
    "empathetic_dialogues": (64, 5e-5, "ssec", 16),
    "isear": (32, 2.5e-5, "emotion_stimulus", 8),
}


@pytest.mark.parametrize("name", EMOTION)
def test_emotion_configs_have_the_published_numbers(name: str) -> None:
    config = _load(ROOT / "configs" / "emotion" / f"{name}.py").get_config("roberta")
    batch_size, rate, shifted, tuned_by = EMOTION[name]
    assert (config.train.batch_size, config.train.epochs) == (batch_size, 3)
    assert dict(config.optimizer) | {
        "name": "adamw", "learning_rate": rate, "weight_decay": 0.001, "clip_norm": 3.0,
    } == dict(config.optimizer)  # fmt: skip
    assert len(config.seeds) == 5
    assert (config.data.name, config.data.shift, config.fine_tune.data) == (
        name, (shifted,), shifted,
    )  # fmt: skip
    assert (config.fine_tune.epochs, config.fine_tune.batch_size) == (4, tuned_by)
    assert config.calibrate[0] == "temperature_ece"
    for method in ("sim_mixup", "ea_mixup"):
        options = config.method[method]
        assert options.alpha == 5.0
        assert (options.similar, options.dissimilar) == (0.1, 0.1)  # and 0.8 of what is not mixed
        assert options.categorize == "data_map"
    assert config.method.csd.generations == config.method.sd.generations == 4
    assert config.method.csd.calibrated
    assert not config.method.sd.calibrated


def test_every_argument_gives_a_known_network_and_methods() -> None:
    for path in FILES:
        module = _load(path)
        for network in _arguments(module):
            config = module.get_config(*([network] if network else []))
            assert config.model.name in models.NAMES
            for name in config.method.name.split(","):
                assert _recipe.phases(config, name)
    with pytest.raises(ValueError, match="network 'resnet51': expected one of resnet50"):
        _load(ROOT / "configs/adafocal/cifar10.py").get_config("resnet51")
