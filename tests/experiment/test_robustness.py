"""Corrupted and attacked test sets: means over types and severities, and who still stands."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small
from experiment.conftest import NoFigure

from calib_jax import augment, experiment, losses, metrics, report
from calib_jax.experiment import _config, _robustness
from calib_jax.experiment._shift import load_shift

OPTIONS = {
    "method__name": "augmix_autolabel",
    "method__augmix_autolabel__num_buckets": 1,
    "robustness__corruptions": ("gaussian_noise", "contrast"),
    "robustness__severities": (1, 5),
    "robustness__operations": ("posterize", "rotate"),
    "robustness__num_corrupted": 50,
    "robustness__attack_eps": 0.05,
    "robustness__attack_steps": 3,
    "robustness__attack_restarts": 2,
    "robustness__num_attacked": 40,
    "calibrate": ("temperature",),
}


def test_a_run_leaves_means_tables_and_pictures(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())
    kept = {}
    evaluate = _robustness.evaluate

    def watched(config, test, judgements, trainer, state, seed):
        kept[trainer.method] = (test, trainer, state, judgements)
        return evaluate(config, test, judgements, trainer, state, seed)

    monkeypatch.setattr(_robustness, "evaluate", watched)
    shown = experiment.run(small.config(**OPTIONS), tmp_path)
    path = tmp_path / "augmix_autolabel" / "seed_0" / "results.json"
    found = json.loads(path.read_text())["robustness"]
    each = found["corruptions"]["each"]
    assert {name: list(rows) for name, rows in each.items()} == {
        "gaussian_noise": ["1", "5"], "contrast": ["1", "5"],
    }  # fmt: skip
    flat = [row for rows in each.values() for row in rows.values()]
    for key in ("accuracy", "ece", "ece_temperature"):
        assert found["corruptions"]["mean"][key] == pytest.approx(np.mean([r[key] for r in flat]))
    assert list(found["corruptions"]["severity"]) == ["0", "1", "5"]
    source = "made with the strengths of CIFAR-10-C, for 32 pixels"
    assert found["corruptions"]["source"] == source
    pair = [each[name]["5"]["ece"] for name in each]
    assert found["corruptions"]["severity"]["5"]["ece"] == pytest.approx(np.mean(pair))

    # One of them again, by hand.
    test, trainer, state, judgements = next(iter(kept.values()))
    part = load_shift("contrast:5", test.take(np.arange(50) * len(test) // 50), None)[1]
    logits = trainer.predict(state, trainer.loader(part))
    assert each["contrast"]["5"]["accuracy"] == pytest.approx(
        float(metrics.accuracy(logits, part.labels))
    )
    warm = logits / judgements[1].parameters["temperature"][0]
    expected = float(metrics.ece(*metrics.top_label(warm, part.labels)))
    assert each["contrast"]["5"]["ece_temperature"] == pytest.approx(expected, abs=1e-6)

    # The operations are RandAug's; magnitude 0 is the set without them.
    operations = found["operations"]
    assert {name: list(rows) for name, rows in operations.items()} == {
        "rotate": list(map(str, range(11))), "posterize": list(map(str, range(11))),
    }  # fmt: skip
    part = test.take(np.arange(50) * len(test) // 50)
    levels = np.asarray(part.inputs["image"])
    for name, magnitude, images in (
        ("posterize", 0, levels), ("posterize", 5, levels & 0b11000000),
    ):  # fmt: skip
        by_hand = dataclasses.replace(part, inputs={"image": images})
        logits = trainer.predict(state, trainer.loader(by_hand))
        expected = float(metrics.accuracy(logits, part.labels))
        assert operations[name][str(magnitude)]["accuracy"] == pytest.approx(expected)

    attacked = found["attack"]
    assert 0 <= attacked["accuracy"] <= attacked["clean_accuracy"] <= 1
    assert f"under corruption ({source}) and attack" in shown
    summary = (tmp_path / "summary.md").read_text()
    assert "cAccuracy %" in summary
    plots = {p.name for p in (tmp_path / "plots").iterdir()}
    assert {"severity.png", "operations.png", "labels_augmix_autolabel.png"} <= plots
    page = (tmp_path / "report.html").read_text()
    assert "Label confidences of augmix_autolabel" in page
    assert "A panel is a depth of the chain" in page
    log = tmp_path / "augmix_autolabel" / "seed_0" / "metrics.jsonl"
    names = json.loads(log.read_text().splitlines()[-1])["method/bucket_names"]
    assert names == ["depth 1", "depth 2", "depth 3"]


def test_an_attack_is_pgd_and_one_failure_is_enough() -> None:
    trainer = small.shared_trainer("cross_entropy")
    state, test = trainer.init(0), small.images(10, 3)
    found = _robustness.attack(trainer, state, test, eps=0.2, steps=4, restarts=3, seed=1)
    network = trainer.network.bind(state.model_state)

    def loss(images, labels):
        return losses.cross_entropy(network(state.params, {"image": images})[0], labels)

    right = []
    size = trainer.eval_batch_size
    for first in range(0, 10, size):
        rows = np.arange(first, first + size) % 10
        images = jnp.asarray(test.inputs["image"][rows], jnp.float32) / 255
        labels = jnp.asarray(test.labels[rows])
        stands = jnp.argmax(network(state.params, {"image": images})[0], -1) == labels
        for restart in range(3):
            key = jax.random.fold_in(jax.random.key(1), first * 3 + restart)
            x = augment.pgd(key, loss, images, labels, eps=0.2, steps=4)
            stands &= jnp.argmax(network(state.params, {"image": x})[0], -1) == labels
        right += np.asarray(stands).tolist()
    assert found["accuracy"] == pytest.approx(np.mean(right[:10]))


def test_of_two_networks_the_evaluated_one_is_attacked() -> None:
    trainer = small.shared_trainer("lcl")
    state = trainer.init(0)
    options = {"eps": 0.2, "steps": 2, "restarts": 1, "seed": 1}
    alone = small.shared_trainer("cross_entropy")
    single = alone.init(0)._replace(params=state.params[0])
    test = small.images(10, 3)
    found = _robustness.attack(trainer, state, test, **options)
    assert found == _robustness.attack(alone, single, test, **options)


def test_names_of_suites_and_wrong_ones() -> None:
    names = _robustness.corruption_names
    assert len(names(("standard",))) == 15
    assert len(names(("all", "fog"))) == 19
    assert len(names(("autolabel",))) == 17
    assert names(("fog", "snow")) == ["fog", "snow"]
    assert _robustness.operation_names(("shear_y", "rotate")) == ["rotate", "shear_y"]
    assert _robustness.operation_names(("all",)) == list(augment.OPS)
    config = small.config()
    for key, value, message in [
        ("corruptions", ("smog",), r"corruptions='smog': expected one of standard, all, auto"),
        ("operations", ("spin",), r"operations='spin': expected one of all, rotate, shear_x"),
        ("severities", (0,), r"severities=\(0,\): expected 1 to 5"),
        ("attack_steps", 0, "attack_steps=0"),
    ]:
        wrong = small.config(**{f"robustness__{key}": value})
        with pytest.raises(ValueError, match=message):
            _config.check(wrong)
    assert config.robustness.corruptions == ()


def test_images_that_stream_are_read_into_memory() -> None:
    images = np.arange(20, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    test = small.images(20, 0)
    streamed = dataclasses.replace(test, inputs={}, read=lambda row, _: {"image": images[row]})
    part = _robustness._subset(streamed, 5)
    assert part.read is None
    np.testing.assert_array_equal(part.inputs["image"][:, 0, 0, 0], [0, 4, 8, 12, 16])
    np.testing.assert_array_equal(part.labels, test.labels[::4])

    options = small.config(robustness__attack_eps=0.1).robustness
    _robustness.check_set(options, test)
    with pytest.raises(ValueError, match=r"num_attacked=0: expected how many images of .* to hold"):
        _robustness.check_set(options, streamed)
    with pytest.raises(ValueError, match=r"config.robustness: .* has no images"):
        _robustness.check_set(options, dataclasses.replace(test, inputs={"text": test.ids}))
