"""Tables and records of a language model's answers, read strictly and leniently."""

from collections.abc import Sequence

import numpy as np

from calib_jax import report
from calib_jax.llm._ask import Row
from calib_jax.llm._client import JsonObject
from calib_jax.llm._evaluate import AnswerEvaluation
from calib_jax.llm._plan import PromptPlan
from calib_jax.llm._prompts import Settings
from calib_jax.metrics import METRICS

_OVER_SEEDS = ("accuracy", "f1_macro", "f1_weighted", "ece_10")  # as in the tables of text sets


def prompt_record(
    strict: AnswerEvaluation,
    lenient: AnswerEvaluation,
    plan: PromptPlan,
    rows: Sequence[Row],
) -> JsonObject:
    """Return the entry of results.json for one prompt: the strict reading, and in it the lenient one.

    Args:
      strict: Evaluation of the answers read strictly.
      lenient: Evaluation of the answers read leniently.
      plan: Plan of the prompt.
      rows: Lines of the answers file.
    """
    tokens = [sum(row["tokens"][k] for row in rows) for k in (0, 1)]
    return strict.to_json() | {
        "lenient": lenient.to_json(),
        "seed": plan.seed,
        "examples": plan.examples,
        "answered_by": sorted({row["model"] for row in rows}),
        "tokens": {"prompt": tokens[0], "answer": tokens[1]},
    }


def over_seeds(evaluations: Sequence[AnswerEvaluation]) -> dict[str, tuple[float, float]]:
    """Return mean and sample standard deviation of each metric over the seeds."""
    if len(evaluations) < 2:
        return {}
    keys = [key for key in evaluations[0].metrics if all(key in e.metrics for e in evaluations)]
    values = {key: [e.metrics[key] for e in evaluations] for key in keys}
    return {key: (float(np.mean(v)), float(np.std(v, ddof=1))) for key, v in values.items()}


def answers_text(
    settings: Settings, strict: Sequence[AnswerEvaluation], lenient: Sequence[AnswerEvaluation]
) -> str:
    """Return the tables: of the strict reading, and of the lenient one if it finds other answers.

    Args:
      settings: Settings of the run.
      strict: Evaluations of the answers read strictly, one per prompt.
      lenient: Evaluations of the answers read leniently, likewise.
    """
    shots = f"{settings.shots} examples per class" if settings.shots else "no examples"
    prompt = ", a prompt from a file" if settings.template else ""
    lines = [f"{settings.model} on {settings.data} {settings.split}, {shots}{prompt}", ""]
    lines += _table(strict)
    if settings.uses_logprobs:
        for e in strict:
            mean, largest = 100 * e.outside_mass["mean"], 100 * e.outside_mass["max"]
            lines.append(
                f"{e.name}: outside the label letters {mean:.2f} % of the probability on average, "
                f"at most {largest:.2f} %; confidences are renormalized"
            )
    if any(e.malformed for e in strict):
        counts = [sum(sum(e.malformed.values()) for e in es) for es in (strict, lenient)]
        lines.append(
            "malformed answers are wrong in accuracy and F1; they state no confidence, so all other "
            "rows are of the well-formed ones"
        )
        if settings.uses_logprobs:
            return "\n".join(lines)  # nothing to be read leniently
        if counts[0] == counts[1]:
            lines.append("a lenient reading finds no more answers")
        else:
            lines += ["", f"read leniently: {counts[1]} malformed answers, not {counts[0]}", ""]
            lines += _table(lenient)
    return "\n".join(lines)


def _table(evaluations: Sequence[AnswerEvaluation]) -> list[str]:
    columns = [(e.name, e.metrics, e.intervals) for e in evaluations]
    lines = [report.metric_table(columns, starred=False), "[95 % bootstrap interval]"]
    for evaluation in evaluations:
        if evaluation.malformed:
            name, reasons = evaluation.name, evaluation.malformed
            by_reason = ", ".join(f"{reason} {n}" for reason, n in reasons.items())
            lines.append(f"{name}: {sum(reasons.values())} malformed answers ({by_reason})")
            shown = ", ".join(
                f"{METRICS[key].short} {100 * value:.2f} %"
                for key, value in evaluation.well_formed.items()
            )
            lines.append(f"{name}: of the well-formed answers alone: {shown or 'none'}")
    spread = over_seeds(evaluations)
    if spread:
        means = []
        for key in _OVER_SEEDS:
            if key in spread:
                mean, std = spread[key]
                means.append(f"{METRICS[key].short} {100 * mean:.2f}±{100 * std:.2f}")
        lines.append(f"over {len(evaluations)} seeds, %: {', '.join(means)}")
    return lines
