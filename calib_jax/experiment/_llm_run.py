"""Asking a language model about a data set: what was answered stays, and is judged in the end."""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tqdm

from calib_jax import __version__, report, train
from calib_jax.experiment import _workdir
from calib_jax.experiment._config import differences
from calib_jax.experiment._llm_answers import Answer, parse_answer, parse_answer_leniently
from calib_jax.experiment._llm_chat import (
    Chat,
    NoAnswerError,
    RefusedError,
    Reply,
    UnreachableError,
    ask_all,
)
from calib_jax.experiment._llm_judge import LlmJudgement, judge_answers
from calib_jax.experiment._llm_plan import LlmPlan
from calib_jax.experiment._llm_prompts import LlmSettings, fingerprint
from calib_jax.experiment._llm_report import answers_text, over_seeds, run_record
from calib_jax.experiment._signals import StopRequest

_FAILURES = 5  # examples in a row without an answer: it is not the examples
_LINES = 10.0  # seconds between two lines of progress, where there is no terminal


def run_llm(
    settings: LlmSettings,
    plans: Sequence[LlmPlan],
    chat: Chat,
    workdir: pathlib.Path,
    *,
    concurrency: int = 8,
    give_up: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Asks what has no answer yet, then judges all answers.

    Leaves `settings.json`, `answers/*.jsonl` (a line per answer), `predictions/*.npz`, `results.json`
    and `reliability.png`.

    Args:
      settings: of the plans.
      plans: from `plan_llm`.
      chat: the server.
      workdir: where everything goes; the same settings in the same folder go on.
      concurrency: requests at the same time.
      give_up: count examples that get no answer as malformed, rather than not judge at all. Every example
        is asked about once more, unless the server is gone or refuses; an error only if none is answered.
      say: called with lines for the user.

    Returns:
      The table, to be printed.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: expected 1 or more")
    with _workdir.locked(workdir), StopRequest() as stop:
        _claim(workdir, settings, chat.url)
        for note in plans[0].notes:
            say(note)
        strict, lenient, records = [], [], []
        for plan in plans:
            path = workdir / "answers" / f"seed_{plan.seed}.jsonl"
            rows = _ask(settings, plan, chat, path, concurrency, stop.requested, give_up, say)
            found = [rows.get(int(i)) for i in plan.ids]
            answers = [_answer(row, plan.label_names) for row in found]
            readings = [_answer(row, plan.label_names, parse_answer_leniently) for row in found]
            _workdir.write_npz(
                workdir / "predictions" / f"seed_{plan.seed}.npz",
                ids=plan.ids,
                labels=plan.labels,
                **_arrays(answers),
                **{f"lenient_{key}": array for key, array in _arrays(readings).items()},
            )
            strict.append(judge_answers(plan.name, answers, plan.labels, len(plan.label_names)))
            lenient.append(_judge_again(strict[-1], answers, readings, plan))
            answered = [row for row in found if row is not None]
            records.append(run_record(strict[-1], lenient[-1], plan, answered))
        content: dict[str, Any] = {
            "version": __version__,
            "settings": settings.to_json(),
            "endpoint": chat.url,
        }
        content |= {"num_examples": len(plans[0].ids), "notes": plans[0].notes}
        content |= {"results": records, "over_seeds": over_seeds(strict)}
        content |= {"over_seeds_lenient": over_seeds(lenient)}
        _workdir.write_json(workdir / "results.json", content)
        # Of the lenient readings those that find more.
        more = [b for a, b in zip(strict, lenient, strict=True) if len(b.correct) > len(a.correct)]
        panels = [(j.name, j.confidence, j.correct) for j in strict + more if len(j.confidence)]
        if panels:
            report.plot_reliability(panels).savefig(workdir / "reliability.png", dpi=130)
        return answers_text(settings, strict, lenient)


def _judge_again(
    strict: LlmJudgement, answers: list[Answer], readings: list[Answer], plan: LlmPlan
) -> LlmJudgement:
    """The judgement of the lenient readings, for which nothing is computed if they are the answers."""
    name = f"{plan.name}, lenient"
    if [a.label for a in answers] == [a.label for a in readings]:
        reasons = Counter(a.malformed for a in readings if a.malformed)
        return dataclasses.replace(strict, name=name, malformed=dict(reasons.most_common()))
    return judge_answers(name, readings, plan.labels, len(plan.label_names))


def _arrays(answers: list[Answer]) -> dict[str, np.ndarray]:
    return {
        "prediction": np.array([answer.label for answer in answers], np.int32),
        "confidence": np.array([answer.confidence for answer in answers], np.float32),
    }


def _claim(workdir: pathlib.Path, settings: LlmSettings, url: str) -> None:
    """Writes the settings, or checks that they are the ones the workdir has.

    The endpoint may be another: a server that has moved is still the same model.
    """
    path = workdir / "settings.json"
    new = json.loads(json.dumps(settings.to_json()))
    if path.exists():
        old = json.loads(path.read_text())["settings"]
        found = differences(_in_short(old), _in_short(new), "settings")
        if found:
            raise ValueError(
                f"{workdir} has the answers to other settings; choose another --workdir, or undo:\n  "
                + "\n  ".join(found)
            )
    _workdir.write_json(path, {"settings": new, "endpoint": url, "version": __version__})


def _in_short(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the beginning of each long text, and what tells it from another."""
    return {
        key: f"{value[:40]}… ({fingerprint(value)})"
        if isinstance(value, str) and len(value) > 60
        else value
        for key, value in settings.items()
    }


def _ask(
    settings: LlmSettings,
    plan: LlmPlan,
    chat: Chat,
    path: pathlib.Path,
    concurrency: int,
    should_stop: Callable[[], bool],
    give_up: bool,
    say: Callable[[str], None],
) -> dict[int, dict[str, Any]]:
    """The answers of a plan by id; what the file does not have is asked and written to it."""
    requests = {
        int(i): settings.request(prompt, plan.label_names)
        for i, prompt in zip(plan.ids, plan.prompts, strict=True)
    }
    prints = {i: fingerprint(request) for i, request in requests.items()}
    rows = _read_answers(path, prints)
    todo = [(i, request) for i, request in requests.items() if i not in rows]
    halt, failures, in_a_row, error = threading.Event(), [], 0, ""
    bar = tqdm.tqdm(
        total=len(requests),
        initial=len(requests) - len(todo),
        desc=plan.name,
        unit="answer",
        mininterval=0.1 if sys.stderr.isatty() else _LINES,
        disable=not todo,
    )
    workers = min(concurrency, len(todo))
    malformed = sum(bool(_answer(row, plan.label_names).malformed) for row in rows.values())
    with bar, contextlib.closing(ask_all(chat, todo, workers, halt)) as replies:
        for found in replies:
            if should_stop():
                halt.set()
            if found is None:
                continue
            i, reply = found
            if isinstance(reply, Reply):
                rows[i] = {"id": i, "prompt": prints[i], **reply._asdict()}
                _append(path, rows[i])
                malformed += bool(_answer(rows[i], plan.label_names).malformed)
                in_a_row = 0
                bar.set_postfix(malformed=malformed, refresh=False)
                bar.update()
                continue
            if isinstance(reply, RefusedError):
                error = error or str(reply)
            elif not isinstance(reply, NoAnswerError):
                raise reply  # not the server's doing
            elif not halt.is_set():  # else it was not asked to the end
                failures.append(str(reply))
                # With give_up only a server that is gone ends the run: to others the next example goes.
                counts = not give_up or isinstance(reply, UnreachableError)
                in_a_row = in_a_row + 1 if counts else 0
                if in_a_row == _FAILURES:
                    error = error or f"{reply}; {_FAILURES} examples in a row got no answer"
            if error:
                halt.set()
    num_answers = sum(i in rows for i in requests)
    here = f"{num_answers} of {len(requests)} answers are in {path}"
    if error and not (give_up and num_answers):
        hint = "; --give_up counts the others as malformed" if num_answers else ""
        raise ValueError(f"{error} ({here}{hint})")
    if should_stop():
        raise train.Stopped(f"stopped: {here}")
    if failures and not give_up:
        raise ValueError(
            f"{len(failures)} examples got no answer, the last: {failures[-1]} ({here}); the same "
            "command asks again, and with --give_up counts them as malformed"
        )
    if failures and not num_answers:
        raise ValueError(f"no example got an answer, the last: {failures[-1]} ({here})")
    if num_answers < len(requests):
        say(f"{plan.name}: gave up; {here}; the last: {error or failures[-1]}")
    return rows


def _read_answers(path: pathlib.Path, prints: dict[int, str]) -> dict[int, dict[str, Any]]:
    """The answers of a file by id; a last line that was cut off is taken from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    rows = {}
    for number, line in enumerate(whole.split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            i, found = int(row["id"]), row["prompt"]
            Reply(*(row[key] for key in Reply._fields))
        except (ValueError, LookupError, TypeError):
            raise ValueError(
                f"{path}:{number}: expected an answer; without that line it is asked for again"
            ) from None
        if prints.get(i, found) != found:
            raise ValueError(
                f"{path}:{number}: example {i} was asked about in other words: have the data changed? "
                "Choose another --workdir"
            )
        rows[i] = row
    return rows


def _append(path: pathlib.Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _answer(
    row: dict[str, Any] | None,
    label_names: tuple[str, ...],
    parse: Callable[[Any, str, Sequence[str]], Answer] = parse_answer,
) -> Answer:
    if row is None:
        return Answer(-1, float("nan"), "no answer")
    return parse(row["content"], row["finish"], label_names)
