"""Self-distillation over generations, with calibrated teachers (CSD) or without (SD)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import losses
from calib_jax._arrays import weighted_mean
from calib_jax.methods._base import Apply, Aux, Batch, Info, Method
from calib_jax.methods._recipe import Phase, Recipe

_T_SQUARED = {"scaled": None, "always": True, "never": False}


class Taught(NamedTuple):
    """State of a student.

    Attributes:
      step: of its training, which the teacher's weight follows.
      total_steps: of its training.
      teacher: its teacher's logits of every training example `[n, num_classes]`.
      temperature: that the teacher's logits are divided by.
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
    """A student of the same network, taught by the labels and by the network before it.

    Its loss is `(1 - w) CE(student, labels) + w KL(teacher || student)`, the weight w falling linearly
    from 1 at the first step to 0 after the last. The next student is taught by this one, and so on: all
    begin with the same pretrained weights, have a new last layer and see another order. A teacher's
    logits are computed once, without dropout.

    Paper: is silent about T^2; here it multiplies the KL only where the student is scaled too. There it
    makes up for gradients that shrink by T^2; without, it would only change the teacher's weight.

    Args:
      teacher: the method, or variant of one, whose network is the first teacher.
      generations: of networks, the first teacher counted: one less students.
      calibrated: divide the teacher's logits by the temperature that gives it the least ECE on
        validation (CSD), or leave them as they are (SD).
      scale_student: divide the student's logits in the KL by that temperature too.
      t_squared: multiply the KL by the temperature squared if the student is `'scaled'`, or `'always'`,
        or `'never'`.
    """
    if generations < 2:
        raise ValueError(f"generations={generations}: expected at least 2, a teacher and a student")
    if t_squared not in _T_SQUARED:
        raise ValueError(f"t_squared={t_squared!r}: expected one of {', '.join(_T_SQUARED)}")

    def init(info: Info) -> Taught:
        temperature = info.artifact("teacher_temperature") if calibrated else 1.0
        return Taught(
            jnp.zeros((), jnp.int32),
            jnp.asarray(info.total_steps, jnp.int32),
            jnp.asarray(info.artifact("teacher_logits"), jnp.float32),
            jnp.asarray(temperature, jnp.float32),
        )

    def loss(
        apply: Apply, params: Any, state: Taught, batch: Batch, key: jax.Array
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
