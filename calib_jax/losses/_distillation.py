"""Self-distillation: a student between the labels and its teacher."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    above_floor,
    as_floats,
    as_labels,
    as_logits,
    as_per_example,
    nan_where_invalid,
)
from calib_jax.losses._entropy import cross_entropy


def distillation(
    student_logits: ArrayLike,
    teacher_logits: ArrayLike,
    labels: ArrayLike,
    *,
    weight: ArrayLike,
    temperature: ArrayLike = 1.0,
    scale_student: bool = False,
    t_squared: bool | None = None,
) -> jax.Array:
    """Compute `(1 - weight) CE(student, labels) + weight KL(teacher || student)`.

    The teacher's logits are divided by `temperature`; the student's only if `scale_student`.
    Multiplying the KL by T^2 makes up for the gradient's shrinking when both are divided, so by
    default it is done just then. The teacher receives no gradient.

    Args:
      student_logits: Student's logits `[batch, num_classes]`.
      teacher_logits: Teacher's logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      weight: Weight lambda of the teacher, scalar or `[batch]`; see `teacher_annealing`.
      temperature: Temperature T > 0.
      scale_student: Whether to divide the student's logits by T too (inside the KL).
      t_squared: Whether to multiply the KL by T^2; `None` means the value of `scale_student`.

    Returns:
      `[batch]`

    References:
      Hinton, Vinyals and Dean (2015), arXiv:1503.02531.

    >>> student, teacher = [[1.0, 0.0]], [[0.0, 0.0]]
    >>> round(float(losses.distillation(student, teacher, [0], weight=0.5)[0]), 4)
    0.2167
    """
    student = above_floor(as_logits(student_logits))
    teacher = jax.lax.stop_gradient(above_floor(as_logits(teacher_logits).astype(student.dtype)))
    if student.shape != teacher.shape:
        raise ValueError(f"teacher_logits: expected {student.shape}, got {teacher.shape}")
    temperature = jnp.asarray(temperature, student.dtype)
    log_t = jax.nn.log_softmax(teacher / temperature)
    log_s = jax.nn.log_softmax(student / temperature if scale_student else student)
    # Finite also for masked classes: one that the teacher excludes takes no part.
    kl = jnp.sum(jnp.exp(log_t) * (log_t - log_s), axis=-1)
    if t_squared is None:
        t_squared = scale_student
    if t_squared:
        kl = jnp.square(temperature) * kl
    weight = as_per_example("weight", weight, student.shape[:-1], student.dtype)
    loss = (1 - weight) * cross_entropy(student, labels) + weight * kl
    return nan_where_invalid(loss, as_labels(labels, student), student.shape[-1])


def teacher_annealing(step: ArrayLike, total_steps: ArrayLike) -> jax.Array:
    """Return the distillation weight that falls linearly from 1 at step 0 to 0 at `total_steps`.

    Args:
      step: Number of steps so far, scalar or array.
      total_steps: Number of steps of the training.

    References:
      Clark, Luong, Khandelwal, Manning and Le (2019), arXiv:1907.04829.

    >>> float(losses.teacher_annealing(25, 100))
    0.75
    """
    step = as_floats(step)
    return 1.0 - jnp.minimum(1.0, step / jnp.asarray(total_steps, step.dtype))
