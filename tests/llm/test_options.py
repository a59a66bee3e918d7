"""Prompts of one's own, schemas, lenient readings, giving up, URLs and keys of `calib_jax.llm`."""

import json
import pathlib
import re
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from llm.stub_server import Refusal, Stub, said, serving
from llm.tweets import NAMES, flags_for, results_of, right, write_tweets
from sklearn.metrics import f1_score

from calib_jax import data, llm
from calib_jax.llm import (
    AnswerEvaluation,
    NoAnswerError,
    RefusedError,
    _run,
    parse_answer,
    parse_answer_leniently,
)
from calib_jax.llm import __main__ as command

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write_tweets(tmp_path_factory.mktemp("data"))


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy is all that is judged, and nothing is drawn: the rest takes long to compile."""

    def evaluate(name: str, answers: Any, labels: np.ndarray, _: int) -> AnswerEvaluation:
        correct = np.array([answer.label for answer in answers]) == labels
        reasons = dict(Counter(a.malformed for a in answers if a.malformed))
        metrics = {"accuracy": float(correct.mean())}
        return AnswerEvaluation(name, metrics, {}, {}, np.zeros(0), correct, malformed=reasons)

    monkeypatch.setattr(_run, "evaluate_answers", evaluate)


def _dataset(**inputs: Any) -> data.Dataset:
    columns = {key: np.array(value, object) for key, value in inputs.items()}
    labels = np.arange(2, dtype=np.int32)
    return data.Dataset("made", "test", columns, labels, labels, ("no", "yes"))


def _settings(template: str, **options: Any) -> llm.Settings:
    return llm.Settings("made", "test", "m", template=template, **options)


# ---- prompts from a file


def test_placeholders_of_a_prompt() -> None:
    dataset = _dataset(text=["it {labels} rains", "b"], pair=["so", "c"])
    template = (
        "{task} {labels} | {quoted_labels} | {numbered_labels} | '{text}' + '{pair}' | {{text}}\n"
        "Answer {'prediction': name, 'confidence': float} {\"a\": {}} {0}"
    )
    assert _settings(template, task="Well?").prompt(dataset, 0) == (
        "Well? no, yes | \"no\", \"yes\" | 1. no; 2. yes | 'it {labels} rains' + 'so' | {text}\n"
        "Answer {'prediction': name, 'confidence': float} {\"a\": {}} {0}"
    )
    # Cut as in the prompt that is built in, and shown as there.
    assert _settings("{fields} {labels}", max_chars=4).prompt(dataset, 0) == (
        'Text: "it {"\nSecond text: "so" no, yes'
    )
    endings = _dataset(text=["a", "b"], choices=[["x", "long"], ["y", "z"]])
    assert _settings("{text}:\n{choices}\nno or Yes?", max_chars=2).prompt(endings, 0) == (
        "a:\nno: x\nyes: lo\nno or Yes?"
    )


def test_examples_of_a_prompt() -> None:
    train = _dataset(text=["rain", "sun {label}"])
    template = (
        "{labels}, {shots} each:\n{examples}\n{number}) {text}\n= {label}\n\n{end_examples}\n"
    )
    template += "And {text}?"
    settings = _settings(template, shots=1)
    examples = settings.answered_examples(train, np.array([1, 0]))
    assert settings.prompt(train, 0, examples) == (
        "no, yes, 1 each:\n1) sun {label}\n= yes\n\n2) rain\n= no\n\nAnd rain?"
    )


def test_placeholders_are_documented() -> None:
    text = (pathlib.Path(__file__).parents[2] / "docs/llm.md").read_text()
    text = text.partition("| placeholder |")[2]
    table = set(re.findall(r"`\{(\w+)\}`", text.partition("\n\n")[0]))
    with pytest.raises(ValueError, match="placeholder") as outside:
        _settings("{x} {text}")
    with pytest.raises(ValueError, match="placeholder") as inside:
        _settings("{text} {examples}{x}{end_examples}", shots=1)
    known = [re.search(r"one of ([\w, ]+) \(", str(e.value)) for e in (outside, inside)]
    names = {name for found in known if found for name in found[1].split(", ")}
    assert table == names | {"end_examples"}
    # And the example there is one.
    template = text.partition("```text\n")[2].partition("```")[0]
    train = _dataset(text=["rain", "sun"])
    settings = _settings(template, shots=1)
    settings.check(train)
    prompt = settings.prompt(train, 0, settings.answered_examples(train, np.array([1])))
    assert '1. no; 2. yes.\nsun\n=> yes\n\nAnswer with {"prediction": name' in prompt


@pytest.mark.parametrize(
    ("template", "options", "message"),
    [
        ("{txet} {labels}", {}, r"unknown placeholder {txet}: expected one of text, .*mean 'text'\?"),
        ("{text} {label}", {}, "unknown placeholder {label}"),
        ("{text} {labels} {examples}{text}{labl}{end_examples}", {"shots": 1}, "placeholder {labl}"),
        ("{labels}", {}, "expected {text} or {fields} in the prompt"),
        ("{text} {labels}", {"pair": True}, "expected {pair} or {fields} in the prompt"),
        ("{text} {pair} {labels}", {}, "{pair} is not to be used: made has no pair"),
        ("{text}: no, or nothing of yesterday", {}, "every class by its name; 'yes' is missing"),
        ("{text} {labels}", {"shots": 1}, "expected {examples} … {end_examples}, to show"),
        ("{text} {labels} {examples}{text}{end_examples}", {}, "{examples} is not to be used"),
        ("{text} {labels} {examples}", {"shots": 1}, "expected {examples} once, and after it"),
        ("{text} {labels} {end_examples}{examples}", {"shots": 1}, "expected {examples} once"),
        ("{text} {labels} {examples}{label}{end_examples}", {"shots": 1},
         "expected {text} or {fields} for each example"),
        ("{text} {labels}", {"task": "Well?"}, r"expected {task}, as task='Well\?' is given"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be(template: str, options: dict[str, Any], message: str) -> None:
    pair = {"pair": ["c", "d"]} if options.pop("pair", False) else {}
    with pytest.raises(ValueError, match=f"^prompt: .*{message.replace('{', '[{]')}") as error:
        _settings(template, **options).check(_dataset(text=["a", "b"], **pair))
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("light")
def test_a_prompt_file_belongs_to_the_run(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, workdir = tmp_path / "prompt.txt", tmp_path / "run"
    file.write_text('One of {labels}:\nText: "{text}"\n', encoding="utf-8")
    with serving(right) as stub:
        flags = flags_for(stub.endpoint, tweets, workdir)
        mine = [*flags, "--prompt", str(file)]
        assert command.main(mine) == 0
        assert "no examples, a prompt from a file" in capsys.readouterr().out
        texts = data.load("ssec", "test", tweets).inputs["text"]
        assert {request["messages"][0]["content"] for request in stub.requests} == {
            f'One of {", ".join(NAMES)}:\nText: "{text}"' for text in texts
        }
        assert results_of(workdir)["settings"]["wording"] == 'One of {labels}:\nText: "{text}"'
        # The name of the file is nothing: its words are.
        other = file.rename(tmp_path / "renamed.txt")
        mine[-1] = str(other)
        assert command.main(mine) == 0
        capsys.readouterr()
        assert command.main(flags) == 2
        error = capsys.readouterr().err
        assert "has the answers to other settings; choose another --workdir, or undo:" in error
        assert "settings.wording: 'One of {labels}" in error
        other.write_text('Choose one of {labels}:\nText: "{text}"\n')
        assert command.main(mine) == 2
        assert "'Choose one of {labels}" in capsys.readouterr().err
        assert sum(stub.asked.values()) == 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected a text file (No such file or directory)"),
        (b" \n", "expected a text file (it is empty)"),
        (b"\xff\xfe{text}", "expected a text file (not UTF-8)"),
        (b"{text} {lables}", "prompt: unknown placeholder {lables}: expected one of text, "),
        (
            b"{text}",
            "prompt: expected {labels}, {quoted_labels}, {numbered_labels}, {lettered_labels}",
        ),
    ],
)
def test_files_that_are_no_prompt(
    content: bytes | None,
    message: str,
    tweets: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    flags = f"--data ssec --data_dir {tweets} --dry_run --prompt {file}".split()
    assert command.main(flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


# ---- the form of an answer, by the server


@pytest.mark.usefixtures("light")
def test_the_schema_has_the_classes(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(right) as stub:
        flags = flags_for(stub.endpoint, tweets, tmp_path)
        assert command.main([*flags, "--schema"]) == 0
        form = stub.requests[0]["response_format"]
        assert command.main(flags) == 2
        assert "settings.schema: True there, '(not set)' now" in capsys.readouterr().err
        assert sum(stub.asked.values()) == 40
        both = [*flags, "--schema", "--body", '{"response_format": {"type": "json_object"}}']
        assert command.main(both) == 2
        assert "body: 'response_format' is not to be set" in capsys.readouterr().err
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    schema = form["json_schema"]["schema"]
    assert schema["properties"]["prediction"] == {"type": "string", "enum": list(NAMES)}
    assert schema["properties"]["confidence"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert sorted(schema["required"]) == sorted(schema["properties"])
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)


def test_runs_from_before_prompt_files_go_on() -> None:
    """Their settings.json has these keys: one more would be another setting."""
    assert set(llm.Settings("made", "test", "m").to_json()) == {
        "data", "split", "model", "shots", "task", "max_chars", "temperature", "max_tokens", "body",
        "wording", "examples",
    }  # fmt: skip


# ---- what can be read all the same


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"prediction": "joy", "confidence": 0.25}', 0.25),
        ("{'prediction': 'joy', 'confidence': 0.25}", 0.25),
        ("{'prediction': joy, 'confidence': 0.25,}", 0.25),
        ('```json\n{"prediction": "joy",\n "confidence": 0.25}\n```', 0.25),
        ('{"prediction": "Joy", "confidence": 0.25}', 0.25),
        ('{"Prediction": " JOY ", "CONFIDENCE": 0.25}', 0.25),
        ('{"prediction": "joy", "confidence": "0.25"}', 0.25),
        ('{"prediction": "joy", "confidence": " 1 "}', 1.0),
        ('Sure! Here it is: {"prediction": "joy", "confidence": 0.25}', 0.25),
        ('{"prediction": "joy", "confidence": 0.25} I {really} think so.', 0.25),
        ('{"prediction": "joy", "confidence": 0.25, "why": "it\'s so"}', 0.25),
        ("{'prediction': 'joy', 'confidence': 0.25, 'why': 'a \\d'}", 0.25),
        ('{"answer": {"prediction": "joy", "confidence": 0.25}}', 0.25),
        ("As {'prediction': emotion}: {'prediction': 'joy', 'confidence': 0.25}", 0.25),
        ('{"prediction": "joy", "confidence": 0.25} {"prediction": "joy", "confidence": 0.25}', 0.25),
        ('{"prediction": "joy", "confidence": 0.3} or {"prediction": "fear", "confidence": 0.7}',
         "several answers"),
        (None, "empty"),
        ("joy", "not JSON"),
        ("{'prediction': 'joy', 'confidence': 0.9", "not JSON"),
        ("{'prediction': 'joy', 'confidence': __import__('os').getpid()}", "confidence is no number"),
        ("{'prediction': 'joy', 'confidence': 1 - 0.5}", "confidence is no number"),
        ("{'prediction': 'joy', 'confidence': True}", "confidence is no number"),
        ("{'prediction': 'joy', 'confidence': 'high'}", "confidence is no number"),
        ("{'prediction': 'joy', 'confidence': 'nan'}", "confidence is no number"),
        ("{'prediction': 'joy', 'confidence': -0.1}", "confidence outside [0, 1]"),
        ('{"prediction": "joy", "confidence": NaN}', "confidence outside [0, 1]"),
        ('{"prediction": "joy", "confidence": "90"}', "confidence outside [0, 1]"),
        ("{'prediction': 'joyful', 'confidence': 0.9}", "unknown label"),
        ("{'prediction': 4, 'confidence': 0.9}", "unknown label"),
        ("{'prediction': 'joy', 'prediction': 'fear', 'confidence': 0.9}", "other fields"),
        ("{'prediction': 'joy'}", "other fields"),
        ("{**a, 'prediction': 'joy'}", "other fields"),
        ("{'prediction', 'joy', 'confidence'}", "not JSON"),
        ("{'prediction': " * 50_000, "not JSON"),
        ("{prediction" + "-" * 200_000 + "1: 2}", "not JSON"),
        ("{'prediction': \0}", "not JSON"),
    ],
)  # fmt: skip
def test_answers_are_read_leniently(content: Any, expected: float | str) -> None:
    answer = parse_answer_leniently(content, "stop", NAMES)
    if isinstance(expected, str):
        assert answer.malformed == expected
        assert answer.label == -1
        assert np.isnan(answer.confidence)
    else:
        assert answer == (NAMES.index("joy"), expected, "")


def test_lenient_reading_in_short() -> None:
    # What was cut off after the object has it; names that differ in capitals alone stay apart.
    cut = '{"prediction": "joy", "confidence": 0.5}\nThe text'
    assert parse_answer(cut, "length", NAMES).malformed == "cut off at max_tokens"
    assert parse_answer_leniently(cut, "length", NAMES) == (4, 0.5, "")
    assert parse_answer_leniently("{'prediction': 'us', 'confidence': 1}", "stop", ("US", "us"))[0]
    both = parse_answer_leniently("{'prediction': 'Us', 'confidence': 1}", "stop", ("US", "us"))
    assert both.malformed == "unknown label"


def _nearly(text: str, _: int) -> str:
    """Of the five tweets of a class: one strict, three that can be read (one is wrong), one not."""
    name, _, number = text.split()
    wrong = NAMES[NAMES.index(name) - 1]
    return [
        said(name, 0.95),
        f"{{'prediction': '{name}', 'confidence': 0.8}}",
        f"```json\n{said(name.capitalize(), '0.7')}\n```",
        f"I think: {said(wrong, 0.3)}",
        f"It is {name}.",
    ][int(number)]


def test_both_readings_are_judged(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(_nearly) as stub:
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path)) == 0
    text = capsys.readouterr().out
    (result,) = results_of(tmp_path)["results"]
    assert result["malformed"] == {"not JSON": 16, "extra text": 16}
    lenient = result["lenient"]
    assert lenient["malformed"] == {"not JSON": 8}
    with np.load(tmp_path / "predictions/seed_0.npz", allow_pickle=False) as arrays:
        labels, strict, loose = (
            arrays[key] for key in ("labels", "prediction", "lenient_prediction")
        )
        confidence = arrays["lenient_confidence"]
    assert [(array >= 0).sum() for array in (strict, loose)] == [8, 32]
    assert np.isnan(confidence[loose < 0]).all()
    # The strict reading has 8 right ones of 40; the lenient one 24.
    for found, prediction, right_ones in (
        (result["metrics"], strict, 8),
        (lenient["metrics"], loose, 24),
    ):
        np.testing.assert_allclose(found["accuracy"], right_ones / 40, atol=1e-6)
        said_or_other = np.where(prediction >= 0, prediction, 8)
        f1 = f1_score(labels, said_or_other, labels=range(8), average="macro")
        np.testing.assert_allclose(found["f1_macro"], f1, atol=1e-6)
    # Eight of each confidence: 0.95, 0.8 and 0.7 are right, 0.3 is wrong.
    np.testing.assert_allclose(result["metrics"]["ece"], 0.05, atol=1e-6)
    np.testing.assert_allclose(lenient["metrics"]["ece"], (0.05 + 0.2 + 0.3 + 0.3) / 4, atol=1e-6)
    np.testing.assert_allclose(lenient["well_formed"]["accuracy"], 24 / 32, atol=1e-6)
    assert "zero-shot: 32 malformed answers (" in text
    first, second = text.split("read leniently: 8 malformed answers, not 32\n")
    assert "20.00 [" in first
    assert "60.00 [" in second
    assert "zero-shot, lenient: 8 malformed answers (not JSON 8)" in second


@pytest.mark.usefixtures("light")
def test_a_lenient_reading_that_finds_nothing_more(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(text: str, number: int) -> str:
        return "{'prediction': 'love', 'confidence': 1}" if "joy" in text else right(text, number)

    with serving(answer) as stub:
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path)) == 0
    assert "a lenient reading finds no more answers" in capsys.readouterr().out
    (result,) = results_of(tmp_path)["results"]
    assert result["malformed"] == {"not JSON": 5}
    assert result["lenient"]["malformed"] == {"unknown label": 5}
    assert result["lenient"]["metrics"] == result["metrics"] == {"accuracy": 35 / 40}


@pytest.mark.usefixtures("light")
def test_both_readings_over_seeds(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(text: str, number: int) -> str:  # to the second prompt in single quotes
        return right(text, number) if number == 1 else right(text, number).replace('"', "'")

    with serving(answer) as stub:
        more = "--shots 1 --seeds 0,1 --concurrency 1"
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path, more)) == 0
    strict, lenient = capsys.readouterr().out.split("read leniently: 0 malformed answers, not 40\n")
    assert "over 2 seeds, %: accuracy 50.00±70.71\n" in strict
    assert "over 2 seeds, %: accuracy 100.00±0.00\n" in lenient
    record = results_of(tmp_path)
    np.testing.assert_allclose(record["over_seeds"]["accuracy"], (0.5, 0.5**0.5), atol=1e-6)
    np.testing.assert_allclose(record["over_seeds_lenient"]["accuracy"], (1, 0), atol=1e-6)


# ---- giving up


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.usefixtures("light")
def test_giving_up_ends(
    status: int, tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first eight examples never get an answer, nor do the last eight."""
    never = {f"{name} test {number}" for name in NAMES for number in (0, 4)}

    def answer(text: str, number: int) -> Any:
        return Refusal(status, '{"error": "never"}') if text in never else right(text, number)

    with serving(answer) as stub:
        flags = flags_for(stub.endpoint, tweets, tmp_path, "--concurrency 1 --retries 0")
        assert command.main(flags) == 2
        assert "5 examples in a row got no answer (0 of 40" in capsys.readouterr().err
        assert command.main([*flags, "--give_up"]) == 0
        assert "zero-shot: gave up; 24 of 40 answers are in" in capsys.readouterr().out
        assert set(stub.asked) == {f"{name} test {i}" for name in NAMES for i in range(5)}
        # And again: what is not answered is asked once more.
        before = sum(stub.asked.values())
        assert command.main([*flags, "--give_up"]) == 0
        assert sum(stub.asked.values()) == before + 16
        capsys.readouterr()
        assert command.main(flags) == 2
        assert "--give_up counts the others as malformed" in capsys.readouterr().err
    (result,) = results_of(tmp_path)["results"]
    assert result["malformed"] == {"no answer": 16}
    np.testing.assert_allclose(result["metrics"]["accuracy"], 24 / 40, atol=1e-6)


@pytest.mark.usefixtures("light")
def test_giving_up_on_a_server_that_is_gone(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(right) as stub:
        flags = flags_for(stub.endpoint, tweets, tmp_path, "--retries 0")
        assert command.main([*flags, "--num_examples", "9"]) == 0
    assert command.main(flags) == 2  # not without the flag
    assert results_of(tmp_path)["num_examples"] == 9
    capsys.readouterr()
    assert command.main([*flags, "--give_up"]) == 0
    text = capsys.readouterr().out
    assert "gave up; 9 of 40 answers are in" in text
    assert "; 5 examples in a row got no answer\n" in text  # the other 26 were not tried
    (result,) = results_of(tmp_path)["results"]
    assert result["malformed"] == {"no answer": 31}
    # One that refuses everything, such as for a model that it does not have any more.
    with serving(lambda *_: Refusal(404)) as stub:
        flags = flags_for(stub.endpoint, tweets, tmp_path, "--concurrency 1")
        assert command.main(flags) == 2
        assert command.main([*flags, "--give_up"]) == 0
        assert sum(stub.asked.values()) == 2
    # It comes back: nothing was lost, and all is asked that was given up.
    with serving(right) as stub:
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path)) == 0
        assert sum(stub.asked.values()) == 31
    assert results_of(tmp_path)["results"][0]["malformed"] == {}


def test_giving_up_everything_is_an_error(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda *_: Refusal(400, '{"detail": "not this"}')) as stub:
        assert command.main(flags_for(stub.endpoint, tweets, tmp_path, "--give_up")) == 2
        assert len(stub.asked) == 40
    error = capsys.readouterr().err
    assert "no example got an answer, the last: " in error
    assert "HTTP 400, not this (0 of 40" in error
    assert not (tmp_path / "results.json").exists()


# ---- where requests go


def _ask(endpoint: str, key: str = "", **options: Any) -> llm.ChatClient:
    chat = llm.ChatClient(endpoint, key, retries=0, **options)
    chat.ask({"messages": [{"content": 'Text: "joy test 0"'}]}, threading.Event())
    return chat


@pytest.mark.parametrize("path", ["", "/", "/chat/completions"])
def test_queries_are_sent_and_not_shown(path: str) -> None:
    query = "?api-version=2024-10-21&code=s%2Fcret"
    with serving(right) as stub:
        chat = _ask(stub.endpoint + path + query)
        assert stub.paths == ["/v1/chat/completions" + query]
    assert chat.url == stub.endpoint + "/chat/completions"
    echo = json.dumps({"error": "no s/cret, s%2Fcret or 2024-10-21 here"})
    for status, kind in ((401, RefusedError), (400, NoAnswerError), (500, NoAnswerError)):
        with serving(lambda *_, status=status: Refusal(status, echo)) as stub:
            with pytest.raises(kind) as error:
                _ask(stub.endpoint + query)
            assert f"HTTP {status}, no …, … or … here" in str(error.value)
            assert "cret" not in str(error.value)
    with pytest.raises(NoAnswerError) as error:  # nobody is there any more
        _ask(stub.endpoint + query)
    assert "cret" not in str(error.value)


@pytest.mark.usefixtures("light")
def test_queries_are_not_written(tweets: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serving(right) as stub:
        assert command.main(flags_for(f"{stub.endpoint}?code=s3cret", tweets, tmp_path)) == 0
        assert stub.paths[-1] == "/v1/chat/completions?code=s3cret"
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"s3cret" not in written
    assert results_of(tmp_path)["endpoint"] == f"{stub.endpoint}/chat/completions"


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Other machines are reached through a proxy, which is the stub."""

    def through(stub: Stub) -> None:
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", stub.endpoint.removesuffix("/v1"))

    return through


@pytest.mark.usefixtures("light")
def test_keys_over_http_if_allowed(
    tweets: pathlib.Path,
    tmp_path: pathlib.Path,
    proxied: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(right) as stub:
        proxied(stub)
        flags = flags_for("http://gpu.example/v1", tweets, tmp_path, "--key_env MY_KEY")
        assert command.main(flags) == 2
        assert "; --allow_http_key sends it all the same\n" in capsys.readouterr().err
        assert not stub.headers
        assert command.main([*flags, "--allow_http_key"]) == 0
        assert {headers["Authorization"] for headers in stub.headers} == {f"Bearer {KEY}"}
        assert set(stub.paths) == {"http://gpu.example/v1/chat/completions"}
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    done = capsys.readouterr()
    assert KEY not in done.out + done.err + written.decode("latin-1")
