"""A small over-confident classifier to judge, trained on images that ship with scikit-learn."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from calib_jax import losses


def digits_predictions(folder: str | pathlib.Path, *, seed: int = 0) -> tuple[pathlib.Path, ...]:
    """Trains a two-layer network on 200 digits and saves its logits on the others.

    Few examples and many epochs: the network fits its training set perfectly and believes itself
    everywhere else too.

    Returns:
      The paths of `digits_test.npz` and `digits_validation.npz`.
    """
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x, y = jnp.asarray(images[order] / 16, jnp.float32), jnp.asarray(labels[order], jnp.int32)
    train, validation, test = slice(0, 200), slice(200, 700), slice(700, None)

    def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ params["w1"]) @ params["w2"]

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean(losses.cross_entropy(apply(params, x[train]), y[train]))

    keys = jax.random.split(jax.random.key(seed))
    he = jax.nn.initializers.he_normal()
    params = {"w1": he(keys[0], (64, 256)), "w2": he(keys[1], (256, 10))}
    optimiser = optax.adam(1e-2)

    @jax.jit
    def fit(params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        def step(carry, _):
            params, state = carry
            updates, state = optimiser.update(jax.grad(loss)(params), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimiser.init(params)), length=500)[0][0]

    params = fit(params)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, part in (("test", test), ("validation", validation)):
        paths.append(folder / f"digits_{name}.npz")
        logits = np.asarray(apply(params, x[part]))
        np.savez(paths[-1], logits=logits, labels=np.asarray(y[part]))
    return tuple(paths)
