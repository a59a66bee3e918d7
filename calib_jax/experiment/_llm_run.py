"""Asking a language model about a data set: what was answered stays, and is judged in the end."""

import contextlib
import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm

from calib_jax import __version__, data, report, train
from calib_jax.experiment import _workdir
from calib_jax.experiment._config import differences
from calib_jax.experiment._llm_answers import Answer, parse_answer
from calib_jax.experiment._llm_chat import Chat, NoAnswerError, RefusedError, Reply, ask_all
from calib_jax.experiment._llm_judge import LlmJudgement, judge_answers
from calib_jax.experiment._llm_prompts import LlmSettings, fingerprint
from calib_jax.experiment._signals import StopRequest

# As the tables of text sets call them; all in percent.
_IN_SHORT = {"accuracy": "accuracy", "f1_macro": "F1 macro", "f1_weighted": "F1 weighted"}
_IN_SHORT["ece_10"] = "ECE-10"
_FAILURES = 5  # examples in a row without an answer: it is not the examples
_LINES = 10.0  # seconds between two lines of progress, where there is no terminal


class LlmPlan(NamedTuple):
    """What is asked with one seed.

    Attributes:
      name: of the prompt.
      seed: that drew its examples.
      examples: ids of those, in the training split.
      ids: of the examples asked about.
      labels: of these.
      label_names: one per class.
      prompts: one per example asked about.
      notes: about the data, one sentence each.
    """

    name: str
    seed: int
    examples: tuple[int, ...]
    ids: np.ndarray
    labels: np.ndarray
    label_names: tuple[str, ...]
    prompts: list[str]
    notes: tuple[str, ...]


def plan_llm(
    settings: LlmSettings,
    seeds: Sequence[int] = (0,),
    *,
    num_examples: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
) -> list[LlmPlan]:
    """Builds the prompts, for each seed with other examples.

    Args:
      settings: what is asked, of which model.
      seeds: of the examples.
      num_examples: ask about a random part of so many, always the same; 0: about all.
      data_dir: as in `data.load`.
    """
    whole = seeds and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not whole or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={list(seeds)}: expected different whole numbers from 0")
    if len(seeds) > 1 and not settings.shots:
        raise ValueError(
            f"seeds={list(seeds)}: expected one, as a zero-shot prompt has no examples"
        )
    asked = data.load(settings.data, settings.split, data_dir)
    if "text" not in asked.inputs:
        raise ValueError(f"data set {settings.data!r} has no text to ask about")
    notes = tuple(f"{asked.split}: {note}" for note in asked.notes)
    if num_cut := settings.num_cut(asked):
        notes += (f"{num_cut} texts are longer than {settings.max_chars} characters: cut",)
    if not 0 <= num_examples <= len(asked):
        raise ValueError(f"num_examples={num_examples}: expected 0 to {len(asked)}")
    positions = np.arange(len(asked))
    if num_examples:
        positions = np.sort(np.random.default_rng(0).permutation(positions)[:num_examples])
    few = data.load(settings.data, "train", data_dir) if settings.shots else None
    plans = []
    for seed in seeds:
        examples, ids = "", np.zeros(0, np.int32)
        if few is not None:
            drawn = settings.draw_examples(few, asked, seed)
            examples, ids = settings.answered_examples(few, drawn), few.ids[drawn]
        part = asked.take(positions)
        plans.append(
            LlmPlan(
                name=f"seed {seed}" if few else "zero-shot",
                seed=seed,
                examples=tuple(ids.tolist()),
                ids=part.ids,
                labels=part.labels,
                label_names=part.label_names,
                prompts=[settings.prompt(part, i, examples) for i in range(len(part))],
                notes=notes,
            )
        )
    return plans


def describe_llm(plans: Sequence[LlmPlan]) -> str:
    """What would be asked: how much of it, and the first prompt of all."""
    size = sum(len(prompt) for plan in plans for prompt in plan.prompts)
    number = sum(len(plan.prompts) for plan in plans)
    lines = [*plans[0].notes, f"{number} requests, {size} characters in all; the first:", ""]
    return "\n".join([*lines, plans[0].prompts[0]])


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
      give_up: count examples that get no answer as malformed, rather than not judge at all.
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
        judgements, records = [], []
        for plan in plans:
            path = workdir / "answers" / f"seed_{plan.seed}.jsonl"
            rows = _ask(settings, plan, chat, path, concurrency, stop.requested, give_up)
            answers = [_answer(rows.get(int(i)), plan.label_names) for i in plan.ids]
            _workdir.write_npz(
                workdir / "predictions" / f"seed_{plan.seed}.npz",
                ids=plan.ids,
                labels=plan.labels,
                prediction=np.array([answer.label for answer in answers], np.int32),
                confidence=np.array([answer.confidence for answer in answers], np.float32),
            )
            judgement = judge_answers(plan.name, answers, plan.labels, len(plan.label_names))
            judgements.append(judgement)
            records.append(_record(judgement, plan, [rows[int(i)] for i in plan.ids if i in rows]))
        spread = _spread(judgements)
        content: dict[str, Any] = {
            "version": __version__,
            "settings": settings.to_json(),
            "endpoint": chat.url,
        }
        content |= {"num_examples": len(plans[0].ids), "notes": plans[0].notes}
        content |= {"results": records, "over_seeds": spread}
        _workdir.write_json(workdir / "results.json", content)
        panels = [(j.name, j.confidence, j.correct) for j in judgements if len(j.confidence)]
        if panels:
            report.plot_reliability(panels).savefig(workdir / "reliability.png", dpi=130)
        return _table(settings, judgements, spread)


def _claim(workdir: pathlib.Path, settings: LlmSettings, url: str) -> None:
    """Writes the settings, or checks that they are the ones the workdir has.

    The endpoint may be another: a server that has moved is still the same model.
    """
    path = workdir / "settings.json"
    new = json.loads(json.dumps(settings.to_json()))
    if path.exists():
        found = differences(json.loads(path.read_text())["settings"], new, "settings")
        if found:
            raise ValueError(
                f"{workdir} has the answers to other settings; choose another --workdir, or undo:\n  "
                + "\n  ".join(found)
            )
    _workdir.write_json(path, {"settings": new, "endpoint": url, "version": __version__})


def _ask(
    settings: LlmSettings,
    plan: LlmPlan,
    chat: Chat,
    path: pathlib.Path,
    concurrency: int,
    should_stop: Callable[[], bool],
    give_up: bool,
) -> dict[int, dict[str, Any]]:
    """The answers of a plan by id; what the file does not have is asked and written to it."""
    requests = {int(i): settings.request(p) for i, p in zip(plan.ids, plan.prompts, strict=True)}
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
                in_a_row += 1
                if in_a_row == _FAILURES:
                    error = error or f"{reply}; {_FAILURES} examples in a row got no answer"
            if error:
                halt.set()
    here = f"{sum(i in rows for i in requests)} of {len(requests)} answers are in {path}"
    if error:
        raise ValueError(f"{error} ({here})")
    if should_stop():
        raise train.Stopped(f"stopped: {here}")
    if failures and not give_up:
        raise ValueError(
            f"{len(failures)} examples got no answer, the last: {failures[-1]} ({here}); the same "
            "command asks again, and with --give_up counts them as malformed"
        )
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


def _answer(row: dict[str, Any] | None, label_names: tuple[str, ...]) -> Answer:
    if row is None:
        return Answer(-1, float("nan"), "no answer")
    return parse_answer(row["content"], row["finish"], label_names)


def _record(judgement: LlmJudgement, plan: LlmPlan, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For results.json."""
    models = sorted({row["model"] for row in rows})
    tokens = [sum(row["tokens"][k] for row in rows) for k in (0, 1)]
    return judgement.to_json() | {
        "seed": plan.seed,
        "examples": plan.examples,
        "answered_by": models,
        "tokens": {"prompt": tokens[0], "answer": tokens[1]},
    }


def _spread(judgements: list[LlmJudgement]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation (of a sample) of each metric over the seeds."""
    if len(judgements) < 2:
        return {}
    keys = [key for key in judgements[0].metrics if all(key in j.metrics for j in judgements)]
    values = {key: [j.metrics[key] for j in judgements] for key in keys}
    return {key: (float(np.mean(v)), float(np.std(v, ddof=1))) for key, v in values.items()}


def _table(
    settings: LlmSettings,
    judgements: list[LlmJudgement],
    spread: dict[str, tuple[float, float]],
) -> str:
    columns = [(j.name, j.metrics, j.intervals) for j in judgements]
    shots = f"{settings.shots} examples per class" if settings.shots else "no examples"
    lines = [f"{settings.model} on {settings.data} {settings.split}, {shots}"]
    lines += ["", report.metric_table(columns, starred=False), "[95 % bootstrap interval]"]
    for j in judgements:
        if j.malformed:
            number = sum(j.malformed.values())
            reasons = ", ".join(f"{reason} {n}" for reason, n in j.malformed.items())
            lines.append(f"{j.name}: {number} malformed answers ({reasons})")
            found = ((_IN_SHORT[key], value) for key, value in j.well_formed.items())
            alone = ", ".join(f"{title} {100 * value:.2f} %" for title, value in found)
            lines.append(f"{j.name}: of the well-formed answers alone: {alone or 'none'}")
    if any(j.malformed for j in judgements):
        lines.append(
            "malformed answers are wrong in accuracy and F1; they state no confidence, so all other "
            "rows are of the well-formed ones"
        )
    if spread:
        shown = [(spread[key], title) for key, title in _IN_SHORT.items() if key in spread]
        means = ", ".join(f"{t} {100 * mean:.2f}±{100 * std:.2f}" for (mean, std), t in shown)
        lines.append(f"over {len(judgements)} seeds, %: {means}")
    return "\n".join(lines)
