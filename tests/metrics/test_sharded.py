"""Every metric gives the same number on 8 devices as on one, padded rows included.

The devices are virtual CPU ones, which must be asked for before jax starts: hence a child process.
"""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from quick import with_devices

CHILD = textwrap.dedent(
    """
    import functools, json
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec
    from calib_jax import metrics

    assert len(jax.devices()) == 8
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    shard = NamedSharding(mesh, PartitionSpec("data"))

    # 61 rows do not divide by 8: three rows of padding, which hold rubbish and weigh 0.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 61)
    logits = (2 * (rng.normal(size=(61, 4)) + np.eye(4)[labels])).astype(np.float32)
    padded = np.concatenate([logits, np.full((3, 4), 7.0, np.float32)])
    padded_labels, weights = np.r_[labels, 0, 0, 0], np.r_[np.ones(61), np.zeros(3)]

    top = {
        "ece": metrics.ece,
        "ece_mass": functools.partial(metrics.ece, scheme="mass"),
        "mce": metrics.mce,
        "debiased": metrics.ece_debiased,
        "sweep": metrics.ece_sweep,
        "smooth": metrics.smooth_ece,
        "aurc": metrics.aurc,
        "e_aurc": metrics.e_aurc,
        "auroc": metrics.auroc,
        "fpr_at_tpr": metrics.fpr_at_tpr,
        "decomposition": lambda c, k, **kw: jnp.stack(metrics.brier_decomposition(c, k, **kw)),
    }
    whole = {
        "accuracy": metrics.accuracy,
        "nll": metrics.nll,
        "brier_score": metrics.brier_score,
        "f1": metrics.f1,
        "confusion_matrix": metrics.confusion_matrix,
        "refinement": metrics.refinement,
        "classwise": lambda z, y, **kw: metrics.classwise_ece(jax.nn.softmax(z), y, **kw),
    }

    def everything(z, y, w):
        conf, correct = metrics.top_label(z, y)
        out = {k: f(conf, correct, weights=w) for k, f in top.items()}
        return out | {k: f(z, y, weights=w) for k, f in whole.items()}

    quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    one = quick(everything)(logits, labels, None)
    args = [jax.device_put(x, shard) for x in (padded, padded_labels, jnp.float32(weights))]
    assert not args[0].sharding.is_fully_replicated
    many = quick(everything)(*args)

    # Streaming over devices: each makes its BinStats, and a psum is the merge.
    def local(z, y, w):
        stats = metrics.bin_stats(*metrics.top_label(z, y), weights=w)
        sums = jax.lax.psum((stats.count, stats.confidence, stats.correct), "data")
        return metrics.BinStats(*sums, edges=stats.edges).ece()

    spec = PartitionSpec("data")
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(spec, spec, spec), out_specs=PartitionSpec())
    one["ece_psum"], many["ece_psum"] = one["ece"], jax.jit(mapped)(*args)

    print(json.dumps({k: [np.asarray(one[k]).tolist(), np.asarray(many[k]).tolist()] for k in one}))
    """
)

NAMES = [
    "ece", "ece_mass", "mce", "debiased", "sweep", "smooth", "aurc", "e_aurc", "auroc",
    "fpr_at_tpr", "decomposition", "accuracy", "nll", "brier_score", "f1", "confusion_matrix",
    "refinement", "classwise", "ece_psum",
]  # fmt: skip


@pytest.fixture(scope="module")
def numbers():
    env = with_devices(8, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_eight_devices_agree_with_one(numbers, name):
    one, many = numbers[name]
    np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)


def test_nothing_was_left_out(numbers):
    assert set(numbers) == set(NAMES)
