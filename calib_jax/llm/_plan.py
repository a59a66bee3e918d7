"""Plans: the prompts about a data set, for each seed with other training examples."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calib_jax import data
from calib_jax.llm._prompts import Settings


class PromptPlan(NamedTuple):
    """All prompts of one seed.

    Attributes:
      name: Name of the prompt in tables.
      seed: Seed that drew its training examples.
      examples: Ids of those, in the training split.
      ids: Ids of the examples to ask about `[n]`.
      labels: Classes of these `[n]`.
      label_names: Names of the classes.
      prompts: One prompt per example to ask about.
      notes: Remarks on the data, one sentence each.
    """

    name: str
    seed: int
    examples: tuple[int, ...]
    ids: np.ndarray
    labels: np.ndarray
    label_names: tuple[str, ...]
    prompts: list[str]
    notes: tuple[str, ...]


def plan_prompts(
    settings: Settings,
    seeds: Sequence[int] = (0,),
    *,
    num_examples: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
) -> list[PromptPlan]:
    """Build the prompts, for each seed with other training examples.

    Args:
      settings: Everything else that the prompts depend on.
      seeds: Seeds that draw the training examples.
      num_examples: Number of examples to ask about, always the same random subset; 0 for all.
      data_dir: Folder with the data sets, as in `data.load`.
    """
    _check_seeds(seeds, settings.shots)
    dataset = data.load(settings.data, settings.split, data_dir)
    settings.check(dataset)
    notes = [f"{dataset.split}: {note}" for note in dataset.notes]
    if num_cut := settings.num_cut(dataset):
        notes.append(f"{num_cut} texts are longer than {settings.max_chars} characters: cut")
    asked = _random_subset(dataset, num_examples)
    train = data.load(settings.data, "train", data_dir) if settings.shots else None
    plans = []
    for seed in seeds:
        examples, example_ids = "", np.zeros(0, np.int32)
        if train is not None:
            drawn = settings.draw_examples(train, dataset, seed)
            examples, example_ids = settings.answered_examples(train, drawn), train.ids[drawn]
        plans.append(
            PromptPlan(
                name=f"seed {seed}" if settings.shots else "zero-shot",
                seed=seed,
                examples=tuple(example_ids.tolist()),
                ids=asked.ids,
                labels=asked.labels,
                label_names=asked.label_names,
                prompts=[settings.prompt(asked, i, examples) for i in range(len(asked))],
                notes=tuple(notes),
            )
        )
    return plans


def _check_seeds(seeds: Sequence[int], shots: int) -> None:
    are_valid = seeds and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not are_valid or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={list(seeds)}: expected different whole numbers from 0")
    if len(seeds) > 1 and not shots:
        raise ValueError(
            f"seeds={list(seeds)}: expected one, as a zero-shot prompt has no examples"
        )


def _random_subset(dataset: data.Dataset, num_examples: int) -> data.Dataset:
    """Return that many examples of a data set in its order, always the same ones; all for 0."""
    if not 0 <= num_examples <= len(dataset):
        raise ValueError(f"num_examples={num_examples}: expected 0 to {len(dataset)}")
    if num_examples == 0:
        return dataset
    drawn = np.random.default_rng(0).permutation(len(dataset))[:num_examples]
    return dataset.take(np.sort(drawn))


def describe(plans: Sequence[PromptPlan]) -> str:
    """Return the number and size of the requests, and the first prompt.

    >>> ids, names = np.arange(2), ("no", "yes")
    >>> plan = PromptPlan("zero-shot", 0, (), ids, ids, names, ["Is it?", "Was it?"], ())
    >>> print(describe([plan]))
    2 requests, 13 characters in all; the first:
    <BLANKLINE>
    Is it?
    """
    size = sum(len(prompt) for plan in plans for prompt in plan.prompts)
    number = sum(len(plan.prompts) for plan in plans)
    lines = [*plans[0].notes, f"{number} requests, {size} characters in all; the first:", ""]
    return "\n".join([*lines, plans[0].prompts[0]])
