"""Recipes: the trainings of a method in order, with the artifacts that each needs and provides."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from calib_jax.methods._base import Info, Method
from calib_jax.methods._dynamics_recorder import dynamics_recorder
from calib_jax.methods._objectives import cross_entropy
from calib_jax.methods._supervised import supervised


class Groups(NamedTuple):
    """Groups of training examples that every step has rows of, one group after the other.

    Attributes:
      positions: Function `(info) -> positions` of each group. They may depend on the seed, their sizes
        may not.
      batch_split: `'halves'`: a batch is divided between the groups, so that an epoch has as many
        updates as without groups; `'each'`: a step has a whole batch of each. See `data.split_batch`.
      epoch_of_first: Whether an epoch is a pass over the first group instead of the largest.
    """

    positions: Callable[[Info], Sequence[np.ndarray]]
    batch_split: str = "each"
    epoch_of_first: bool = False


class Phase(NamedTuple):
    """One training.

    Attributes:
      name: Name of its folder; a method's only training is `'train'`.
      method: Method to train with.
      needs: Kinds of artifacts of earlier phases that the method reads from `Info.artifacts`:
        `'dynamics'`, `'teacher'`.
      provides: Kind of artifacts that it leaves for later phases; '' for none.
      groups: Groups of examples that a step draws from; `None` for ordinary batches.
      num_networks: Number of networks of the same kind that are trained together. Of several, `params`
        is a tuple with the parameters of each, and the first is evaluated; all see the model state of
        the first.
      number: Number of the training; those with different numbers have different random numbers.
      owner: Method or variant whose training this is, and whose result it may be; '' for a preparation
        that is shared by all methods: there the same name means the same training.
    """

    name: str
    method: Method
    needs: tuple[str, ...] = ()
    provides: str = ""
    groups: Groups | None = None
    num_networks: int = 1
    number: int = 0
    owner: str = ""

    @property
    def is_result(self) -> bool:
        """Whether the phase is evaluated as a result of its owner."""
        return self.owner != ""


class Recipe(NamedTuple):
    """The phases of a method; the best of those that are results is the method's result.

    Attributes:
      phases: Phases in order, without those of the teacher.
      teacher: Method or variant whose phases come before these; '' for none.
    """

    phases: tuple[Phase, ...]
    teacher: str = ""


def dynamics_phase() -> Phase:
    """Return ordinary training that records the dynamics of each example, for all methods.

    >>> methods.dynamics_phase().provides
    'dynamics'
    """
    method = dynamics_recorder(supervised(cross_entropy()))
    return Phase("records", method, provides="dynamics")
