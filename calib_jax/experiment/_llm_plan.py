"""What a language model is asked about a data set: the prompts, for each seed with other examples."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calib_jax import data
from calib_jax.experiment._llm_prompts import LlmSettings


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
    settings.check(asked)
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
