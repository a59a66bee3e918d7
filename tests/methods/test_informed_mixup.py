"""Informed mixup against a plain numpy version that goes example by example."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit

from calib_jax import augment, methods, models, train
from calib_jax.methods import _partner_search

B, D, K = 5, 6, 3
N = 24
RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2 * B, D)).astype(np.float32)
LABELS = RNG.integers(0, K, 2 * B).astype(np.int32)
PARAMS = {
    "w": jnp.asarray(RNG.normal(size=(D, 4)), jnp.float32),
    "v": jnp.asarray(RNG.normal(size=(4, K)), jnp.float32),
    "b": jnp.asarray(RNG.normal(size=K), jnp.float32),
}
POSITIONS = RNG.permutation(N)[: 2 * B].astype(np.int32)
ARTIFACTS = {
    "aum": RNG.normal(size=N).astype(np.float32),
    "confidence": RNG.random(N).astype(np.float32),
    "variability": RNG.random(N).astype(np.float32),
    "logits": 2 * RNG.normal(size=(N, K)).astype(np.float32),
    "labels": RNG.integers(0, K, N).astype(np.int32),
}
INFO = methods.Info(N, K, ARTIFACTS)


@dataclasses.dataclass
class Tanh:
    """A network in three cuts with an affine last layer, small enough for finite differences."""

    def embed(self, params, inputs, key=None):
        return inputs["image"]

    def features(self, params, x, inputs, key=None):
        return jnp.tanh(x @ params["w"]), {}

    def head(self, params, x, key=None):
        return x @ params["v"] + params["b"]


def _groups(name, **options):
    groups = methods.recipe(name, **options).phases[-1].groups
    assert groups is not None
    return groups.positions


def _batch(weights=None):
    weights = np.ones(2 * B, np.float32) if weights is None else weights
    return methods.Batch({"image": jnp.asarray(IMAGES)}, LABELS, POSITIONS, jnp.asarray(weights))


def _softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _entropy(z, y):
    return -float(np.sum(y * np.log(_softmax(z))))


def _cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _smoothed(label, smoothing):
    y = np.full(K, smoothing / (K - 1))
    y[label] = 1 - smoothing
    return y


def _plain_loss(params, lam, *, similar, dissimilar, smoothing=0.0, stored=None, weights=None):
    """Algorithm 2, one example after the other."""
    weights = np.ones(2 * B) if weights is None else weights
    w, v, b = (np.asarray(params[k], np.float64) for k in ("w", "v", "b"))
    z = np.tanh(IMAGES.astype(np.float64) @ w) @ v + b
    saliency = np.abs(_softmax(z) - np.eye(K)[LABELS])
    total = 0.0
    for i in range(2 * B):
        others = [j for j in (range(B, 2 * B) if i < B else range(B)) if weights[j] > 0]
        own = saliency[i]
        if stored is not None:
            own = np.abs(_softmax(stored[POSITIONS[i]]) - np.eye(K)[LABELS[i]])
        likeness = [_cosine(own, saliency[j]) for j in others]
        near, far = others[int(np.argmax(likeness))], others[int(np.argmin(likeness))]
        lam_i = lam if np.ndim(lam) == 0 else lam[i]
        value = (1 - similar - dissimilar) * _entropy(z[i], np.eye(K)[LABELS[i]])
        for share, j in ((similar, near), (dissimilar, far)):
            y = lam_i * _smoothed(LABELS[i], smoothing) + (1 - lam_i) * _smoothed(
                LABELS[j], smoothing
            )
            value += share * _entropy(lam_i * z[i] + (1 - lam_i) * z[j], y)
        total += weights[i] * value
    return total / weights.sum()


def _run(key=0, weights=None, state=None, **options):
    method = methods.create("aum_mixup", **options)
    state = method.init(INFO) if state is None else state
    function = quick_jit(
        lambda params: method.loss(Tanh(), params, state, _batch(weights), jax.random.key(key))
    )
    return function(PARAMS)


def _lam(key, alpha, shape=()):
    return np.asarray(
        jax.random.beta(jax.random.split(jax.random.key(key), 5)[3], alpha, alpha, shape)
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 5.0},
        {"similar": 0.0},  # the ablation "- similar": 0.9 / 0 / 0.1
        {"dissimilar": 0.0},
        {"similar": 0.3, "dissimilar": 0.2, "smoothing": 0.1},
    ],
)
def test_loss_is_algorithm_2(options: dict) -> None:
    value, aux = _run(**options)
    expected = {"similar": 0.1, "dissimilar": 0.1} | options
    lam = _lam(0, expected.pop("alpha", 0.4))
    assert 0.01 < lam < 0.99
    assert float(value) == pytest.approx(_plain_loss(PARAMS, lam, **expected), rel=1e-5)
    z = np.tanh(IMAGES @ np.asarray(PARAMS["w"])) @ np.asarray(PARAMS["v"]) + PARAMS["b"]
    np.testing.assert_allclose(aux.logits, z, rtol=1e-4, atol=1e-5)


def test_lam_per_example() -> None:
    value, _ = _run(lam="example", alpha=2.0)
    lam = _lam(0, 2.0, (2 * B,))
    assert len(set(lam.tolist())) == 2 * B
    expected = _plain_loss(PARAMS, lam, similar=0.1, dissimilar=0.1)
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_stored_anchors_look_with_the_saliency_of_the_first_phase() -> None:
    value, _ = _run(anchors="stored", similar=0.4, dissimilar=0.4)
    plain = functools.partial(_plain_loss, PARAMS, _lam(0, 0.4), similar=0.4, dissimilar=0.4)
    assert float(value) == pytest.approx(plain(stored=ARTIFACTS["logits"]), rel=1e-5)
    assert abs(plain() - plain(stored=ARTIFACTS["logits"])) > 1e-3


def test_padding_is_nobodys_partner_and_counts_for_nothing() -> None:
    weights = np.array([1, 1, 1, 0, 0, 1, 1, 1, 0, 0], np.float32)
    value, _ = _run(weights=weights)
    expected = _plain_loss(PARAMS, _lam(0, 0.4), similar=0.1, dissimilar=0.1, weights=weights)
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_gradient_is_that_of_the_plain_version() -> None:
    method = methods.create("aum_mixup", similar=0.3, dissimilar=0.2, smoothing=0.05)
    state = method.init(INFO)

    @quick_jit
    def gradient(params):
        return jax.grad(lambda p: method.loss(Tanh(), p, state, _batch(), jax.random.key(1))[0])(
            params
        )

    found = gradient(PARAMS)
    lam, h = _lam(1, 0.4), 1e-5
    rng = np.random.default_rng(0)
    for key, leaf in PARAMS.items():
        for _ in range(4):
            place = tuple(rng.integers(0, n) for n in leaf.shape)
            sides = []
            for sign in (1, -1):
                moved = {k: np.asarray(v, np.float64).copy() for k, v in PARAMS.items()}
                moved[key][place] += sign * h
                sides.append(_plain_loss(moved, lam, similar=0.3, dissimilar=0.2, smoothing=0.05))
            expected = (sides[0] - sides[1]) / (2 * h)
            assert float(found[key][place]) == pytest.approx(expected, rel=2e-3, abs=2e-5)


def test_bank_has_the_whole_other_category_and_follows_training() -> None:
    method = methods.create("aum_mixup", partners="bank", similar=0.3, dissimilar=0.3)
    easy, hard = _groups("aum_mixup")(INFO)
    rng = np.random.default_rng(0)
    positions = np.concatenate([rng.permutation(easy)[:B], rng.permutation(hard)[:B]])
    batch = _batch()._replace(position=positions.astype(np.int32))
    state = method.init(INFO)
    value, aux = quick_jit(lambda p: method.loss(Tanh(), p, state, batch, jax.random.key(0)))(
        PARAMS
    )
    z = np.asarray(aux.logits, np.float64)
    bank = ARTIFACTS["logits"].astype(np.float64)
    known = np.abs(_softmax(bank) - np.eye(K)[ARTIFACTS["labels"]])
    lam, total = float(_lam(0, 0.4)), 0.0
    for i in range(2 * B):
        own = np.abs(_softmax(z[i]) - np.eye(K)[LABELS[i]])
        others = hard if i < B else easy
        likeness = [_cosine(own, known[j]) for j in others]
        total += 0.4 * _entropy(z[i], np.eye(K)[LABELS[i]])
        for j in (others[int(np.argmax(likeness))], others[int(np.argmin(likeness))]):
            y = lam * np.eye(K)[LABELS[i]] + (1 - lam) * np.eye(K)[ARTIFACTS["labels"][j]]
            total += 0.3 * _entropy(lam * z[i] + (1 - lam) * bank[j], y)
    assert float(value) == pytest.approx(total / (2 * B), rel=1e-5)

    padded = batch._replace(weights=batch.weights.at[-1].set(0.0))
    after = method.after_step(state, padded, aux)
    expected = ARTIFACTS["logits"].copy()
    expected[positions[:-1]] = z[:-1]
    np.testing.assert_allclose(after.bank.logits, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_a_bank_may_be_made_inside_jit(share: float) -> None:
    """As a trainer does it: the categories are known when the state is traced."""
    init = methods.create("aum_mixup", partners="bank", share=share).init
    eager, jitted = init(INFO), jax.jit(lambda: init(INFO))()
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(jitted), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(eager.bank.easy) == round(share * N)


def test_random_partners_are_of_the_other_half() -> None:
    """With lam near one half the mixed labels tell whom each example was mixed with."""
    seen = set()

    class Identity(Tanh):
        def features(self, params, x, inputs, key=None):
            return x, {}

        def head(self, params, x, key=None):
            return x

    method = methods.create("aum_mixup", partners="random", similar=1.0, dissimilar=0.0)
    # Logit i is minus infinity, so to say, for all but example i: a loss names the partner.
    logits = jnp.eye(2 * B) * 50
    batch = methods.Batch({"image": logits}, jnp.arange(2 * B), jnp.arange(2 * B), jnp.ones(2 * B))
    state = method.init(INFO._replace(num_classes=2 * B))
    for key in range(6):
        slope = jax.grad(
            lambda x, key=key: method.loss(
                Identity(), {}, state, batch._replace(inputs={"image": x}), jax.random.key(key)
            )[0]
        )(logits)
        assert np.isfinite(slope).all()
        lam = float(_lam(key, 0.4))
        # The slope of example i's own row touches column j only if j is its partner, or it is j's.
        touched = np.abs(np.asarray(slope)) > 1e-7
        if 0.1 < lam < 0.9:
            for i, j in zip(*np.nonzero(touched), strict=True):
                if i != j:
                    assert (i < B) != (j < B)
                    seen.add((int(i), int(j)))
    assert len(seen) > 2 * B  # not always the same


def test_categories() -> None:
    easy, hard = _groups("aum_mixup")(INFO)
    order = np.argsort(-ARTIFACTS["aum"])
    assert set(easy) == set(order[: N // 2])
    assert set(hard) == set(order[N // 2 :])
    easy, hard = _groups("sim_mixup")(INFO)
    assert ARTIFACTS["confidence"][easy].min() > ARTIFACTS["confidence"][hard].max()
    assert len(easy) == len(hard) == N // 2
    easy, hard = _groups("ea_mixup")(INFO)
    assert len(easy) == len(hard) == round(0.33 * N)
    assert set(easy) == set(np.argsort(-ARTIFACTS["confidence"])[: len(easy)])
    assert set(hard) == set(np.argsort(-ARTIFACTS["variability"])[: len(hard)])
    easy, hard = _groups("aum_mixup", share=0.25)(INFO)
    assert set(hard) == set(order[-N // 4 :])
    easy, hard = _groups("aum_mixup", categorize="random")(methods.Info(N, K))
    assert sorted([*easy, *hard]) == list(range(N))
    assert len(easy) == N // 2
    assert set(easy) != set(_groups("aum_mixup")(INFO)[0])


def test_what_needs_records() -> None:
    def needs(name: str, **options: str) -> tuple[str, ...]:
        *preparations, last = methods.recipe(name, **options).phases
        assert tuple(phase.provides for phase in preparations) == last.needs
        return last.needs

    assert needs("aum_mixup") == ("dynamics",)
    assert needs("aum_mixup", categorize="random") == ()
    assert needs("aum_mixup", categorize="random", anchors="stored") == ("dynamics",)
    assert needs("mixup") == ()


@pytest.mark.parametrize("kind", ["features", "embeddings"])
def test_other_saliencies_are_slopes_of_each_examples_own_loss(kind: str) -> None:
    # By hand: dL/dz = p - y, features h = tanh(x w): dL/dh = v (p - y), dL/dx = w ((1 - h²) dL/dh).
    w, v, b = (np.asarray(PARAMS[k], np.float64) for k in ("w", "v", "b"))
    h = np.tanh(IMAGES @ w)
    slope = (_softmax(h @ v + b) - np.eye(K)[LABELS]) @ v.T
    if kind == "embeddings":
        slope = ((1 - h**2) * slope) @ w.T
    method = methods.create("aum_mixup", saliency=kind, similar=0.4, dissimilar=0.4)
    value, aux = quick_jit(
        lambda p: method.loss(Tanh(), p, method.init(INFO), _batch(), jax.random.key(0))
    )(PARAMS)
    z, lam, total = np.asarray(aux.logits, np.float64), float(_lam(0, 0.4)), 0.0
    for i in range(2 * B):
        others = range(B, 2 * B) if i < B else range(B)
        likeness = [_cosine(np.abs(slope[i]), np.abs(slope[j])) for j in others]
        total += 0.2 * _entropy(z[i], np.eye(K)[LABELS[i]])
        for j in (others[int(np.argmax(likeness))], others[int(np.argmin(likeness))]):
            y = lam * np.eye(K)[LABELS[i]] + (1 - lam) * np.eye(K)[LABELS[j]]
            total += 0.4 * _entropy(lam * z[i] + (1 - lam) * z[j], y)
    assert float(value) == pytest.approx(total / (2 * B), rel=1e-5)


def test_two_classes_leave_logit_saliency_no_choice_but_features_one() -> None:
    logits = jnp.asarray(RNG.normal(size=(8, 2)), jnp.float32)
    saliency = augment.saliency(logits, jnp.arange(8) % 2)
    near, far = augment.partners(saliency[:4], saliency[4:])
    np.testing.assert_array_equal(near, 0)
    np.testing.assert_array_equal(far, 0)


def test_two_classes_have_partners_at_random_for_each_anchor() -> None:
    """All are equally similar: each anchor draws, for the nearest and the farthest independently."""
    logits = jnp.stack([jnp.arange(10.0), -jnp.arange(10.0)], axis=1)  # the first names the example
    labels = jnp.zeros(10, jnp.int32)
    saliency = jnp.ones((10, 2))
    weights = jnp.ones(10).at[jnp.array([1, 7])].set(0)
    bank = _partner_search.Bank(logits / 10, labels, jnp.arange(5), jnp.arange(5, 10))

    @quick_jit
    def draw(key):
        given = key, saliency, saliency, weights, logits, logits, 0.0
        from_bank = _partner_search.from_bank(key, bank, saliency, 0.0, 0.0)
        return [pair[0][:, 0] for pair in (*_partner_search.from_batch(*given), *from_bank)]

    drawn = [draw(jax.random.key(number)) for number in range(60)]
    near, far, bank_near, bank_far = np.round(
        np.asarray(drawn).swapaxes(0, 1) * [[[1]], [[1]], [[10]], [[10]]]
    )
    for found in (near, far):
        for anchor in range(10):  # every one of the other half that is no padding, no other
            expected = {5, 6, 8, 9} if anchor < 5 else {0, 2, 3, 4}
            assert set(found[:, anchor]) == expected
    for found in (bank_near, bank_far):
        assert {tuple(np.unique(found[:, :5])), tuple(np.unique(found[:, 5:]))} == {
            (0, 1, 2, 3, 4), (5, 6, 7, 8, 9),
        }  # fmt: skip
    # One of four (of five in the bank) draws is the same by chance: ± 0.02 of 600.
    assert 0.17 < np.mean(near == far) < 0.33
    assert 0.12 < np.mean(bank_near == bank_far) < 0.28
    assert np.mean([len(np.unique(step[:5])) > 1 for step in near]) > 0.9  # not shared by a step


def test_without_similar_and_without_dissimilar_are_two_trainings_with_two_classes() -> None:
    rng = np.random.default_rng(1)
    params = {"w": PARAMS["w"], "v": PARAMS["v"][:, :2], "b": PARAMS["b"][:2]}
    batch = _batch()._replace(labels=jnp.asarray(rng.integers(0, 2, 2 * B)))
    values = []
    for left_out in ("similar", "dissimilar"):
        method = methods.create("aum_mixup", **{left_out: 0.0})
        loss = quick_jit(lambda key, m=method: m.loss(Tanh(), params, m.init(INFO), batch, key)[0])
        values.append([float(loss(jax.random.key(k))) for k in range(4)])
    assert np.abs(np.subtract(*values)).max() > 1e-2


def test_the_published_clamp_chooses_by_confidence_with_two_classes() -> None:
    """By hand in float64: `a · b / max(|a| |b|, 1e-6)` of the slopes of a half's mean."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(2 * B, 2))
    z[[2, B + 3], 0] += 13.0  # one of each half is sure
    labels = np.zeros(2 * B, int)
    slope = np.repeat(1 - _softmax(z)[:, :1], 2, axis=1) / B
    lam, total = float(_lam(0, 0.4)), 0.0
    for i in range(2 * B):
        others = range(B, 2 * B) if i < B else range(B)
        products = [np.linalg.norm(slope[i]) * np.linalg.norm(slope[j]) for j in others]
        likeness = [
            slope[i] @ slope[j] / max(q, 1e-6) for j, q in zip(others, products, strict=True)
        ]
        far = others[int(np.argmin(likeness))]
        assert np.sort(likeness)[1] - min(likeness) > 1e-3
        total += 0.5 * _entropy(z[i], np.eye(2)[0])
        total += 0.5 * _entropy(lam * z[i] + (1 - lam) * z[far], np.eye(2)[0])
    method = methods.create("aum_mixup", similar=0.0, dissimilar=0.5, clamp=1e-6)

    class Given(Tanh):
        def features(self, params, x, inputs, key=None):
            return x, {}

        def head(self, params, x, key=None):
            return x

    images = {"image": jnp.asarray(z, jnp.float32)}
    batch = _batch()._replace(inputs=images, labels=jnp.asarray(labels))
    value, _ = method.loss(Given(), {}, method.init(INFO), batch, jax.random.key(0))
    assert float(value) == pytest.approx(total / (2 * B), rel=1e-5)


def test_an_odd_batch_has_one_easy_example_more() -> None:
    rows = 2 * B - 1
    batch = jax.tree.map(lambda x: x[:rows], _batch())
    z = np.tanh(IMAGES[:rows] @ np.asarray(PARAMS["w"], np.float64)) @ PARAMS["v"] + PARAMS["b"]
    saliency = np.abs(_softmax(z) - np.eye(K)[LABELS[:rows]])
    for partners in ("batch", "random"):
        method = methods.create("aum_mixup", similar=0.0, dissimilar=1.0, partners=partners)
        state = method.init(INFO)
        value, aux = quick_jit(
            lambda p, m=method, s=state: m.loss(Tanh(), p, s, batch, jax.random.key(0))
        )(PARAMS)
        assert aux.logits.shape == (rows, K)
        lam, totals = float(_lam(0, 0.4)), []
        for i in range(rows):
            others = range(B, rows) if i < B else range(B)
            mixed = [
                _entropy(
                    lam * z[i] + (1 - lam) * z[j],
                    lam * np.eye(K)[LABELS[i]] + (1 - lam) * np.eye(K)[LABELS[j]],
                )
                for j in others
            ]
            likeness = [_cosine(saliency[i], saliency[j]) for j in others]
            totals.append(mixed[int(np.argmin(likeness))] if partners == "batch" else mixed)
        if partners == "batch":
            assert float(value) == pytest.approx(np.mean(totals), rel=1e-5)
        else:
            least, most = (np.mean([f(t) for t in totals]) for f in (min, max))
            assert least < float(value) < most


def test_a_random_split_is_the_seeds_own() -> None:
    method = methods.create("aum_mixup", categorize="random", partners="bank")
    groups = _groups("aum_mixup", categorize="random", partners="bank")
    splits = [groups(INFO._replace(seed=seed)) for seed in range(5)]
    assert len({tuple(easy) for easy, _ in splits}) == 5
    for seed, (easy, hard) in enumerate(splits):
        assert sorted([*easy, *hard]) == list(range(N))
        again = groups(INFO._replace(seed=seed))
        np.testing.assert_array_equal(easy, again[0])
        bank = method.init(INFO._replace(seed=seed)).bank  # of the same split
        np.testing.assert_array_equal(bank.easy, easy)
        np.testing.assert_array_equal(bank.hard, hard)


@pytest.mark.parametrize("head", ["linear", "pooler", "dense_tanh", "multiple_choice"])
def test_mixing_logits_is_mixing_features(head: str) -> None:
    """The last layer of every text classifier is affine: what the method relies on."""
    network = models.create(
        "bert", 3, head=head, num_hidden_layers=1, hidden_size=8, num_attention_heads=2,
        intermediate_size=8, vocab_size=11, max_position_embeddings=8,
    )  # fmt: skip
    shape = (4, 3, 5) if head == "multiple_choice" else (4, 5)
    ids = jnp.asarray(RNG.integers(0, 11, shape), jnp.int32)
    inputs = {"input_ids": ids, "mask": jnp.ones_like(ids)}
    made = train.Network(network)
    params, _ = made.init(jax.random.key(0), inputs)
    features, _ = made.features(params, made.embed(params, inputs), inputs)
    mixed = 0.3 * features + 0.7 * features[::-1]
    logits = made.head(params, features)
    np.testing.assert_allclose(
        made.head(params, mixed), 0.3 * logits + 0.7 * logits[::-1], rtol=1e-5, atol=1e-6
    )


def test_mistakes_are_named() -> None:
    for options, message in [
        ({"categorize": "auc"}, "categorize='auc': expected one of aum, data_map, random"),
        ({"partners": "all"}, "partners='all': expected one of batch, bank, random"),
        ({"similar": 0.7, "dissimilar": 0.7}, "similar=0.7, dissimilar=0.7: expected shares of 1"),
        ({"share": 0.6}, "share=0.6: expected more than 0 and at most 0.5"),
        ({"saliency": "features", "partners": "bank"}, "saliency='features': expected 'logits'"),
        ({"batch_split": "half"}, "batch_split='half': expected one of halves, each"),
        ({"clamp": -1.0}, "clamp=-1.0: expected 0 for none, or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            methods.create("aum_mixup", **options)
