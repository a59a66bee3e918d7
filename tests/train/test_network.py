"""What a module gets of the inputs of a batch."""

import jax
import numpy as np

from calib_jax import models, train


def test_features_are_normalized_like_images() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(5, 3, (4, 6)).astype(np.float32)
    mean, std = (5.0,) * 6, (3.0,) * 6
    network = train.Network(models.create("mlp", 3, widths=(8,)), mean, std)
    params, _ = network.init(jax.random.key(0), {"features": features})
    logits, _ = network(params, {"features": features})
    normalized = (features - 5) / 3
    hidden = np.maximum(normalized @ params["layers_0"]["kernel"] + params["layers_0"]["bias"], 0)
    expected = hidden @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        network.embed(params, {"features": features}), normalized, rtol=1e-6, atol=1e-6
    )
    images = train.Network(network.module, (5.0,), (3.0,))
    same, _ = images(params, {"image": features.reshape(4, 2, 3, 1)})
    np.testing.assert_allclose(same, logits, rtol=1e-5, atol=1e-5)
