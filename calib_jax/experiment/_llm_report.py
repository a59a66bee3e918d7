"""What is shown and written about the answers of a language model, read strictly and leniently."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calib_jax import report
from calib_jax.experiment._llm_judge import LlmJudgement
from calib_jax.experiment._llm_plan import LlmPlan
from calib_jax.experiment._llm_prompts import LlmSettings

# As the tables of text sets call them; all in percent.
_IN_SHORT = {"accuracy": "accuracy", "f1_macro": "F1 macro", "f1_weighted": "F1 weighted"}
_IN_SHORT["ece_10"] = "ECE-10"


def run_record(
    strict: LlmJudgement, lenient: LlmJudgement, plan: LlmPlan, rows: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what results.json has of one prompt: the strict reading, and in it the lenient one."""
    tokens = [sum(row["tokens"][k] for row in rows) for k in (0, 1)]
    return strict.to_json() | {
        "lenient": lenient.to_json(),
        "seed": plan.seed,
        "examples": plan.examples,
        "answered_by": sorted({row["model"] for row in rows}),
        "tokens": {"prompt": tokens[0], "answer": tokens[1]},
    }


def over_seeds(judgements: Sequence[LlmJudgement]) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation (of a sample) of each metric over the seeds."""
    if len(judgements) < 2:
        return {}
    keys = [key for key in judgements[0].metrics if all(key in j.metrics for j in judgements)]
    values = {key: [j.metrics[key] for j in judgements] for key in keys}
    return {key: (float(np.mean(v)), float(np.std(v, ddof=1))) for key, v in values.items()}


def answers_text(
    settings: LlmSettings, strict: Sequence[LlmJudgement], lenient: Sequence[LlmJudgement]
) -> str:
    """Return the tables: of the strict reading, and of the lenient one if it finds other answers."""
    shots = f"{settings.shots} examples per class" if settings.shots else "no examples"
    prompt = ", a prompt from a file" if settings.template else ""
    lines = [f"{settings.model} on {settings.data} {settings.split}, {shots}{prompt}", ""]
    lines += _table(strict)
    if any(j.malformed for j in strict):
        counts = [sum(sum(j.malformed.values()) for j in js) for js in (strict, lenient)]
        lines.append(
            "malformed answers are wrong in accuracy and F1; they state no confidence, so all other "
            "rows are of the well-formed ones"
        )
        if counts[0] == counts[1]:
            lines.append("a lenient reading finds no more answers")
        else:
            lines += ["", f"read leniently: {counts[1]} malformed answers, not {counts[0]}", ""]
            lines += _table(lenient)
    return "\n".join(lines)


def _table(judgements: Sequence[LlmJudgement]) -> list[str]:
    columns = [(j.name, j.metrics, j.intervals) for j in judgements]
    lines = [report.metric_table(columns, starred=False), "[95 % bootstrap interval]"]
    for j in judgements:
        if j.malformed:
            number = sum(j.malformed.values())
            reasons = ", ".join(f"{reason} {n}" for reason, n in j.malformed.items())
            lines.append(f"{j.name}: {number} malformed answers ({reasons})")
            found = ((_IN_SHORT[key], value) for key, value in j.well_formed.items())
            alone = ", ".join(f"{title} {100 * value:.2f} %" for title, value in found)
            lines.append(f"{j.name}: of the well-formed answers alone: {alone or 'none'}")
    spread = over_seeds(judgements)
    if spread:
        shown = [(spread[key], title) for key, title in _IN_SHORT.items() if key in spread]
        means = ", ".join(f"{t} {100 * mean:.2f}±{100 * std:.2f}" for (mean, std), t in shown)
        lines.append(f"over {len(judgements)} seeds, %: {means}")
    return lines
