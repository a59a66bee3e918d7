"""Requests of one plan: answers already on disk are kept, all others are asked for."""

import contextlib
import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Sequence

import tqdm

from calib_jax._signals import Stopped
from calib_jax.llm._answers import (
    Answer,
    malformed_answer,
    parse_answer,
    parse_answer_leniently,
)
from calib_jax.llm._client import (
    ChatClient,
    JsonObject,
    NoAnswerError,
    RefusedError,
    Reply,
    UnreachableError,
    ask_all,
)
from calib_jax.llm._logprobs import answer_from_scores, score_labels
from calib_jax.llm._plan import PromptPlan
from calib_jax.llm._prompts import Settings, fingerprint

Row = JsonObject  # a line of the answers file
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
    replies = _Replies(settings, plan, path, give_up)
    _ask_missing(replies, client, concurrency, should_stop)
    failures, error, num_requests = replies.failures, replies.error, len(replies.requests)
    num_answers = sum(i in replies.rows for i in replies.requests)
    progress = f"{num_answers} of {num_requests} answers are in {path}"
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
    if num_answers < num_requests:
        log(f"{plan.name}: gave up; {progress}; the last: {error or failures[-1]}")
    return replies.rows


def _ask_missing(
    replies: "_Replies",
    client: ChatClient,
    concurrency: int,
    should_stop: Callable[[], bool],
) -> None:
    """Send the requests without an answer and add what the server replies."""
    missing = [(i, request) for i, request in replies.requests.items() if i not in replies.rows]
    halt = threading.Event()
    bar = tqdm.tqdm(
        total=len(replies.requests),
        initial=len(replies.requests) - len(missing),
        desc=replies.plan.name,
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
                replies.add_answer(i, reply)
                bar.set_postfix(malformed=replies.num_malformed, refresh=False)
                bar.update()
            elif isinstance(reply, RefusedError):
                replies.error = replies.error or str(reply)
            elif not isinstance(reply, NoAnswerError):
                raise reply  # a bug here, not a failure of the server
            elif not halt.is_set():  # else its retries were cut short
                replies.add_failure(reply)
            if replies.error:
                halt.set()


class _Replies:
    """The replies to the requests of a plan, as they arrive.

    Attributes:
      settings: Settings of the plan.
      plan: Plan.
      requests: Bodies of the requests by id.
      path: File with one line per answer.
      give_up: Whether examples may remain without an answer.
      rows: Answers by id, as in the file.
      num_malformed: Number of malformed ones.
      failures: Reasons why requests got no answer.
      error: Reason why there is no use in asking on; empty if there is none.
    """

    def __init__(
        self, settings: Settings, plan: PromptPlan, path: pathlib.Path, give_up: bool
    ) -> None:
        self.settings, self.plan, self.path, self.give_up = settings, plan, path, give_up
        self.requests = {
            int(i): settings.request(prompt, plan.label_names)
            for i, prompt in zip(plan.ids, plan.prompts, strict=True)
        }
        fingerprints = {i: fingerprint(request) for i, request in self.requests.items()}
        self.rows = _read_rows(path, fingerprints)
        self.num_malformed = sum(map(self._is_malformed, self.rows.values()))
        self.failures: list[str] = []
        self.error = ""
        self._failures_in_a_row = 0

    def add_answer(self, i: int, reply: Reply) -> None:
        """Add an answer to the rows and to the file."""
        if self.settings.uses_logprobs and not self.rows and reply.top_logprobs is None:
            # The first reply shows whether the server supports them.
            self.error = (
                "the server's reply has no top_logprobs: expected a server that returns them, or "
                "--confidence stated"
            )
            return
        row = {"id": i, "prompt": fingerprint(self.requests[i]), **reply.to_json()}
        self.rows[i] = row
        _append_row(self.path, row)
        self.num_malformed += self._is_malformed(row)
        self._failures_in_a_row = 0

    def add_failure(self, failure: NoAnswerError) -> None:
        """Count a request without an answer; several in a row are an error."""
        self.failures.append(str(failure))
        # With give_up only an unreachable server ends the run: others get the next example.
        if self.give_up and not isinstance(failure, UnreachableError):
            self._failures_in_a_row = 0
            return
        self._failures_in_a_row += 1
        if self._failures_in_a_row == _MAX_FAILURES:
            message = f"{failure}; {_MAX_FAILURES} examples in a row got no answer"
            self.error = self.error or message

    def _is_malformed(self, row: Row) -> bool:
        return bool(read_answer(row, self.settings, self.plan.label_names).malformed)


def read_answer(
    row: Row | None, settings: Settings, label_names: Sequence[str], *, lenient: bool = False
) -> Answer:
    """Return the answer in a row of the answers file.

    Args:
      row: Row; `None` for an example without an answer.
      settings: Settings of the run.
      label_names: Names of the classes.
      lenient: Whether to read stated confidences leniently.
    """
    if row is None:
        return malformed_answer("no answer")
    if settings.uses_logprobs:
        return answer_from_scores(score_labels(row.get("top_logprobs"), len(label_names)))
    parse = parse_answer_leniently if lenient else parse_answer
    return parse(row["content"], row["finish"], label_names)


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
            Reply(row["content"], row["finish"], row["model"], row["tokens"])
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
