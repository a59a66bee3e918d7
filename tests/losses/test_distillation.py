"""Distillation loss and teacher annealing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses


def log_softmax(z):
    z = np.asarray(z, np.float64)
    top = z.max()
    return z - top - np.log(np.exp(z - top).sum())


def oracle(student, teacher, target, weight, temperature=1.0, scale_student=False, t_squared=None):
    """One row: (1 - w) CE(student, y) + w [T^2] KL(teacher/T || student or student/T)."""
    t_squared = scale_student if t_squared is None else t_squared
    ce = -sum(t * v for t, v in zip(target, log_softmax(student), strict=True) if t)
    log_t = log_softmax(np.asarray(teacher, np.float64) / temperature)
    log_s = log_softmax(np.asarray(student, np.float64) / (temperature if scale_student else 1.0))
    kl = sum(np.exp(a) * (a - b) for a, b in zip(log_t, log_s, strict=True) if np.exp(a))
    return (1 - weight) * ce + weight * (temperature**2 if t_squared else 1.0) * kl


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(6)
    student = (2 * rng.normal(size=(6, 3))).astype(np.float32)
    teacher = (3 * rng.normal(size=(6, 3))).astype(np.float32)
    hard = rng.integers(0, 3, 6)
    soft = rng.dirichlet(np.ones(3), 6).astype(np.float32)
    return student, teacher, hard, soft


def test_hand_number():
    # student p = (1/4, 3/4), teacher logits (0, 2 ln 3); T = 2 makes the teacher (1/4, 3/4): KL = 0
    # CE of label 0 = ln 4 = 1.3862944, weight .25 -> .75 * 1.3862944 = 1.0397208
    student = np.log(np.array([[1.0, 3.0]]))
    teacher = np.array([[0.0, 2.1972246]])
    got = losses.distillation(student, teacher, np.array([0]), weight=0.25, temperature=2.0)
    np.testing.assert_allclose(got, [1.0397208], rtol=1e-6)
    # T = 1: teacher = (.1, .9): KL = .1 ln(.1/.25) + .9 ln(.9/.75) = -.09162907 + .16408940
    #      = .07246033; total 1.0397208 + .25 * .07246033 = 1.0578359
    got = losses.distillation(student, teacher, np.array([0]), weight=0.25)
    np.testing.assert_allclose(got, [1.0578359], rtol=1e-6)
    # T = 2 for both and T^2: student/2 is (1, sqrt 3)/(1 + sqrt 3) = (.36602540, .63397460)
    # KL = .25 ln(.25/.36602540) + .75 ln(.75/.63397460) = -.09532 + .12605 = .03073 (x 4)
    kl = 0.25 * np.log(0.25 / 0.36602540) + 0.75 * np.log(0.75 / 0.63397460)
    got = losses.distillation(
        student, teacher, np.array([0]), weight=0.25, temperature=2.0, scale_student=True
    )
    np.testing.assert_allclose(got, [1.0397208 + 0.25 * 4 * kl], rtol=1e-6)


@pytest.mark.parametrize("t_squared", [None, False, True])
@pytest.mark.parametrize("scale_student", [False, True])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_matches_oracle(kind, scale_student, t_squared, data):
    student, teacher, hard, soft = data
    labels = hard if kind == "hard" else soft
    targets = soft if kind == "soft" else np.eye(3)[hard]
    options = {"temperature": 1.7, "scale_student": scale_student, "t_squared": t_squared}
    got = losses.distillation(student, teacher, labels, weight=0.3, **options)
    want = [
        oracle(s, t, y, 0.3, **options) for s, t, y in zip(student, teacher, targets, strict=True)
    ]
    assert got.shape == (6,)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_weight_zero_is_cross_entropy_and_weight_one_is_kl(data):
    student, teacher, hard, _ = data
    got = losses.distillation(student, teacher, hard, weight=0.0, temperature=3.0)
    np.testing.assert_allclose(got, losses.cross_entropy(student, hard), rtol=1e-6)
    same = losses.distillation(student, student, hard, weight=1.0)
    np.testing.assert_allclose(same, np.zeros(6), atol=1e-6)  # KL(p || p) = 0


def test_gradient_reaches_the_student_only(data):
    student, teacher, hard, _ = data

    def loss(s, t, weight, temperature):
        return losses.distillation(s, t, hard, weight=weight, temperature=temperature).sum()

    # traced weight and temperature: the annealed schedule changes them at every step
    to_student, to_teacher = jax.jit(jax.grad(loss, (0, 1)))(student, teacher, 0.4, 1.5)
    np.testing.assert_array_equal(to_teacher, np.zeros((6, 3)))
    p = np.exp([log_softmax(s) for s in student])
    q = np.exp([log_softmax(t / 1.5) for t in teacher.astype(np.float64)])
    # CE pulls by p - y, KL(q || p) by p - q
    want = 0.6 * (p - np.eye(3)[hard]) + 0.4 * (p - q)
    np.testing.assert_allclose(to_student, want, rtol=1e-5, atol=1e-6)
    one = jax.grad(
        lambda s, t, y: losses.distillation(s[None], t[None], y[None], weight=0.4, temperature=1.5)[
            0
        ]
    )
    np.testing.assert_allclose(
        jax.jit(jax.vmap(one))(student, teacher, hard), to_student, rtol=1e-5, atol=1e-6
    )


def test_t_squared_keeps_the_gradient_scale_of_a_scaled_student(data):
    student, teacher, hard, _ = data

    def slope(temperature):
        return jax.jit(
            jax.grad(
                lambda s: losses.distillation(
                    s, teacher, hard, weight=1.0, temperature=temperature, scale_student=True
                ).sum()
            )
        )(student)

    # for large T: T^2 * (1/T) * (softmax(s/T) - softmax(t/T)) -> centered (s - t) / K
    centered = student - teacher
    want = (centered - centered.mean(1, keepdims=True)) / 3
    np.testing.assert_allclose(slope(300.0), want, rtol=5e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale_student", [False, True])
def test_saturated_logits(dtype, scale_student):
    big = float(jnp.asarray(1e4, dtype))
    student = jnp.asarray([[big, -big, 0], [big, -big, 0], [-big, big, 0], [big] * 3], dtype)
    teacher = jnp.asarray([[big, -big, 0], [-big, big, 0], [0, 0, 0], [-big, big, 0]], dtype)
    labels = np.array([0, 1, 2, 0])

    def loss(s):
        return losses.distillation(
            s, teacher, labels, weight=0.5, temperature=0.01, scale_student=scale_student
        )

    value = jax.jit(loss)(student)
    grad = jax.jit(jax.grad(lambda s: loss(s).sum()))(student)
    assert value.dtype == jnp.float32
    s32, t32 = (np.asarray(a.astype(jnp.float32)) for a in (student, teacher))
    want = [
        oracle(s, t, np.eye(3)[y], 0.5, 0.01, scale_student)
        for s, t, y in zip(s32, t32, labels, strict=True)
    ]
    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)
    assert np.isfinite(grad.astype(jnp.float32)).all()


def test_shape_errors(data):
    student, teacher, hard, soft = data
    bad = [
        (student, teacher[:5], hard, 0.5, "teacher"),
        (student, teacher[:, :2], hard, 0.5, "teacher"),
        (student, teacher, hard[:5], 0.5, "labels"),
        (student, teacher, soft[:, :2], 0.5, "labels"),
        (student, teacher, hard, np.ones((6, 1)), "weight"),  # would broadcast to [6, 6]
    ]
    for s, t, y, weight, named in bad:
        with pytest.raises(ValueError, match=named):
            losses.distillation(s, t, y, weight=weight)


def test_weight_per_example(data):
    student, teacher, hard, _ = data
    weight = np.linspace(0, 1, 6).astype(np.float32)
    got = losses.distillation(student, teacher, hard, weight=weight)
    rows = zip(student, teacher, np.eye(3)[hard], weight, strict=True)
    np.testing.assert_allclose(got, [oracle(*row) for row in rows], rtol=1e-5, atol=1e-6)


def test_teacher_annealing():
    steps = [0, 1, 5, 10, 11, 1000]
    want = [1.0, 0.9, 0.5, 0.0, 0.0, 0.0]  # 1 - min(1, step / 10)
    np.testing.assert_allclose(
        [losses.teacher_annealing(s, 10) for s in steps], want, rtol=1e-6, atol=1e-7
    )
    traced = jax.jit(losses.teacher_annealing, static_argnums=1)
    np.testing.assert_allclose(
        [traced(jnp.int32(s), 10) for s in steps], want, rtol=1e-6, atol=1e-7
    )
    assert traced(jnp.int32(3), 10).dtype == jnp.float32


def test_a_class_masked_for_both_takes_no_part(data):
    student, teacher, hard, _ = data
    column = np.full((6, 1), -np.inf, np.float32)
    value_and_grad = jax.value_and_grad(
        lambda s, t: losses.distillation(s, t, hard, weight=0.5, temperature=2.0).sum()
    )
    masked = (np.concatenate([z, column], axis=1) for z in (student, teacher))
    value, grad = value_and_grad(*masked)
    want, want_grad = value_and_grad(student, teacher)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(grad[:, :3], want_grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(grad[:, 3], 0)
