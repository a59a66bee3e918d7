"""Ask a large language model about a data set and evaluate its answers.

    python -m calib_jax.llm --data isear --shots 2 --dry_run
    python -m calib_jax.llm --data isear --endpoint http://127.0.0.1:8000/v1 --model M --workdir runs/M
    python -m calib_jax.llm … --shots 2 --seeds 0,1,2 --key_env MY_KEY

The endpoint is any server with OpenAI's chat-completions interface. The model is asked for a class and
its confidence as JSON; all other answers are malformed: wrong in accuracy and F1, and left out of
calibration errors. The same command again resumes, however the run ended. Writes results.json,
reliability.png, predictions/*.npz and answers/*.jsonl; see docs/llm.md.
"""

import argparse
import json
import pathlib
import sys
from typing import Any

from calib_jax import llm
from calib_jax._signals import Stopped
from calib_jax._startup import keep_compiled

_FLAGS: tuple[tuple[str, type, object, str], ...] = (  # name, type, default, help
    ("data", str, "", "name of a set with text; calib_jax.main --list shows all sets"),
    ("split", str, "test", "train, val or test"),
    ("data_dir", str, None, "folder with the data sets; else $CALIB_JAX_DATA"),
    ("num_examples", int, 0, "number of examples to ask about, a random subset; 0: all"),
    ("endpoint", str, "", "URL of the server, such as https://host/v1"),
    ("model", str, "", "name of the model on the server"),
    ("key_env", str, "", "environment variable that holds the API key, if there is one"),
    ("allow_http_key", bool, False, "send it over plain http to another machine too"),
    ("workdir", str, "", "folder for all results"),
    ("shots", int, 0, "training examples per class in the prompt"),
    ("seeds", str, "0", "seeds that draw these examples; 0,1,2 gives three prompts"),
    ("task", str, "", "question to ask, instead of the data set's default"),
    ("prompt", str, "", "file with a custom prompt, with placeholders such as {text}"),
    ("confidence", str, "stated", "stated (in the answer) or logprobs (of the label letters)"),
    ("schema", bool, False, "send response_format: the server lets only such answers pass"),
    ("max_chars", int, 8000, "longest text, in characters; longer ones are truncated"),
    ("temperature", float, 0.0, "temperature of the model's sampling"),
    ("max_tokens", int, 100, "longest answer, in tokens"),
    ("body", str, "{}", "more fields of the request, as JSON; null leaves a field out"),
    ("concurrency", int, 8, "requests at the same time"),
    ("timeout", float, 60.0, "seconds to wait for a response"),
    ("retries", int, 6, "retries of what may pass: 429, 5xx, timeouts, no connection"),
    ("give_up", bool, False, "count examples without an answer as malformed, and evaluate"),
    ("dry_run", bool, False, "show the number of requests and the first prompt, then stop"),
)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser("python -m calib_jax.llm", None, __doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, kind, default, text in _FLAGS:
        typed = {"action": "store_true"} if kind is bool else {"type": kind, "metavar": "X"}
        text += f" (default {default})" if default else ""
        parser.add_argument(f"--{name}", default=default, help=text, **typed)
    try:
        print(_run(parser.parse_args(argv)))
    except Stopped as stopped:
        print(f"{stopped}. The same command goes on from there.", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(arguments: argparse.Namespace) -> str:
    def given(*names: str) -> dict[str, Any]:
        return {name: getattr(arguments, name) for name in names}

    for name in ("data",) if arguments.dry_run else ("data", "endpoint", "model", "workdir"):
        if not getattr(arguments, name):
            raise ValueError(f"which {name}? --{name} … (--help shows all flags)")
    arguments.seeds = _read("seeds", arguments.seeds, "[{}]", "whole numbers such as 0,1,2")
    arguments.body = _read("body", arguments.body, "{}", "a JSON object")
    arguments.template = llm.read_template(arguments.prompt)
    settings = llm.Settings(**given(*llm.Settings.__dataclass_fields__))
    selection = given("seeds", "num_examples", "data_dir")
    if arguments.dry_run:
        return llm.describe(llm.plan_prompts(settings, **selection))
    options, run = given("timeout", "retries", "allow_http_key"), given("concurrency", "give_up")
    client = llm.ChatClient(arguments.endpoint, llm.read_key(arguments.key_env), **options)
    plans = llm.plan_prompts(settings, **selection)
    keep_compiled()
    return llm.run(settings, plans, client, pathlib.Path(arguments.workdir), **run)


def _read(name: str, value: str, form: str, expected: str) -> Any:
    try:
        return json.loads(form.format(value))
    except ValueError:
        raise ValueError(f"{name}={value!r}: expected {expected}") from None


if __name__ == "__main__":
    sys.exit(main())
