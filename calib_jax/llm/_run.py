"""A run: ask a language model about a data set, keep its answers, evaluate them."""

import dataclasses
import json
import pathlib
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from calib_jax import __version__, report
from calib_jax._hints import differences
from calib_jax._io import write_json, write_npz
from calib_jax._locks import lock_folder
from calib_jax._signals import StopRequest
from calib_jax.llm._answers import Answer
from calib_jax.llm._ask import Row, ask_plan, read_answer
from calib_jax.llm._client import ChatClient, JsonObject
from calib_jax.llm._evaluate import AnswerEvaluation, evaluate_answers
from calib_jax.llm._logprobs import score_labels
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
            strict_answers, lenient_answers = (
                [
                    read_answer(row, settings, plan.label_names, lenient=is_lenient)
                    for row in ordered
                ]
                for is_lenient in (False, True)
            )
            scores = _label_scores(ordered, plan) if settings.uses_logprobs else {}
            write_npz(
                workdir / "predictions" / f"seed_{plan.seed}.npz",
                ids=plan.ids,
                labels=plan.labels,
                **_arrays(strict_answers),
                **{f"lenient_{key}": array for key, array in _arrays(lenient_answers).items()},
                **scores,
            )
            evaluation = _evaluate(strict_answers, scores, plan)
            strict.append(evaluation)
            lenient.append(_evaluate_lenient(evaluation, strict_answers, lenient_answers, plan))
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


def _label_scores(rows: Sequence[Row | None], plan: PromptPlan) -> dict[str, np.ndarray]:
    """Return the labels' probabilities `[n, num_classes]` and the probability outside `[n]`.

    Those of an example without a reply are NaN.
    """
    num_classes = len(plan.label_names)
    probs = np.full((len(rows), num_classes), np.nan, np.float32)
    outside = np.full(len(rows), np.nan, np.float32)
    for i, row in enumerate(rows):
        if row is not None:
            probs[i], outside[i] = score_labels(row.get("top_logprobs"), num_classes)
    return {"probs": probs, "outside_mass": outside}


def _evaluate(
    answers: list[Answer], scores: dict[str, np.ndarray], plan: PromptPlan
) -> AnswerEvaluation:
    """Evaluate the answers, and with log-probabilities the probability outside the labels."""
    evaluation = evaluate_answers(plan.name, answers, plan.labels, len(plan.label_names))
    if not scores:
        return evaluation
    outside = scores["outside_mass"]
    mean, largest = float(np.nanmean(outside)), float(np.nanmax(outside))
    return dataclasses.replace(evaluation, outside_mass={"mean": mean, "max": largest})


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


def _abbreviate(settings: JsonObject) -> JsonObject:
    """Return the settings with long texts replaced by their beginning and a fingerprint."""
    return {
        key: f"{value[:40]}… ({fingerprint(value)})"
        if isinstance(value, str) and len(value) > 60
        else value
        for key, value in settings.items()
    }
