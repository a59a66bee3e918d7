"""Requests of one plan: answers already on disk are kept, all others are asked for."""

import contextlib
import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import tqdm

from calib_jax._signals import Stopped
from calib_jax.llm._answers import parse_answer
from calib_jax.llm._client import (
    ChatClient,
    NoAnswerError,
    RefusedError,
    Reply,
    UnreachableError,
    ask_all,
)
from calib_jax.llm._plan import PromptPlan
from calib_jax.llm._prompts import Settings, fingerprint

Row = dict[str, Any]
_MAX_FAILURES = 5  # examples in a row without an answer: the examples are not the cause
_LOG_SECONDS = 10.0  # between two lines of progress, where there is no terminal


def ask_plan(
    settings: Settings,
    plan: PromptPlan,
    client: ChatClient,
    path: pathlib.Path,
    *,
    concurrency: int,
    should_stop: Callable[[], bool],
    give_up: bool,
    log: Callable[[str], None],
) -> dict[int, Row]:
    """Return the answers of a plan by id, after asking for those that the file does not have.

    Args:
      settings: Settings of the plan.
      plan: Prompts to ask.
      client: Client of the server.
      path: File with one line per answer, to which new ones are appended.
      concurrency: Number of requests at the same time.
      should_stop: Function that returns whether to stop after the requests in flight.
      give_up: Whether examples may remain without an answer.
      log: Function called with lines for the user.

    Raises:
      Stopped: If `should_stop` returned true.
      ValueError: If answers are missing without `give_up`, or all of them are.
    """
    requests = {
        int(i): settings.request(prompt, plan.label_names)
        for i, prompt in zip(plan.ids, plan.prompts, strict=True)
    }
    rows = _read_rows(path, {i: fingerprint(request) for i, request in requests.items()})
    failures, error = _ask_missing(
        plan, requests, rows, client, path, concurrency, should_stop, give_up
    )
    num_answers = sum(i in rows for i in requests)
    progress = f"{num_answers} of {len(requests)} answers are in {path}"
    if error and not (give_up and num_answers):
        hint = "; --give_up counts the others as malformed" if num_answers else ""
        raise ValueError(f"{error} ({progress}{hint})")
    if should_stop():
        raise Stopped(f"stopped: {progress}")
    if failures and not give_up:
        raise ValueError(
            f"{len(failures)} examples got no answer, the last: {failures[-1]} ({progress}); the same "
            "command asks again, and with --give_up counts them as malformed"
        )
    if failures and not num_answers:
        raise ValueError(f"no example got an answer, the last: {failures[-1]} ({progress})")
    if num_answers < len(requests):
        log(f"{plan.name}: gave up; {progress}; the last: {error or failures[-1]}")
    return rows


def _ask_missing(
    plan: PromptPlan,
    requests: dict[int, dict[str, Any]],
    rows: dict[int, Row],
    client: ChatClient,
    path: pathlib.Path,
    concurrency: int,
    should_stop: Callable[[], bool],
    give_up: bool,
) -> tuple[list[str], str]:
    """Add new answers to `rows` and to the file; return failures, and the error that ended it all."""
    missing = [(i, request) for i, request in requests.items() if i not in rows]
    num_malformed = sum(_is_malformed(row, plan) for row in rows.values())
    halt, failures, failures_in_a_row, error = threading.Event(), [], 0, ""
    bar = tqdm.tqdm(
        total=len(requests),
        initial=len(requests) - len(missing),
        desc=plan.name,
        unit="answer",
        mininterval=0.1 if sys.stderr.isatty() else _LOG_SECONDS,
        disable=not missing,
    )
    num_threads = min(concurrency, len(missing))
    with bar, contextlib.closing(ask_all(client, missing, num_threads, halt)) as results:
        for result in results:
            if should_stop():
                halt.set()
            if result is None:
                continue
            i, reply = result
            if isinstance(reply, Reply):
                rows[i] = {"id": i, "prompt": fingerprint(requests[i]), **reply._asdict()}
                _append_row(path, rows[i])
                num_malformed += _is_malformed(rows[i], plan)
                failures_in_a_row = 0
                bar.set_postfix(malformed=num_malformed, refresh=False)
                bar.update()
                continue
            if isinstance(reply, RefusedError):
                error = error or str(reply)
            elif not isinstance(reply, NoAnswerError):
                raise reply  # a bug here, not a failure of the server
            elif not halt.is_set():  # else its retries were cut short
                failures.append(str(reply))
                # With give_up only an unreachable server ends the run: others get the next example.
                counts = not give_up or isinstance(reply, UnreachableError)
                failures_in_a_row = failures_in_a_row + 1 if counts else 0
                if failures_in_a_row == _MAX_FAILURES:
                    error = error or f"{reply}; {_MAX_FAILURES} examples in a row got no answer"
            if error:
                halt.set()
    return failures, error


def _is_malformed(row: Row, plan: PromptPlan) -> bool:
    return bool(parse_answer(row["content"], row["finish"], plan.label_names).malformed)


def _read_rows(path: pathlib.Path, fingerprints: dict[int, str]) -> dict[int, Row]:
    """Return the answers of a file by id, after removing a truncated last line from the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    complete = content[: content.rfind(b"\n") + 1]
    if len(complete) < len(content):
        os.truncate(path, len(complete))
    rows = {}
    for number, line in enumerate(complete.split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            i, stored = int(row["id"]), row["prompt"]
            Reply(*(row[key] for key in Reply._fields))
        except (ValueError, LookupError, TypeError):
            raise ValueError(
                f"{path}:{number}: expected an answer; without that line it is asked for again"
            ) from None
        if fingerprints.get(i, stored) != stored:
            raise ValueError(
                f"{path}:{number}: example {i} was asked about in other words: have the data changed? "
                "Choose another --workdir"
            )
        rows[i] = row
    return rows


def _append_row(path: pathlib.Path, row: Row) -> None:
    """Append one line, on disk when this returns: an answer that was paid for is not lost."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())
