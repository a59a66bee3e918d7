"""Students: their loss against numbers worked by hand, and a weight that follows the step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import methods

LOG = np.log
# Probabilities by hand: the student is at 1/2, 1/4, 1/4 and the teacher at 1/4, 1/2, 1/4.
STUDENT = LOG([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
TEACHER = LOG([[9.0, 9.0, 9.0], [0.25, 0.5, 0.25], [9.0, 9.0, 9.0], [0.25, 0.5, 0.25]])
CE, KL = LOG(2), 0.25 * LOG(0.5) + 0.5 * LOG(2)  # label 0


class Fixed:
    """A network whose logits are its parameters."""

    def __call__(self, params, inputs, key):
        return params, {}


def _batch() -> methods.Batch:
    # The second row only fills up.
    return methods.Batch({}, jnp.array([0, 2]), jnp.array([1, 3], jnp.int32), jnp.array([1.0, 0.0]))


def _state(method: methods.Method, temperature: float = 1.0, total: int = 4):
    handed = {"teacher_logits": TEACHER, "teacher_temperature": np.float32(temperature)}
    return method.init(methods.Info(4, 3, handed, total))


def _loss(method: methods.Method, state) -> float:
    key = jax.random.key(0)
    value, aux = method.loss(Fixed(), jnp.asarray(STUDENT, jnp.float32), state, _batch(), key)
    np.testing.assert_allclose(aux.logits, STUDENT, rtol=1e-6)
    return float(value)


def test_weight_falls_with_the_steps() -> None:
    method = methods.create("sd")
    state = _state(method)
    for weight in (1.0, 0.75, 0.5, 0.25, 0.0, 0.0):  # four steps, then it stays
        assert _loss(method, state) == pytest.approx((1 - weight) * CE + weight * KL, rel=1e-5)
        state = method.after_step(state, _batch(), None)
    assert int(state.step) == 6


def test_temperature_of_the_teacher() -> None:
    """At T = 1/2 the teacher's probabilities are squared: 1/6, 4/6, 1/6."""
    teacher, student = np.array([1, 4, 1]) / 6, np.array([2, 1, 1]) / 4
    cool = float(np.sum(teacher * LOG(teacher / student)))
    method = methods.create("csd")
    assert _loss(method, _state(method, 0.5)) == pytest.approx(cool, rel=1e-5)
    always = methods.create("csd", t_squared="always")
    assert _loss(always, _state(always, 0.5)) == pytest.approx(cool / 4, rel=1e-5)
    plain = methods.create("sd")  # knows nothing of it
    assert _loss(plain, _state(plain, 0.5)) == pytest.approx(KL, rel=1e-5)

    squared = np.array([4, 1, 1]) / 6
    both = float(np.sum(teacher * LOG(teacher / squared)))
    scaled = methods.create("csd", scale_student=True)
    assert _loss(scaled, _state(scaled, 0.5)) == pytest.approx(both / 4, rel=1e-5)
    never = methods.create("csd", scale_student=True, t_squared="never")
    assert _loss(never, _state(never, 0.5)) == pytest.approx(both, rel=1e-5)


def test_options_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="generations=1: expected at least 2"):
        methods.create("csd", generations=1)
    with pytest.raises(ValueError, match="t_squared='maybe': expected one of scaled, always"):
        methods.create("csd", t_squared="maybe")
