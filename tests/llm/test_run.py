"""`python -m calib_jax.llm` against a server on this machine."""

import email.utils
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from llm.stub_server import Refusal, Stub, completion, said, serving
from llm.tweets import NAMES, flags_for, results_of, right, write_tweets
from PIL import Image
from sklearn.metrics import f1_score

from calib_jax import data, llm
from calib_jax.llm import AnswerEvaluation, NoAnswerError, _run, parse_answer
from calib_jax.llm import __main__ as command

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write_tweets(tmp_path_factory.mktemp("data"))


def _flags(stub: Stub, tweets: pathlib.Path, workdir: pathlib.Path, more: str = "") -> list[str]:
    return flags_for(stub.endpoint, tweets, workdir, more)


def _answers(workdir: pathlib.Path, seed: int = 0) -> list[dict[str, Any]]:
    lines = (workdir / "answers" / f"seed_{seed}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes long to compile: accuracy is all that is judged, and nothing is drawn."""

    def evaluate(name: str, answers: Any, labels: np.ndarray, _: int) -> AnswerEvaluation:
        correct = np.array([answer.label for answer in answers]) == labels
        reasons = dict(Counter(a.malformed for a in answers if a.malformed))
        metrics = {"accuracy": float(correct.mean()), "ece": 0.3, "ece_10": 0.2}
        return AnswerEvaluation(name, metrics, {}, {}, np.zeros(0), correct, malformed=reasons)

    monkeypatch.setattr(_run, "evaluate_answers", evaluate)


# ---- from prompts to a table


def _mixed(text: str, _: int) -> Any:
    """Of the five tweets of a class: two right, one wrong, one that depends, one malformed."""
    name, _, number = text.split()
    wrong = NAMES[NAMES.index(name) - 1]
    odd = {
        "anger": "I think it is anger.",
        "anticipation": f"Sure! {said(name, 0.9)}",
        "disgust": said("disgusted", 0.9),
        "fear": said(name, 1.2),
        "joy": said(name, "high"),
        "sadness": None,
        "surprise": completion('{"prediction": "surp', finish="length"),
        "trust": json.dumps({"prediction": name}),
    }
    kinds = [said(name, 0.95), said(name, 0.8), said(wrong, 0.7), said(wrong, 0.3), odd[name]]
    return kinds[int(number)]


def test_answers_are_judged_as_scikit_learn_would(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(_mixed) as stub:
        assert command.main(_flags(stub, tweets, tmp_path)) == 0
        text = capsys.readouterr().out
        assert len(stub.asked) == sum(stub.asked.values()) == 40
        # All is there: nothing is asked again.
        assert command.main(_flags(stub, tweets, tmp_path)) == 0
        assert sum(stub.asked.values()) == 40
        assert all("Authorization" not in headers for headers in stub.headers)
        first = stub.requests[0]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("small", 0, 100)
    assert [m["role"] for m in first["messages"]] == ["user"]

    record = results_of(tmp_path)
    (result,) = record["results"]
    with np.load(tmp_path / "predictions/seed_0.npz", allow_pickle=False) as arrays:
        labels, prediction, confidence = (arrays[k] for k in ("labels", "prediction", "confidence"))
        assert sorted(arrays["ids"]) == list(range(40))
    ok = prediction >= 0
    assert np.isnan(confidence[~ok]).all()
    assert (len(labels), ok.sum(), (prediction == labels).sum()) == (40, 32, 16)
    found = result["metrics"]
    assert "nll" not in found  # needs a probability of every class
    np.testing.assert_allclose(found["accuracy"], 16 / 40, atol=1e-6)
    for average in ("macro", "weighted"):
        f1 = f1_score(labels, np.where(ok, prediction, 8), labels=range(8), average=average)
        np.testing.assert_allclose(found[f"f1_{average}"], f1, atol=1e-6)
    # The bins hold 8 each, of confidence 0.95 and 0.8 (right), 0.7 and 0.3 (wrong).
    np.testing.assert_allclose(found["ece"], (0.05 + 0.2 + 0.7 + 0.3) / 4, atol=1e-6)
    np.testing.assert_allclose(found["confidence"], np.mean(confidence[ok]), atol=1e-6)
    np.testing.assert_allclose(result["well_formed"]["accuracy"], 0.5, atol=1e-6)
    np.testing.assert_allclose(found["gap"], np.mean(confidence[ok]) - 0.5, atol=1e-6)
    np.testing.assert_allclose(
        result["well_formed"]["f1_macro"],
        f1_score(labels[ok], prediction[ok], average="macro"),
        atol=1e-6,
    )
    low, high = result["intervals"]["accuracy"]
    assert low < 0.4 < high
    assert result["malformed"] == {
        "not JSON": 1,
        "extra text": 1,
        "unknown label": 1,
        "confidence outside [0, 1]": 1,
        "confidence is no number": 1,
        "empty": 1,
        "cut off at max_tokens": 1,
        "other fields": 1,
    }
    assert result["answered_by"] == ["stub-1"]
    assert result["tokens"] == {"prompt": 800, "answer": 200}
    assert re.search(r"ECE-15 equal width % +\| 31\.25 \[", text)
    assert re.search(r"accuracy % +\| 40\.00 \[", text)
    assert "zero-shot: 8 malformed answers (" in text
    assert "zero-shot: of the well-formed answers alone: accuracy 50.00 %, F1 macro " in text
    assert "NLL" not in text
    with Image.open(tmp_path / "reliability.png") as picture:
        assert min(picture.size) > 300


@pytest.mark.usefixtures("light")
def test_several_prompts_with_examples(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(text: str, number: int) -> str:
        return said(text.split()[0] if number == 1 or "joy" in text else "joy", 0.9)

    with serving(answer) as stub:
        flags = _flags(stub, tweets, tmp_path, "--shots 2 --concurrency 1")
        assert command.main([*flags, "--seeds", "0"]) == 0
        # More seeds may join.
        assert command.main([*flags, "--seeds", "0,7"]) == 0
        assert set(stub.asked.values()) == {2}
        prompts = [request["messages"][0]["content"] for request in stub.requests]
    text = capsys.readouterr().out
    # Of the ECEs the one that the tables of texts have, by its name.
    assert "over 2 seeds, %: accuracy 56.25±61.87, ECE-10 20.00±0.00\n" in text
    assert re.search(r"accuracy % +\| 100\.00 \|  12\.50 \|", text)  # no star: neither is a rival
    record = results_of(tmp_path)
    assert [r["name"] for r in record["results"]] == ["seed 0", "seed 7"]
    train = data.load("ssec", "train", tweets)
    for result, prompt in zip(record["results"], (prompts[0], prompts[40]), strict=True):
        of = {int(i): name for i, name in zip(train.ids, train.labels, strict=True)}
        assert np.bincount([of[i] for i in result["examples"]]).tolist() == [2] * 8
        shown = re.findall(r'^Text: "(\w+) train \d+"\nAnswer: "(\w+)"$', prompt, re.M)
        assert len(shown) == 16
        assert all(a == b for a, b in shown)
    # The same examples in another order: there are no others here.
    assert record["results"][0]["examples"] != record["results"][1]["examples"]


def test_examples_depend_on_the_seed_alone_and_are_never_asked_about() -> None:
    def dataset(split: str, texts: list[str], labels: list[int]) -> data.Dataset:
        inputs = {"text": np.array(texts, object)}
        ids = np.arange(len(texts), dtype=np.int32)
        return data.Dataset("made", split, inputs, np.array(labels, np.int32), ids, ("no", "yes"))

    train = dataset("train", [f"t{i}" for i in range(40)], [0, 1] * 20)
    asked = dataset("test", [f"t{i}" for i in range(30)], [0, 1] * 15)
    settings = llm.Settings("made", "test", "m", shots=3)
    first, again, other = (settings.draw_examples(train, asked, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert list(first) != list(other)
    assert first.min() >= 30
    assert np.bincount(train.labels[first]).tolist() == [3, 3]
    many = llm.Settings("made", "test", "m", shots=6)
    with pytest.raises(ValueError, match="shots=6: expected at most 5, as many training examples"):
        many.draw_examples(train, asked, 0)


def test_prompts_show_all_texts_of_an_example() -> None:
    inputs = {
        "text": np.array(['He said "so".\nText: joy'], object),
        "choices": np.array([["a", "b" * 30]], object),
    }
    labels = np.zeros(1, np.int32)
    dataset = data.Dataset("made", "test", inputs, labels, labels, ("first", "second"))
    settings = llm.Settings("made", "test", "m", max_chars=24)
    prompt = settings.prompt(dataset, 0)
    assert prompt.startswith(
        'Which class does the text belong to? Choose one of these answers: "first"'
    )
    assert prompt.endswith(
        'Text: "He said \\"so\\".\\nText: joy"\nfirst: "a"\nsecond: "' + "b" * 24 + '"'
    )
    assert settings.num_cut(dataset) == 1
    asking = llm.Settings("made", "test", "m", task="Well?", body={"max_tokens": None, "top_p": 1})
    assert asking.prompt(dataset, 0).startswith("Well? Choose one")
    assert sorted(asking.request("x")) == ["messages", "model", "temperature", "top_p"]


def test_dry_run_asks_nobody(tweets: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(f"--data ssec --data_dir {tweets} --num_examples 3 --dry_run".split()) == 0
    text = capsys.readouterr().out
    assert "3 requests" in text
    assert 'Choose one of these answers: "anger", "anticipation"' in text


# ---- what is an answer


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (' {"confidence": 1, "prediction": "joy"}\n', ""),
        ('{"prediction": "joy", "confidence": 0.25}', ""),
        (None, "empty"),
        ([{"type": "text"}], "empty"),
        (" \n", "empty"),
        ("joy", "not JSON"),
        ("{'prediction': 'joy', 'confidence': 0.9}", "not JSON"),
        ('{"prediction": "joy", "confidence": 0.9', "not JSON"),
        ('{"prediction": "joy", "confidence": NaN}', "extra text"),
        ("[" * 100_000, "not JSON"),
        ('```json\n{"prediction": "joy", "confidence": 0.9}\n```', "extra text"),
        ('{"prediction": "joy", "confidence": 0.9} I am sure.', "extra text"),
        ('{"prediction": "joy", "confidence": 0.9}{}', "extra text"),
        ('["joy", 0.9]', "other fields"),
        ('"joy"', "other fields"),
        ('{"prediction": "joy"}', "other fields"),
        ('{"prediction": "joy", "confidence": 0.9, "why": "…"}', "other fields"),
        ('{"prediction": "joy", "prediction": "fear", "confidence": 0.9}', "other fields"),
        ('{"prediction": "Joy", "confidence": 0.9}', "unknown label"),
        ('{"prediction": ["joy"], "confidence": 0.9}', "unknown label"),
        ('{"prediction": 4, "confidence": 0.9}', "unknown label"),
        ('{"prediction": "joy", "confidence": "0.9"}', "confidence is no number"),
        ('{"prediction": "joy", "confidence": true}', "confidence is no number"),
        ('{"prediction": "joy", "confidence": null}', "confidence is no number"),
        ('{"prediction": "joy", "confidence": 90}', "confidence outside [0, 1]"),
        ('{"prediction": "joy", "confidence": -0.1}', "confidence outside [0, 1]"),
        ('{"prediction": "joy", "confidence": 1e999}', "confidence outside [0, 1]"),
    ],
)  # fmt: skip
def test_answers_are_read_strictly(content: Any, reason: str) -> None:
    answer = parse_answer(content, "stop", NAMES)
    assert answer.malformed == reason
    assert (answer.label >= 0) == (not reason)
    assert np.isnan(answer.confidence) == bool(reason)


def test_nothing_but_malformed_answers(tweets: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serving(lambda *_: "no idea") as stub:
        assert command.main(_flags(stub, tweets, tmp_path)) == 0
    (result,) = results_of(tmp_path)["results"]
    assert result["metrics"] == {"accuracy": 0, "f1_macro": 0, "f1_weighted": 0}
    assert result["malformed"] == {"not JSON": 40}
    assert not (tmp_path / "reliability.png").exists()


# ---- a server in trouble


def _chat(stub: Stub, **options: Any) -> llm.ChatClient:
    defaults = {"timeout": 60.0, "retries": 3, "backoff": 0.02, "log": lambda _: None}
    return llm.ChatClient(stub.endpoint, **(defaults | options))


def _request(text: str = "joy test 0") -> dict[str, Any]:
    return {"messages": [{"content": f'Text: "{text}"'}]}


@pytest.mark.parametrize(
    "trouble",
    [
        Refusal(500, "oops"),
        Refusal(503),
        Refusal(429),
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",
        b"nonsense\r\n\r\n",
        Refusal(200, "<html>busy</html>"),
    ],
)
def test_what_may_pass_is_tried_again(trouble: Any) -> None:
    lines: list[str] = []
    with serving(lambda text, n: trouble if n < 3 else right(text, n)) as stub:
        reply = _chat(stub, log=lines.append).ask(_request(), threading.Event())
        assert reply.content == said("joy", 0.9)
        assert stub.asked["joy test 0"] == 3
        first, second = np.diff(stub.times)
    assert first < 30 > second
    assert second >= 0.02  # twice the first, of which at most half is left out
    assert len(lines) == 1  # not one per try
    assert lines[0].endswith("; trying again")


def test_the_server_says_when_to_come_back() -> None:
    """All threads wait, not only the one that was told."""
    started = time.monotonic()
    with serving(lambda text, n: (
        Refusal(429, headers=(("Retry-After", "0.4"),))
        if text == "told" and n == 1 else right(text, n)
    )) as stub:  # fmt: skip
        chat, halt = _chat(stub), threading.Event()
        teller = threading.Thread(target=chat.ask, args=(_request("told"), halt))
        teller.start()
        while not stub.times:
            time.sleep(0.01)
        time.sleep(0.1)
        chat.ask(_request("joy"), halt)
        teller.join()
        assert stub.asked == {"told": 2, "joy": 1}
        assert min(stub.times[1:]) - stub.times[0] >= 0.39
    assert time.monotonic() - started < 30


def test_dates_and_long_waits() -> None:
    def answer(_: str, number: int) -> Any:
        # In whole seconds: 1 to 2 from now.
        soon = email.utils.formatdate(time.time() + 2, usegmt=True)
        return Refusal(503, headers=(("Retry-After", soon),)) if number == 1 else said("joy", 1)

    with serving(answer) as stub:
        _chat(stub).ask(_request(), threading.Event())
        assert 0.5 < stub.times[1] - stub.times[0] < 30
    with serving(lambda *_: Refusal(429, headers=(("Retry-After", "86400"),))) as stub:
        with pytest.raises(NoAnswerError, match="HTTP 429; it asks to wait 86400 s"):
            _chat(stub).ask(_request(), threading.Event())
        assert len(stub.times) == 1


def test_timeouts() -> None:
    over = threading.Event()

    def slow(text: str, number: int) -> Any:
        if number == 1:
            over.wait(60)
        return right(text, number)

    with serving(slow) as stub:
        assert _chat(stub, timeout=0.5).ask(_request(), threading.Event()).finish == "stop"
        assert 0.5 <= stub.times[1] - stub.times[0] < 30
        over.set()
    with serving(lambda *_: time.sleep(1)) as stub, pytest.raises(NoAnswerError) as error:
        _chat(stub, timeout=0.1, retries=1).ask(_request(), threading.Event())
    assert str(error.value).endswith("no answer within 0.1 s, 2 times")


def test_drop_by_drop_is_no_answer_either() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
                for _ in range(100):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return
                    time.sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        chat = llm.ChatClient(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.3, retries=0)
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.3 s"):
            chat.ask(_request(), threading.Event())
        thread.join()


def test_waiting_ends_when_the_run_does() -> None:
    halt = threading.Event()
    with serving(lambda *_: Refusal(500)) as stub:
        threading.Timer(0.1, halt.set).start()
        started = time.monotonic()
        with pytest.raises(NoAnswerError, match="stopped"):
            _chat(stub, backoff=50).ask(_request(), halt)
        assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Refusal(401, json.dumps({"error": {"message": f"bad key {KEY}\nsorry"}})),
         "HTTP 401, bad key … sorry; is the key right?"),
        (Refusal(403, "no"), "HTTP 403, no; is the key right?"),
        (Refusal(404, '{"detail": "Not Found"}'), "are endpoint and model right?"),
        (Refusal(302, headers=(("Location", "http://127.0.0.1:1/"),)), "HTTP 302"),
    ],
)  # fmt: skip
def test_refusals_end_the_run_at_once(
    refusal: Refusal,
    message: str,
    tweets: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(lambda *_: refusal) as stub:
        flags = _flags(stub, tweets, tmp_path, "--key_env MY_KEY --concurrency 2")
        assert command.main(flags) == 2
        assert stub.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert len(stub.times) <= 2  # no retries, and no other example
        assert max(stub.asked.values()) == 1
    (line,) = [li for li in capsys.readouterr().err.splitlines() if li.startswith("error")]
    assert message in line
    assert "0 of 40 answers are in" in line
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in written + line.encode()


@pytest.mark.usefixtures("light")
def test_one_example_without_an_answer(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(text: str, number: int) -> Any:
        return (
            Refusal(400, '{"error": "not this"}') if text == "fear test 2" else right(text, number)
        )

    with serving(answer) as stub:
        flags = _flags(stub, tweets, tmp_path)
        assert command.main(flags) == 2
        error = capsys.readouterr().err
        assert "1 examples got no answer, the last" in error
        assert "HTTP 400, not this (39 of 40 answers are in" in error
        assert not (tmp_path / "results.json").exists()
        assert command.main([*flags, "--give_up"]) == 0
        assert stub.asked.pop("fear test 2") == 2
        assert set(stub.asked.values()) == {1}
    (result,) = results_of(tmp_path)["results"]
    assert result["malformed"] == {"no answer": 1}
    np.testing.assert_allclose(result["metrics"]["accuracy"], 39 / 40, atol=1e-6)


def test_no_server(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(right) as stub:
        pass
    flags = _flags(stub, tweets, tmp_path, "--retries 0 --give_up")
    assert command.main(flags) == 2  # giving up is for some, not for all
    error = capsys.readouterr().err
    assert "Connection refused, 1 times; 5 examples in a row got no answer (0 of 40" in error


@pytest.mark.usefixtures("light")
def test_no_more_requests_at_once_than_allowed(
    tweets: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def answer(text: str, number: int) -> str:
        time.sleep(0.02)
        return right(text, number)

    with serving(answer) as stub:
        assert command.main(_flags(stub, tweets, tmp_path, "--concurrency 3")) == 0
        assert stub.most == 3


# ---- stopped, and gone on


def _start(flags: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "calib_jax.llm", *flags], stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.usefixtures("light")
def test_killed_and_resumed(
    number: signal.Signals, tweets: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    held, answered = threading.Event(), threading.Semaphore(11)

    def answer(text: str, count: int) -> str:
        if not answered.acquire(blocking=False):
            held.wait(300)
        return right(text, count)

    with serving(answer) as stub:
        flags = _flags(stub, tweets, tmp_path, "--concurrency 3")
        process = _start(flags)
        path = tmp_path / "answers/seed_0.jsonl"
        deadline = time.monotonic() + 300
        while not path.exists() or len(_whole(path)) < 11 or len(stub.times) < 14:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        if number == signal.SIGINT:  # what is under way is waited for, and kept
            assert process.stderr is not None
            while "stopping" not in process.stderr.readline():
                assert process.poll() is None
            time.sleep(0.5)
            held.set()
        _, error = process.communicate(timeout=300)
        held.set()
        before = {row["id"] for row in map(json.loads, _whole(path))}
        if number == signal.SIGINT:
            assert process.returncode == 130
            assert "14 of 40 answers are in" in error
            assert "The same command goes on from there" in error
            assert len(before) == 14
        else:
            assert process.returncode == -signal.SIGKILL
            assert len(before) == 11
            with path.open("a") as file:
                file.write('{"id": 39, "prompt": "12')  # a line that was being written
        assert command.main(flags) == 0
        asked = data.load("ssec", "test", tweets).inputs["text"]
        assert [stub.asked[asked[i]] for i in sorted(before)] == [1] * len(before)
        assert sum(stub.asked.values()) == (40 if number == signal.SIGINT else 40 + 3)
    assert sorted(row["id"] for row in _answers(tmp_path)) == list(range(40))
    np.testing.assert_allclose(
        results_of(tmp_path)["results"][0]["metrics"]["accuracy"], 1, atol=1e-6
    )


def _whole(path: pathlib.Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


@pytest.mark.usefixtures("light")
def test_more_examples_may_join_but_no_other_settings(
    tweets: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = tmp_path / "run"
    with serving(right) as stub:
        flags = _flags(stub, tweets, workdir)
        assert command.main([*flags, "--num_examples", "7"]) == 0
        assert command.main(flags) == 0
        assert set(stub.asked.values()) == {1}
        assert len(stub.asked) == 40
        capsys.readouterr()
        assert command.main([*flags, "--model", "large", "--temperature", "0.5"]) == 2
        error = capsys.readouterr().err
        assert "has the answers to other settings; choose another --workdir, or undo:" in error
        assert "settings.model: 'small' there, 'large' now" in error
        assert "settings.temperature: 0.0 there, 0.5 now" in error
        assert sum(stub.asked.values()) == 40
    with serving(right) as moved:  # the same model elsewhere
        assert command.main(_flags(moved, tweets, workdir)) == 0
        assert not moved.asked

    path = workdir / "answers/seed_0.jsonl"
    lines = _whole(path)
    for number, (line, message) in enumerate(
        [
            (
                '{"id": 3}',
                "seed_0.jsonl:2: expected an answer; without that line it is asked for again",
            ),
            (lines[1].replace('"prompt": "', '"prompt": "0'), "was asked about in other words"),
        ]
    ):
        path.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
        capsys.readouterr()
        assert command.main(flags) == 2, number
        assert message in capsys.readouterr().err


# ---- what is refused


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "which data? --data …"),
        ("--data ssec", "which endpoint? --endpoint …"),
        ("--data ssec --endpoint http://h", "which model? --model …"),
        ("--data ssec --endpoint http://h --model m", "which workdir? --workdir …"),
        ("ALL --data ssek", "did you mean 'ssec'?"),
        ("ALL --data isear", "isear is not here. Looked for "),
        ("ALL --data digits", "data set 'digits' has no text to ask about"),
        ("ALL --split dev", "split='dev': expected one of train, val, test"),
        ("ALL --endpoint ftp://h/v1", "expected something like https://host/v1"),
        ("ALL --endpoint host:8000", "expected something like https://host/v1"),
        ("ALL --endpoint https://me:word@host/v1", "without password"),
        ("ALL --endpoint https://host/v1#word", "without password and #"),
        ("ALL --endpoint https://host:x/v1?key=word", "its host or port cannot be read"),
        ("ALL --endpoint ftp://host/v1?key=word", "expected something like https://host/v1"),
        ("ALL --endpoint https://host/v1?key=wörd", "after a ? without spaces"),
        ("ALL --key_env NOT_SET_HERE", "key_env='NOT_SET_HERE': expected a variable that is set"),
        ("ALL --key_env MY_KEY", "expected https, as the key would go in clear text; --allow_http_key"),
        ("ALL --key_env BAD_KEY --endpoint https://h", "the key holds characters that no key has"),
        ("ALL --shots 3", "shots=3: expected at most 2, as many training examples as ssec has"),
        ("ALL --shots -1", "shots=-1: expected at least 0"),
        ("ALL --seeds 0,1", "seeds=[0, 1]: expected one, as a zero-shot prompt has no examples"),
        ("ALL --shots 1 --seeds 1,1", "seeds=[1, 1]: expected different whole numbers from 0"),
        ("ALL --num_examples 41", "num_examples=41: expected 0 to 40"),
        ("ALL --concurrency 0", "concurrency=0: expected 1 or more"),
        ("ALL --timeout 0", "timeout=0.0: expected a positive number of seconds"),
        ("ALL --retries -1", "retries=-1: expected 0 or more"),
        ("ALL --seeds a", "seeds='a': expected whole numbers such as 0,1,2"),
        ("ALL --shots 1 --seeds 0.5", "seeds=[0.5]: expected different whole numbers from 0"),
        ("ALL --shots 1 --seeds true", "seeds=[True]: expected different whole numbers from 0"),
        ("ALL --body x", "body='x': expected a JSON object"),
        ("ALL --body []", "body=[]: expected a JSON object"),
        ('ALL --body {"stream":true}', "body: 'stream' is not to be set"),
    ],
)  # fmt: skip
def test_refuses_with_one_line(
    flags: str,
    message: str,
    tweets: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("BAD_KEY", KEY + " \n x")
    everything = f"--data ssec --data_dir {tweets} --endpoint http://gpu.example/v1 --model m "
    everything += f"--workdir {tmp_path}"
    assert command.main(flags.replace("ALL", everything).split(" ") if flags else []) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert KEY not in error
    assert not re.search("w[oö]rd", error.replace("password", ""))


def test_nothing_that_trains_is_imported() -> None:
    script = "import sys; import calib_jax.llm.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "calib_jax.llm" in modules
    for name in ("orbax", "flax", "calib_jax.train", "calib_jax.models", "calib_jax.experiment"):
        assert name not in modules, name


def test_help_and_code_size(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    text = capsys.readouterr().out
    assert "--endpoint" in text
    assert "chat-completions" in text
    assert len(pathlib.Path(command.__file__).read_text().splitlines()) < 100


# ---- the publishers' own files


def test_prompts_of_real_reports(data_dir: pathlib.Path) -> None:
    if not (data_dir / "isear").is_dir():
        pytest.skip("needs isear in CALIB_JAX_DATA")
    settings = llm.Settings("isear", "test", "m", shots=2)
    plans = llm.plan_prompts(settings, (0, 1, 2), data_dir=data_dir)
    assert [len(plan.prompts) for plan in plans] == [1279] * 3
    train = data.load("isear", "train", data_dir)
    for plan in plans:
        assert len(set(plan.examples)) == 12
        assert set(plan.examples) <= set(train.ids.tolist())
        assert all(prompt.count("\nAnswer: ") == 12 for prompt in plan.prompts)
    assert len({plan.examples for plan in plans}) == 3
    assert plans[0].prompts[0].rpartition("Text: ")[0].endswith("with the JSON object.\n\n")
