"""Ask a large language model about a data set and judge what it says.

    python -m calib_jax.llm --data isear --shots 2 --dry_run
    python -m calib_jax.llm --data isear --endpoint http://127.0.0.1:8000/v1 --model M --workdir runs/M
    python -m calib_jax.llm … --shots 2 --seeds 0,1,2 --key_env MY_KEY

The endpoint is any server with OpenAI's chat-completions interface. The model is asked for a class and
its confidence as JSON, {"prediction": …, "confidence": …}; whatever else it writes is malformed: wrong
in accuracy and F1, and not in the calibration errors, as it states no confidence. A lenient reading is
shown too if it finds more. The same command again goes on where it stopped, however it stopped: what was
answered is not asked again. Prints a table and writes results.json, reliability.png, predictions/*.npz
and answers/*.jsonl. docs/llm.md tells more, such as the placeholders of --prompt.
"""

import argparse
import json
import pathlib
import sys
from typing import Any

from calib_jax import experiment, train

_FLAGS: tuple[tuple[str, Any, Any, str], ...] = (  # name, type, default, help
    ("data", str, "", "name of a set with text; calib_jax.main --list shows all sets"),
    ("split", str, "test", "train, val or test"),
    ("data_dir", str, None, "where the sets are; else $CALIB_JAX_DATA"),
    ("num_examples", int, 0, "ask about a random part of so many; 0: about all"),
    ("endpoint", str, "", "of the server, such as https://host/v1"),
    ("model", str, "", "as the server calls it"),
    ("key_env", str, "", "environment variable that holds the API key, if there is one"),
    ("allow_http_key", bool, False, "send it over plain http to another machine too"),
    ("workdir", str, "", "folder for everything this leaves"),
    ("shots", int, 0, "training examples per class in the prompt"),
    ("seeds", str, "0", "of these examples; 0,1,2 gives three prompts"),
    ("task", str, "", "the question, if the one for the set will not do"),
    ("prompt", str, "", "file with a prompt of your own, with placeholders such as {text}"),
    ("schema", bool, False, "send response_format: the server lets only such answers pass"),
    ("max_chars", int, 8000, "of a text; longer ones are cut"),
    ("temperature", float, 0.0, "of the model's sampling"),
    ("max_tokens", int, 100, "of an answer"),
    ("body", str, "{}", "more fields of the request, as JSON; null leaves a field out"),
    ("concurrency", int, 8, "requests at the same time"),
    ("timeout", float, 60.0, "seconds for a response"),
    ("retries", int, 6, "of what may pass: 429, 5xx, timeouts, no connection"),
    ("give_up", bool, False, "count what gets no answer as malformed, and judge"),
    ("dry_run", bool, False, "show the number of requests and the first prompt, then stop"),
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m calib_jax.llm", None, __doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, kind, default, text in _FLAGS:
        typed = {"action": "store_true"} if kind is bool else {"type": kind, "metavar": "X"}
        shown = f"{text} (default {default})" if default else text
        parser.add_argument(f"--{name}", default=default, help=shown, **typed)
    try:
        print(_run(parser.parse_args(argv)))
        return 0
    except train.Stopped as stopped:
        print(f"{stopped}. The same command goes on from there.", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> str:
    def given(*names: str) -> dict[str, Any]:
        return {name: getattr(arguments, name) for name in names}

    for name in ("data",) if arguments.dry_run else ("data", "endpoint", "model", "workdir"):
        if not getattr(arguments, name):
            raise ValueError(f"which {name}? --{name} … (--help shows all flags)")
    arguments.seeds = _read("seeds", arguments.seeds, "[{}]", "whole numbers such as 0,1,2")
    arguments.body = _read("body", arguments.body, "{}", "a JSON object")
    arguments.template = experiment.read_template(arguments.prompt)
    settings = experiment.LlmSettings(**given(*experiment.LlmSettings.__dataclass_fields__))
    plan = given("seeds", "num_examples", "data_dir")
    if arguments.dry_run:
        return experiment.describe_llm(experiment.plan_llm(settings, **plan))
    how = given("timeout", "retries", "allow_http_key")
    chat = experiment.Chat(arguments.endpoint, experiment.read_key(arguments.key_env), **how)
    plans = experiment.plan_llm(settings, **plan)
    experiment.keep_compiled()
    workdir, how = pathlib.Path(arguments.workdir), given("concurrency", "give_up")
    table = experiment.run_llm(settings, plans, chat, workdir, **how)
    return f"{table}\n\nwritten: {workdir}/results.json, reliability.png, predictions/, answers/"


def _read(name: str, value: str, form: str, expected: str) -> Any:
    try:
        return json.loads(form.format(value))
    except ValueError:
        raise ValueError(f"{name}={value!r}: expected {expected}") from None


if __name__ == "__main__":
    sys.exit(main())
