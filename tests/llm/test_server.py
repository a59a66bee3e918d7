"""`python -m calib_jax.llm` against a server that others wrote: `transformers serve`."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import util
from typing import NamedTuple

import numpy as np
import pytest
from llm.tweets import flags_for, results_of, write_tweets

from calib_jax.llm import __main__ as command

_NEEDED = ("torch", "fastapi", "uvicorn", "openai", "accelerate")
_MISSING = [name for name in _NEEDED if util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(_MISSING),
        reason=f"needs {', '.join(_MISSING)}, of the extra parity, to serve a model",
    ),
]
# Tokens of their own: a bias towards one makes a model of random weights answer.
STRICT = '{"prediction": "joy", "confidence": 0.75}'
LOOSE = "{'prediction': 'Joy', 'confidence': '0.75'}"
_START = 180.0  # seconds


class Server(NamedTuple):
    """A running server.

    Attributes:
      endpoint: to give to the client.
      model: the name that it serves it by.
      tokens: number of each token that is an answer.
    """

    endpoint: str
    model: str
    tokens: dict[str, int]


def _write_model(folder: pathlib.Path) -> dict[str, int]:
    """A language model of random weights whose tokens are bytes and two answers."""
    import tokenizers
    import torch
    import transformers

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", *alphabet])}
    bytewise = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    bytewise.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytewise, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    tokenizer.add_tokens([STRICT, LOOSE])
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return {text: tokenizer.encode(text)[0] for text in (STRICT, LOOSE)}


def _wait_for(url: str, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        try:
            with opener.open(url, timeout=5):
                return
        except urllib.error.URLError:
            time.sleep(0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serve")
    model, log = folder / "model", folder / "log.txt"
    tokens = _write_model(model)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"-m transformers.cli.transformers serve {model} --host 127.0.0.1 --port {port}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *command.split(), "--device", "cpu"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield Server(f"http://127.0.0.1:{port}/v1", str(model), tokens)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write_tweets(tmp_path_factory.mktemp("data"))


def _flags(server: Server, tweets: pathlib.Path, workdir: pathlib.Path, more: str) -> list[str]:
    return [*flags_for(server.endpoint, tweets, workdir, more), "--model", server.model]


def _bias(server: Server, text: str) -> list[str]:
    # The server's own code wants a number with a point.
    return ["--body", json.dumps({"logit_bias": {str(server.tokens[text]): 1000.0}})]


def test_answers_come_through(server: Server, tweets: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # Some servers take a response_format without heeding it, as this one does; the bias decides.
    flags = _flags(server, tweets, tmp_path, "--max_tokens 1 --schema") + _bias(server, STRICT)
    assert command.main([*flags, "--num_examples", "15"]) == 0
    assert command.main(flags) == 0  # goes on
    (result,) = results_of(tmp_path)["results"]
    assert result["malformed"] == {}
    assert result["tokens"]["answer"] == 40
    # A byte is a token, and the prompt is some hundred of them.
    assert 40 * 300 < result["tokens"]["prompt"] < 40 * 1000
    assert len(result["answered_by"]) == 1
    assert result["answered_by"][0].startswith(server.model)
    # Five of 40 express joy, and all answers say so with confidence 0.75.
    np.testing.assert_allclose(result["metrics"]["accuracy"], 5 / 40, atol=1e-6)
    np.testing.assert_allclose(result["metrics"]["ece"], 0.75 - 5 / 40, atol=1e-6)
    lines = (tmp_path / "answers/seed_0.jsonl").read_text().splitlines()
    assert [json.loads(line)["content"] for line in lines] == [STRICT] * 40
    assert {json.loads(line)["finish"] for line in lines} == {"length"}


def test_a_prompt_file_and_a_lenient_reading(
    server: Server, tweets: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    file, workdir = tmp_path / "prompt.txt", tmp_path / "run"
    file.write_text(
        "Which of {numbered_labels}?\n{examples}\n{text} -> {label}\n{end_examples}\n{text} ->"
    )
    flags = _flags(server, tweets, workdir, f"--max_tokens 1 --shots 1 --prompt {file}")
    assert command.main(flags + _bias(server, LOOSE)) == 0
    (result,) = results_of(workdir)["results"]
    assert result["malformed"] == {"cut off at max_tokens": 40}
    assert result["metrics"]["accuracy"] == 0
    assert result["lenient"]["malformed"] == {}
    np.testing.assert_allclose(result["lenient"]["metrics"]["accuracy"], 5 / 40, atol=1e-6)


def test_noise_is_malformed(server: Server, tweets: pathlib.Path, tmp_path: pathlib.Path) -> None:
    flags = _flags(server, tweets, tmp_path, "--max_tokens 8 --num_examples 12")
    assert command.main(flags) == 0
    (result,) = results_of(tmp_path)["results"]
    assert sum(result["malformed"].values()) == 12
    assert sum(result["lenient"]["malformed"].values()) == 12


def test_what_the_server_refuses(
    server: Server,
    tweets: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = _flags(server, tweets, tmp_path / "field", "--num_examples 3 --give_up")
    assert command.main([*flags, "--body", '{"no_such_field": 1}']) == 2
    error = capsys.readouterr().err
    assert "HTTP 422, Unexpected fields in the request: {'no_such_field'} (0 of 3" in error
    elsewhere = flags_for(f"{server.endpoint}/other", tweets, tmp_path / "path")
    assert command.main(elsewhere) == 2
    assert "HTTP 404, Not Found; are endpoint and model right?" in capsys.readouterr().err
