"""A run: ask a language model about a data set, keep its answers, evaluate them."""

import dataclasses
import json
import pathlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calib_jax import __version__, report
from calib_jax._hints import differences
from calib_jax._io import write_json, write_npz
from calib_jax._locks import lock_folder
from calib_jax._signals import StopRequest
from calib_jax.llm._answers import Answer, parse_answer, parse_answer_leniently
from calib_jax.llm._ask import Row, ask_plan
from calib_jax.llm._client import ChatClient
from calib_jax.llm._evaluate import AnswerEvaluation, evaluate_answers
from calib_jax.llm._plan import PromptPlan
from calib_jax.llm._prompts import Settings, fingerprint
from calib_jax.llm._report import answers_text, over_seeds, prompt_record


def run(
    settings: Settings,
    plans: Sequence[PromptPlan],
    client: ChatClient,
    workdir: pathlib.Path,
    *,
    concurrency: int = 8,
    give_up: bool = False,
    log: Callable[[str], None] = print,
) -> str:
    """Ask for the answers that are missing, then evaluate all of them.

    Writes `settings.json`, `answers/*.jsonl` (one line per answer), `predictions/*.npz`,
    `results.json` and `reliability.png`.

    Args:
      settings: Settings of the plans.
      plans: Plans from `plan_prompts`.
      client: Client of the server.
      workdir: Folder for all results; the same settings in the same folder resume.
      concurrency: Number of requests at the same time.
      give_up: Whether to count examples that get no answer as malformed, instead of stopping. Each is
        asked about once more, unless the server is gone or refuses; an error only if none is answered.
      log: Function called with lines for the user.

    Returns:
      The table and where the files are, to be printed.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: expected 1 or more")
    with lock_folder(workdir), StopRequest() as stop:
        _claim(workdir, settings, client.url)
        for note in plans[0].notes:
            log(note)
        strict, lenient, records = [], [], []
        for plan in plans:
            rows = ask_plan(
                settings,
                plan,
                client,
                workdir / "answers" / f"seed_{plan.seed}.jsonl",
                concurrency=concurrency,
                should_stop=stop.requested,
                give_up=give_up,
                log=log,
            )
            ordered = [rows.get(int(i)) for i in plan.ids]
            answers = [_parse(row, plan, parse_answer) for row in ordered]
            lenient_answers = [_parse(row, plan, parse_answer_leniently) for row in ordered]
            write_npz(
                workdir / "predictions" / f"seed_{plan.seed}.npz",
                ids=plan.ids,
                labels=plan.labels,
                **_arrays(answers),
                **{f"lenient_{key}": array for key, array in _arrays(lenient_answers).items()},
            )
            num_classes = len(plan.label_names)
            strict.append(evaluate_answers(plan.name, answers, plan.labels, num_classes))
            lenient.append(_evaluate_lenient(strict[-1], answers, lenient_answers, plan))
            answered = [row for row in ordered if row is not None]
            records.append(prompt_record(strict[-1], lenient[-1], plan, answered))
        content = {
            "version": __version__,
            "settings": settings.to_json(),
            "endpoint": client.url,
            "num_examples": len(plans[0].ids),
            "notes": plans[0].notes,
            "results": records,
            "over_seeds": over_seeds(strict),
            "over_seeds_lenient": over_seeds(lenient),
        }
        write_json(workdir / "results.json", content)
        _plot_reliability(workdir / "reliability.png", strict, lenient)
        table = answers_text(settings, strict, lenient)
    return f"{table}\n\nwritten: {workdir}/results.json, reliability.png, predictions/, answers/"


def _plot_reliability(
    path: pathlib.Path, strict: list[AnswerEvaluation], lenient: list[AnswerEvaluation]
) -> None:
    """Plot all strict readings, and the lenient ones that find more answers."""
    more = [b for a, b in zip(strict, lenient, strict=True) if len(b.correct) > len(a.correct)]
    panels = [(e.name, e.confidence, e.correct) for e in strict + more if len(e.confidence)]
    if panels:
        report.plot_reliability(panels).savefig(path, dpi=130)


def _evaluate_lenient(
    strict: AnswerEvaluation,
    answers: list[Answer],
    lenient_answers: list[Answer],
    plan: PromptPlan,
) -> AnswerEvaluation:
    """Evaluate the lenient reading; reuse the strict evaluation where both readings agree."""
    name = f"{plan.name}, lenient"
    if [a.label for a in answers] == [a.label for a in lenient_answers]:
        reasons = Counter(a.malformed for a in lenient_answers if a.malformed)
        return dataclasses.replace(strict, name=name, malformed=dict(reasons.most_common()))
    return evaluate_answers(name, lenient_answers, plan.labels, len(plan.label_names))


def _parse(
    row: Row | None, plan: PromptPlan, parse: Callable[[Any, str, Sequence[str]], Answer]
) -> Answer:
    if row is None:
        return Answer(-1, float("nan"), "no answer")
    return parse(row["content"], row["finish"], plan.label_names)


def _arrays(answers: list[Answer]) -> dict[str, np.ndarray]:
    return {
        "prediction": np.array([answer.label for answer in answers], np.int32),
        "confidence": np.array([answer.confidence for answer in answers], np.float32),
    }


def _claim(workdir: pathlib.Path, settings: Settings, url: str) -> None:
    """Write the settings, or check that they are those of the workdir.

    The endpoint may differ: a server that has moved still serves the same model.
    """
    path = workdir / "settings.json"
    new = json.loads(json.dumps(settings.to_json()))
    if path.exists():
        old = json.loads(path.read_text())["settings"]
        lines = differences(_abbreviate(old), _abbreviate(new), "settings")
        if lines:
            raise ValueError(
                f"{workdir} has the answers to other settings; choose another --workdir, or undo:\n  "
                + "\n  ".join(lines)
            )
    write_json(path, {"settings": new, "endpoint": url, "version": __version__})


def _abbreviate(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with long texts replaced by their beginning and a fingerprint."""
    return {
        key: f"{value[:40]}… ({fingerprint(value)})"
        if isinstance(value, str) and len(value) > 60
        else value
        for key, value in settings.items()
    }
