"""Confidence from log-probabilities: letters of the labels, scored by a server's `top_logprobs`."""

import math
import pathlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from llm.stub_server import completion, serving
from llm.tweets import NAMES, flags_for, results_of, right, write_tweets

from calib_jax import data, evaluation, llm
from calib_jax.llm import AnswerEvaluation, _run
from calib_jax.llm import __main__ as command
from calib_jax.llm._logprobs import answer_from_scores, read_top_logprobs, score_labels


@pytest.fixture(scope="module")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write_tweets(tmp_path_factory.mktemp("data"))


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy and mean confidence only: the rest takes long to compile."""

    def evaluate(name: str, answers: Any, labels: np.ndarray, _: int) -> AnswerEvaluation:
        correct = np.array([answer.label for answer in answers]) == labels
        reasons = dict(Counter(a.malformed for a in answers if a.malformed))
        mean = float(np.nanmean([answer.confidence for answer in answers]))
        metrics = {"accuracy": float(correct.mean()), "confidence": mean}
        return AnswerEvaluation(name, metrics, {}, {}, np.zeros(0), correct, malformed=reasons)

    monkeypatch.setattr(_run, "evaluate_answers", evaluate)


def _scored(text: str, _: int) -> dict[str, Any]:
    """The right letter has 0.6 in two tokens, the next one 0.2, words that are no label the rest."""
    label = NAMES.index(text.split()[0])
    letter, other = ("ABCDEFGH"[i % 8] for i in (label, label + 1))
    tokens = {letter: 0.5, f" {letter}\n": 0.1, other: 0.2, "The": 0.1, letter.lower(): 0.05}
    return completion(letter, "length", {token: math.log(p) for token, p in tokens.items()})


# ---- by hand


@pytest.mark.parametrize(
    ("tokens", "probs", "outside"),
    [
        ({"A": 0.9, "B": 0.1}, (0.9, 0.1, 0.0), 0.0),
        ({"A": 0.2, " A": 0.1, "C": 0.1, "I": 0.5}, (0.75, 0.0, 0.25), 0.6),
        ({"a": 0.4, "AB": 0.3, "B": 0.2}, (0.0, 1.0, 0.0), 0.8),
        ({"D": 0.4, "B": 0.2}, (0.0, 1.0, 0.0), 0.8),  # there is no fourth label
    ],
)
def test_labels_are_scored_by_their_letters(
    tokens: dict[str, float], probs: tuple[float, ...], outside: float
) -> None:
    scores = score_labels([(token, math.log(p)) for token, p in tokens.items()], 3)
    np.testing.assert_allclose(scores.probs, probs, rtol=1e-12)
    assert scores.outside == pytest.approx(outside, abs=1e-12)
    answer = answer_from_scores(scores)
    assert answer.label == int(np.argmax(probs))
    assert answer.confidence == pytest.approx(max(probs))


@pytest.mark.parametrize(
    "tokens", [None, [], [("The", -0.1)], [("A", -math.inf)], [("A", math.nan)]]
)
def test_without_a_label_an_answer_is_malformed(tokens: Any) -> None:
    scores = score_labels(tokens, 2)
    assert np.isnan(scores.probs).all()
    assert scores.outside == 1
    answer = answer_from_scores(scores)
    assert (answer.label, answer.malformed) == (-1, "no label among the top tokens")


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"logprobs": None},
        {"logprobs": {"content": None}},
        {"logprobs": {"content": []}},
        {"logprobs": {"content": [{"top_logprobs": []}]}},
        {"logprobs": {"content": [{"top_logprobs": [{"token": "A"}]}]}},
        {"logprobs": {"tokens": ["A"], "token_logprobs": [-0.1]}},  # of the older interface
    ],
)
def test_responses_without_log_probabilities(choice: dict[str, Any]) -> None:
    assert read_top_logprobs(choice) is None


# ---- prompts and requests


def _dataset(num_classes: int = 2) -> data.Dataset:
    texts = {"text": np.array([f"text {i}" for i in range(num_classes)], object)}
    labels = np.arange(num_classes, dtype=np.int32)
    names = tuple(f"class {i}" for i in range(num_classes))
    return data.Dataset("made", "test", texts, labels, labels, names)


def _settings(**options: Any) -> llm.Settings:
    return llm.Settings("made", "test", "m", confidence="logprobs", **options)


def test_the_prompt_has_letters_and_the_request_asks_for_log_probabilities() -> None:
    settings, dataset = _settings(shots=1, temperature=0.0, max_tokens=50), _dataset()
    prompt = settings.prompt(dataset, 0, settings.answered_examples(dataset, np.array([1])))
    assert "\nA. class 0\nB. class 1\n" in prompt
    assert 'Text: "text 1"\nAnswer: B\n' in prompt
    assert "JSON" not in prompt
    assert "confidence" not in prompt
    body = settings.request(prompt)
    expected = {"logprobs": True, "top_logprobs": 20, "max_tokens": 1, "temperature": 1.0}
    assert {key: body[key] for key in expected} == expected
    assert _settings(body={"top_logprobs": 5}).request("")["top_logprobs"] == 5
    assert settings.to_json()["confidence"] == "logprobs"


def test_prompts_from_a_file_show_the_letters() -> None:
    template = "{lettered_labels}\n{examples}{text}={letter} {end_examples}{text}="
    settings, dataset = _settings(shots=1, template=template), _dataset()
    settings.check(dataset)
    examples = settings.answered_examples(dataset, np.array([1, 0]))
    assert settings.prompt(dataset, 0, examples) == (
        "A. class 0\nB. class 1\ntext 1=B text 0=A text 0="
    )
    with pytest.raises(ValueError, match=r"^prompt: expected \{lettered_labels\}, as confidence="):
        _settings(template="{labels} {text}")


def test_what_cannot_be() -> None:
    with pytest.raises(
        ValueError, match="expected one of stated, logprobs; did you mean 'logprobs'"
    ):
        llm.Settings("made", "test", "m", confidence="logprob")
    with pytest.raises(ValueError, match="schema: expected confidence='stated'"):
        _settings(schema=True)
    _settings().check(_dataset(26))
    with pytest.raises(ValueError, match=r"expected at most 26 classes, .* made has 27"):
        _settings().check(_dataset(27))


# ---- whole runs


@pytest.mark.usefixtures("light")
def test_probabilities_are_renormalized_and_the_rest_is_reported(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(_scored) as stub:
        flags = flags_for(stub.endpoint, tweets, tmp_path, "--confidence logprobs")
        assert command.main(flags) == 0
        assert command.main(flags) == 0  # nothing is asked again
    assert set(stub.asked.values()) == {1}
    text = capsys.readouterr().out
    line = "zero-shot: outside the label letters 20.00 % of the probability on average, at most 20.00 %"
    assert line in text
    assert "lenient" not in text
    (result,) = results_of(tmp_path)["results"]
    assert result["metrics"] == {"accuracy": 1.0, "confidence": pytest.approx(0.75)}
    assert result["outside_mass"] == {"mean": pytest.approx(0.2), "max": pytest.approx(0.2)}
    with np.load(tmp_path / "predictions/seed_0.npz") as arrays:
        expected = 0.75 * np.eye(8)[arrays["labels"]] + 0.25 * np.eye(8)[(arrays["labels"] + 1) % 8]
        np.testing.assert_allclose(arrays["probs"], expected, atol=1e-6)
        np.testing.assert_array_equal(arrays["prediction"], arrays["labels"])
        np.testing.assert_allclose(arrays["outside_mass"], 0.2, rtol=1e-5)
    # The file is one that `calib_jax.evaluate` reads.
    predictions = evaluation.load_predictions(tmp_path / "predictions/seed_0.npz")
    assert "probabilities" in predictions.notes[0]
    # Answers with a stated confidence are others.
    with serving(right) as stub:
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path)) == 2
    assert "settings.confidence: 'logprobs' there, '(not set)' now" in capsys.readouterr().err


def test_a_server_without_log_probabilities_is_found_out_by_the_first_reply(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda *_: "A") as stub:
        more = "--confidence logprobs --concurrency 1"
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path, more)) == 2
        assert len(stub.requests) <= 2  # one may be under way when the first reply comes
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: the server's reply has no top_logprobs: expected a server that")
    assert "--confidence stated (0 of 40 answers" in error


@pytest.mark.usefixtures("light")
def test_a_later_reply_without_them_is_malformed(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(text: str, number: int) -> Any:
        return "A" if text == "trust test 4" else _scored(text, number)

    with serving(some) as stub:
        more = "--confidence logprobs --concurrency 1"
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path, more)) == 0
    assert "1 malformed answers (no label among the top tokens 1)" in capsys.readouterr().out
    with np.load(tmp_path / "predictions/seed_0.npz") as arrays:
        assert np.isnan(arrays["probs"]).all(axis=1).sum() == 1
        assert arrays["outside_mass"].max() == 1
