"""Self-distillation over generations, with calibrated teachers (CSD) or without (SD)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import losses
from calib_jax._arrays import weighted_mean
from calib_jax._hints import check_choice
from calib_jax.methods._base import Apply, Aux, Batch, Info, Method, Params
from calib_jax.methods._recipe import Phase, Recipe

_T_SQUARED = {"scaled": None, "always": True, "never": False}


class StudentState(NamedTuple):
    """State of a student.

    Attributes:
      step: Number of steps so far, which the teacher's weight follows.
      total_steps: Number of steps of the training.
      teacher: Teacher's logits of every training example `[n, num_classes]`.
      temperature: Temperature of the teacher's logits.
    """

    step: jax.Array
    total_steps: jax.Array
    teacher: jax.Array
    temperature: jax.Array


def self_distillation(
    teacher: str = "cross_entropy",
    generations: int = 4,
    calibrated: bool = True,
    scale_student: bool = False,
    t_squared: str = "scaled",
) -> Recipe:
    """Return self-distillation: students that learn from the labels and from the network before.

    A student's loss is `(1 - w) CE(student, labels) + w KL(teacher || student)`, the weight w falling
    linearly from 1 at the first step to 0 after the last. It is the teacher of the next student, and so
    on: all begin with the same pretrained weights, with a new last layer and in another order. A
    teacher's logits are computed once, without dropout.

    Paper: silent about T^2; here it multiplies the KL only where the student is scaled too. There it
    makes up for gradients that shrink by T^2; without, it would only change the teacher's weight.

    Args:
      teacher: Method, or variant of one, whose network is the first teacher.
      generations: Number of networks: the first teacher and its students.
      calibrated: Whether to divide the teacher's logits by the temperature with its least ECE on
        validation (CSD), or to leave them as they are (SD).
      scale_student: Whether to divide the student's logits in the KL by that temperature too.
      t_squared: When to multiply the KL by the temperature squared: if the student is `'scaled'`,
        `'always'`, or `'never'`.

    References:
      Hinton, Vinyals and Dean (2015), arXiv:1503.02531; Furlanello, Lipton, Tschannen, Itti and
      Anandkumar (2018), arXiv:1805.04770 (generations).

    >>> [phase.name for phase in methods.self_distillation(generations=3).phases]
    ['generation_2', 'generation_3']
    """
    if generations < 2:
        raise ValueError(f"generations={generations}: expected at least 2, a teacher and a student")
    check_choice("t_squared", t_squared, _T_SQUARED)

    def init(info: Info) -> StudentState:
        temperature = info.artifact("teacher_temperature") if calibrated else 1.0
        return StudentState(
            jnp.zeros((), jnp.int32),
            jnp.asarray(info.total_steps, jnp.int32),
            jnp.asarray(info.artifact("teacher_logits"), jnp.float32),
            jnp.asarray(temperature, jnp.float32),
        )

    def loss(
        apply: Apply, params: Params, state: StudentState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        logits, model_state = apply(params, batch.inputs, key)
        each = losses.distillation(
            logits,
            state.teacher[batch.position],
            batch.labels,
            weight=losses.teacher_annealing(state.step, state.total_steps),
            temperature=state.temperature,
            scale_student=scale_student,
            t_squared=_T_SQUARED[t_squared],
        )
        return weighted_mean(each, batch.weights), Aux(logits, model_state)

    method = Method(
        init,
        loss,
        after_step=lambda state, batch, aux: state._replace(step=state.step + 1),
        report=lambda state, *_: {"temperature": state.temperature},
    )
    students = tuple(
        Phase(f"generation_{g}", method, needs=("teacher",), provides="teacher", number=g - 1)
        for g in range(2, generations + 1)
    )
    return Recipe(students, teacher)
