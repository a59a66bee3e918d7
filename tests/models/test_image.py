"""ResNets, wide ResNets and DenseNets against torch, and against counts from their descriptions.

`python tests/models/test_image.py` (with torch) writes what torch computes to the golden file.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import with_devices

from calib_jax import models
from calib_jax.models._resnet import average_pool, batch_norm

GOLDEN = pathlib.Path(__file__).parent / "golden" / "image.npz"
QUICK = {"xla_backend_optimization_level": 0}  # compiling takes longer than running here

# name: network, side of the images
CASES: dict[str, tuple[Any, int]] = {
    "basic": (models.ResNet(3, stages=(1, 2), widths=(4, 6), bottleneck=False, stem_width=4), 8),
    "bottleneck": (models.ResNet(3, stages=(2, 1), widths=(3, 4), stem_width=12), 8),
    "tiny": (models.ResNet(3, stages=(1, 1), widths=(3, 4), stem_width=4, pool=2), 8),
    "imagenet": (models.ResNet(3, stages=(1, 1), widths=(3, 4), stem_width=4, stem="imagenet"), 32),
    "wide": (models.WideResNet(3, blocks=1, widen=1), 8),
    "dense": (models.DenseNet(3, blocks=(2, 2), growth=4), 8),
    "dense_imagenet": (models.DenseNet(3, blocks=(1, 2), growth=4, stem="imagenet"), 32),
}


def random_variables(module: Any, images: np.ndarray) -> dict[str, Any]:
    """Numbers in place of parameters and statistics, such that every one of them matters."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), images)
    rng = np.random.RandomState(
        0
    )  # legacy: its numbers never change, and the golden file needs them

    def fill(path: Any, leaf: Any) -> np.ndarray:
        noise = rng.standard_normal(leaf.shape)
        kind = path[-1].key
        if kind == "kernel":
            noise = noise / np.sqrt(np.prod(leaf.shape[:-1]))
        elif kind in ("scale", "var"):
            noise = np.exp(noise / 4)
        return np.asarray(noise / 2 if kind in ("bias", "mean") else noise, np.float32)

    return jax.tree_util.tree_map_with_path(fill, shapes)


def inputs(side: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(1)
    return rng.standard_normal((4, side, side, 3)).astype(np.float32), np.array([0, 2, 1, 2])


@functools.cache
def ours(name: str) -> dict[str, Any]:
    """Logits in both modes, the statistics after a step in train mode, and gradients."""
    module, side = CASES[name]
    images, labels = inputs(side)
    variables = random_variables(module, images)

    def run(params: Any, stats: Any, images: Any) -> dict[str, Any]:
        def loss(params: Any) -> Any:
            logits, new = module.apply(
                {"params": params, "batch_stats": stats}, images, True, mutable=["batch_stats"]
            )
            picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
            return -jnp.mean(picked), (logits, new["batch_stats"])

        (_, (trained, new)), grads = jax.value_and_grad(loss, has_aux=True)(params)
        evaluated = module.apply({"params": params, "batch_stats": stats}, images)
        return {"eval": evaluated, "train": trained, "stats": new, "grads": grads}

    run = jax.jit(run, compiler_options=QUICK)
    return jax.device_get(run(variables["params"], variables["batch_stats"], images))


class Oracle:
    """The networks in torch's own operations, on the variables of ours."""

    def __init__(self, variables: dict[str, Any]) -> None:
        import torch

        self.F, self.torch = torch.nn.functional, torch
        self.params = jax.tree.map(lambda a: torch.tensor(a).requires_grad_(), variables["params"])
        self.stats = jax.tree.map(torch.tensor, variables["batch_stats"])

    def conv(self, x: Any, p: Any, stride: int = 1) -> Any:
        kernel = p["kernel"].permute(3, 2, 0, 1)
        return self.F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)

    def norm(self, x: Any, p: Any, s: Any, train: bool) -> Any:
        mean, var, n = s["mean"].clone(), s["var"].clone(), x.numel() // x.shape[1]
        y = self.F.batch_norm(x, mean, var, p["scale"], p["bias"], train, 0.1, 1e-5)
        if train:  # torch keeps the unbiased variance, we the one that both divide by
            kept = 0.9 * s["var"]
            s |= {"mean": mean, "var": kept + (var - kept) * (n - 1) / n}
        return y

    def resnet(self, m: Any, x: Any, train: bool) -> Any:
        p, s = self.params, self.stats
        x = self.conv(x, p["stem_conv"], 2 if m.stem == "imagenet" else 1)
        x = self.norm(x, p["stem_norm"], s["stem_norm"], train).relu()
        if m.stem == "imagenet":
            x = self.F.max_pool2d(x, 3, 2, 1)
        strides = [1 + (i == 0 < stage) for stage, n in enumerate(m.stages) for i in range(n)]
        for i, stride in enumerate(strides):
            x = self.block(x, p[f"blocks_{i}"], s[f"blocks_{i}"], stride, m.bottleneck, train)
        return self.F.adaptive_avg_pool2d(x, m.pool).permute(0, 2, 3, 1).flatten(1)

    def block(self, x: Any, p: Any, s: Any, stride: int, bottleneck: bool, train: bool) -> Any:
        y, strides = x, (1, stride, 1) if bottleneck else (stride, 1)
        for i, by in enumerate(strides):
            y = y.relu() if i else y
            y = self.conv(y, p[f"Conv_{i}"], by)
            y = self.norm(y, p[f"BatchNorm_{i}"], s[f"BatchNorm_{i}"], train)
        if x.shape != y.shape:
            last = len(strides)
            x = self.conv(x, p[f"Conv_{last}"], stride)
            x = self.norm(x, p[f"BatchNorm_{last}"], s[f"BatchNorm_{last}"], train)
        return (x + y).relu()

    def two_active(self, x: Any, p: Any, s: Any, stride: int, train: bool) -> Any:
        """Norm, relu and convolution, twice."""
        y = x
        for i, by in enumerate((stride, 1)):
            y = self.norm(y, p[f"BatchNorm_{i}"], s[f"BatchNorm_{i}"], train).relu()
            y = self.conv(y, p[f"Conv_{i}"], by)
        return y

    def wideresnet(self, m: Any, x: Any, train: bool) -> Any:
        p, s = self.params, self.stats
        x = self.conv(x, p["stem_conv"])
        for i in range(3 * m.blocks):
            q, stride = p[f"residual_{i}"], 2 if i in (m.blocks, 2 * m.blocks) else 1
            y = self.two_active(x, q, s[f"residual_{i}"], stride, train)
            x = y + (x if x.shape == y.shape else self.conv(x, q["Conv_2"], stride))
        return self.norm(x, p["last_norm"], s["last_norm"], train).relu().mean((2, 3))

    def densenet(self, m: Any, x: Any, train: bool) -> Any:
        p, s = self.params, self.stats
        x = self.conv(x, p["stem_conv"], 2 if m.stem == "imagenet" else 1)
        if m.stem == "imagenet":
            x = self.norm(x, p["stem_norm"], s["stem_norm"], train).relu()
            x = self.F.max_pool2d(x, 3, 2, 1)
        for b, layers in enumerate(m.blocks):
            for i in range(layers):
                name = f"layers_{b}_{i}"
                x = self.torch.cat([self.two_active(x, p[name], s[name], 1, train), x], 1)
            if b + 1 < len(m.blocks):
                q, r = p[f"transitions_{b}"], s[f"transitions_{b}"]
                x = self.norm(x, q["BatchNorm_0"], r["BatchNorm_0"], train).relu()
                x = self.F.avg_pool2d(self.conv(x, q["Conv_0"]), 2)
        return self.norm(x, p["last_norm"], s["last_norm"], train).relu().mean((2, 3))

    def logits(self, module: Any, images: np.ndarray, train: bool) -> Any:
        features = getattr(self, type(module).__name__.lower())
        x = self.torch.tensor(images).permute(0, 3, 1, 2)
        p = self.params["classifier"]
        return features(module, x, train) @ p["kernel"] + p["bias"]


def by_torch(name: str) -> dict[str, Any]:
    """What `ours` gives, by torch."""
    module, side = CASES[name]
    images, labels = inputs(side)
    oracle = Oracle(random_variables(module, images))
    evaluated = oracle.logits(module, images, train=False)
    trained = oracle.logits(module, images, train=True)
    oracle.F.cross_entropy(trained, oracle.torch.tensor(labels)).backward()
    results = {
        "eval": evaluated,
        "train": trained,
        "stats": oracle.stats,
        "grads": jax.tree.map(lambda a: a.grad, oracle.params),
    }
    return jax.tree.map(lambda a: a.detach().numpy(), results)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("what", ["eval", "train", "stats"])
def test_golden(name: str, what: str) -> None:
    with np.load(GOLDEN) as golden:
        expected = golden[f"{name}_{what}"]
    np.testing.assert_allclose(flat(ours(name)[what]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_torch(name: str) -> None:
    pytest.importorskip("torch")
    expected = by_torch(name)
    for what, atol in (("eval", 1e-5), ("train", 1e-5), ("stats", 1e-5), ("grads", 1e-5)):
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=atol, err_msg=what),
            ours(name)[what],
            expected[what],
        )


def resnet_count(
    blocks: Any, widths: Any, bottleneck: bool, stem: tuple[int, int], cells: int, classes: int
) -> tuple[int, int]:
    """Number of parameters, and how many of them are of batch norms, block after block."""
    size, c = stem
    convs, norms = size * size * 3 * c, 2 * c
    for stage, (number, w) in enumerate(zip(blocks, widths, strict=True)):
        for i in range(number):
            out = 4 * w if bottleneck else w
            convs += (c * w + 9 * w * w + w * out) if bottleneck else (9 * c * w + 9 * w * w)
            norms += 2 * (w + w + out) if bottleneck else 2 * (w + w)
            if i == 0 and (stage > 0 or c != out):
                convs, norms = convs + c * out, norms + 2 * out
            c = out
    return convs + norms + (c * cells + 1) * classes, norms


def wide_resnet_count(blocks: int, widen: int, classes: int) -> tuple[int, int]:
    convs, norms, c = 27 * 16, 0, 16
    for width in (16 * widen, 32 * widen, 64 * widen):
        convs += 9 * c * width + c * width + (2 * blocks - 1) * 9 * width * width
        norms += 2 * c + (2 * blocks - 1) * 2 * width
        c = width
    norms += 2 * c
    return convs + norms + (c + 1) * classes, norms


def densenet_count(blocks: Any, growth: int, imagenet: bool, classes: int) -> tuple[int, int]:
    c = 2 * growth
    convs, norms = (49 if imagenet else 9) * 3 * c, 2 * c if imagenet else 0
    for b, layers in enumerate(blocks):
        for _ in range(layers):
            convs += c * 4 * growth + 9 * 4 * growth * growth
            norms += 2 * c + 2 * 4 * growth
            c += growth
        if b < len(blocks) - 1:
            convs, norms, c = convs + c * (c // 2), norms + 2 * c, c // 2
    norms += 2 * c
    return convs + norms + (c + 1) * classes, norms


R50, R110, R_WIDTHS, D121 = (3, 4, 6, 3), (3, 4, 26, 3), (64, 128, 256, 512), (6, 12, 24, 16)
# name: side of the images, classes, features, parameters, and the count from the description.
# ResNet-50 and DenseNet-121 for ImageNet have torchvision's numbers; for CIFAR the numbers are those
# that the usual implementations print. ResNet-20 has 1x1 convolutions as shortcuts (He's option B).
NETWORKS = {
    "resnet20": (32, 10, 64, 272_474,
                 resnet_count((3, 3, 3), (16, 32, 64), False, (3, 16), 1, 10)),
    "resnet50": (32, 10, 2048, 23_520_842, resnet_count(R50, R_WIDTHS, True, (3, 64), 1, 10)),
    "resnet110": (32, 10, 2048, 45_864_522, resnet_count(R110, R_WIDTHS, True, (3, 64), 1, 10)),
    "resnet50_tiny": (64, 200, 8192, 25_138_952,
                      resnet_count(R50, R_WIDTHS, True, (3, 64), 4, 200)),
    "resnet110_tiny": (64, 200, 8192, 47_482_632,
                       resnet_count(R110, R_WIDTHS, True, (3, 64), 4, 200)),
    "resnet50_imagenet": (224, 1000, 2048, 25_557_032,
                          resnet_count(R50, R_WIDTHS, True, (7, 64), 1, 1000)),
    "resnet110_imagenet": (224, 1000, 2048, 47_900_712,
                           resnet_count(R110, R_WIDTHS, True, (7, 64), 1, 1000)),
    "wide_resnet_26_10": (32, 10, 640, 36_481_434,
                          resnet_count((4, 4, 4), (160, 320, 640), False, (3, 16), 1, 10)),
    "wide_resnet_28_10": (32, 10, 640, 36_479_194, wide_resnet_count(4, 10, 10)),
    "densenet121": (32, 10, 1024, 6_956_298, densenet_count(D121, 32, False, 10)),
    "densenet121_imagenet": (224, 1000, 1024, 7_978_856, densenet_count(D121, 32, True, 1000)),
}  # fmt: skip


def size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", NETWORKS)
def test_parameter_counts_and_feature_shapes(name: str) -> None:
    side, classes, width, published, (counted, norms) = NETWORKS[name]
    module = models.create(name, classes)
    images = jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), images)
    assert size(shapes["params"]) == published == counted
    assert size(shapes["batch_stats"]) == norms
    assert shapes["params"]["classifier"]["kernel"].shape == (width, classes)


def test_tiny_imagenet_features_are_four_cells() -> None:
    module = models.create("resnet50_tiny", 200)
    images = jax.ShapeDtypeStruct((2, 64, 64, 3), jnp.float32)
    features, _ = jax.eval_shape(
        functools.partial(module.init_with_output, method="features"), jax.random.key(0), images
    )
    assert features.shape == (2, 8192)


def test_every_image_network_is_counted() -> None:
    others = {"bert", "distilbert", "electra", "roberta", "xlm-roberta", "text_cnn", "mlp"}
    others.add("vit")  # its base size: test_create.py
    assert set(NETWORKS) == set(models.NAMES) - others


@pytest.mark.parametrize("name", ["tiny", "wide", "dense"])
def test_three_cuts_compose(name: str) -> None:
    module, side = CASES[name]
    images, _ = inputs(side)
    variables = random_variables(module, images)

    def cuts(variables: Any, images: Any, train: bool) -> Any:
        apply = functools.partial(module.apply, mutable=["batch_stats"])
        embeddings, _ = apply(variables, images, train, method="embed")
        features, new = apply(variables, embeddings, train, method="features")
        logits, _ = apply(variables, features, train, method="head")
        return logits, new["batch_stats"]

    both = jax.jit(lambda *a: (cuts(*a, False), cuts(*a, True)), compiler_options=QUICK)
    (evaluated, untouched), (trained, updated) = both(variables, images)
    expected = ours(name)
    np.testing.assert_allclose(evaluated, expected["eval"], atol=1e-6)
    np.testing.assert_array_equal(flat(untouched), flat(variables["batch_stats"]))
    np.testing.assert_allclose(trained, expected["train"], atol=1e-6)
    np.testing.assert_allclose(flat(updated), flat(expected["stats"]), atol=1e-6)


@pytest.mark.parametrize("name", ["tiny", "wide", "dense"])
def test_bfloat16_activations_with_float32_everything_else(name: str) -> None:
    module, side = CASES[name]
    module = module.clone(dtype=jnp.bfloat16)
    images, labels = inputs(side)
    variables = random_variables(module, images)  # of float32, as `init` must give it
    shapes = jax.eval_shape(module.init, jax.random.key(0), images)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}

    def loss(params: Any) -> Any:
        logits, new = module.apply(
            variables | {"params": params}, images, True, mutable=["batch_stats"]
        )
        return jnp.sum(logits[np.arange(4), labels]), (logits, new["batch_stats"])

    traced = jax.jit(jax.value_and_grad(loss, has_aux=True)).trace(variables["params"])
    step = traced.lower().compile(compiler_options=QUICK)
    (_, (logits, stats)), grads = step(variables["params"])
    for leaf in jax.tree.leaves((logits, stats, grads)):
        assert leaf.dtype == jnp.float32
    expected = ours(name)
    scale = np.max(np.abs(expected["train"]))
    assert 0 < np.max(np.abs(logits - expected["train"])) < 0.1 * scale
    np.testing.assert_allclose(flat(stats), flat(expected["stats"]), rtol=0.05, atol=0.02)

    # Every convolution, forward and backward, multiplies bfloat16 numbers.
    lines = str(traced.jaxpr).splitlines()
    convolutions = [line for line in lines if "= conv_general_dilated" in line]
    assert len(convolutions) >= 3 * 4
    assert all(":bf16[" in line for line in convolutions)


def test_bfloat16_means_are_taken_in_float32() -> None:
    """A running sum in bfloat16 stops growing at 256 times the terms."""
    x = jnp.full((1024, 2, 2, 1), 1.5, jnp.bfloat16)
    norm = batch_norm(jnp.bfloat16)
    variables = norm.init(jax.random.key(0), x, use_running_average=False)
    _, new = norm.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
    np.testing.assert_allclose(new["batch_stats"]["mean"], 0.15, rtol=1e-6)
    np.testing.assert_allclose(new["batch_stats"]["var"], 0.9, rtol=1e-6)
    assert average_pool(jnp.ones((1, 64, 64, 1), jnp.bfloat16), 1).item() == 1


def test_average_pool_takes_the_mean_of_each_cell() -> None:
    x = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
    expected = [x[:, i : i + 2, j : j + 3].mean((1, 2)) for i in (0, 2) for j in (0, 3)]
    np.testing.assert_allclose(average_pool(jnp.asarray(x), 2), np.concatenate(expected, 1))
    with pytest.raises(ValueError, match="4 x 6 has no 4 x 4 equal parts"):
        average_pool(jnp.asarray(x), 4)


@pytest.mark.parametrize("network", [models.ResNet, models.DenseNet])
def test_unknown_stem(network: Any) -> None:
    module = network(10, stem="imagnet")
    with pytest.raises(ValueError, match="stem='imagnet': expected one of small, imagenet"):
        jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))


INITIAL = {
    "resnet50": ({"stages": (1,), "widths": (16,)}, "uniform"),
    "densenet121": ({"blocks": (1, 1), "growth": 16}, "uniform"),
    "resnet50_tiny": ({"stages": (1,), "widths": (16,)}, "fan_out"),
    "wide_resnet_26_10": ({"stages": (1,), "widths": (32,)}, "fan_out"),
    "wide_resnet_28_10": ({"blocks": 1, "widen": 1}, "fan_in"),
}


@pytest.mark.parametrize("name", INITIAL)
def test_initial_scale(name: str) -> None:
    options, kind = INITIAL[name]
    module = models.create(name, 100, **options)
    init = jax.jit(module.init, compiler_options=QUICK)
    variables = init(jax.random.key(0, impl="rbg"), jnp.zeros((1, 16, 16, 3)))
    kernels = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
        if path[-1].key != "kernel":
            assert np.all(leaf == (1 if path[-1].key in ("scale", "var") else 0))
            continue
        kernels += 1
        *window, fan_in, fan_out = leaf.shape
        area = np.prod(window, dtype=int)
        # The last layer of the nets with convolutions by fan-out is as torch has it.
        of = "uniform" if kind == "fan_out" and not window else kind
        if of == "uniform":
            bound = 1 / np.sqrt(area * fan_in)
            assert 0.95 * bound < np.max(np.abs(leaf)) <= bound
            variance = bound**2 / 3
        else:
            variance = 2 / (area * (fan_in if of == "fan_in" else fan_out))
        # Five standard errors of the variance of as many normal numbers.
        np.testing.assert_allclose(np.mean(leaf**2), variance, rtol=5 * np.sqrt(2 / leaf.size))
    assert kernels >= 4


CHILD = textwrap.dedent(
    """
    import importlib.util, json, sys
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    spec = importlib.util.spec_from_file_location("test_image", sys.argv[1])
    test_image = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(test_image)

    assert len(jax.devices()) == 8
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    sharded, same = (NamedSharding(mesh, PartitionSpec(*a)) for a in (["data"], []))

    def apart(a, b):
        a, b = test_image.flat(a), test_image.flat(b)
        return float(np.max(np.abs(a - b) / (np.abs(a) + np.sqrt(np.mean(a**2)))))

    found = {}
    for name in ("tiny", "wide", "dense"):
        module, side = test_image.CASES[name]
        rng = np.random.default_rng(0)
        images = rng.normal(size=(16, side, side, 3)).astype(np.float32)
        images *= 1 + np.arange(16, dtype=np.float32)[:, None, None, None]  # no two shards alike
        labels = rng.integers(0, 3, 16)
        variables = test_image.random_variables(module, images[:1])

        def loss(params, stats, images, labels):
            logits, new = module.apply(
                {"params": params, "batch_stats": stats}, images, True, mutable=["batch_stats"]
            )
            picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
            return -jnp.mean(picked), (logits, new["batch_stats"])

        step = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=test_image.QUICK)
        params, stats = variables["params"], variables["batch_stats"]
        one = jax.device_get(step(params, stats, images, labels))
        many = step(
            *jax.device_put((params, stats), same), *jax.device_put((images, labels), sharded)
        )
        assert not many[0][1][0].sharding.is_fully_replicated  # the logits stay where they are
        many = jax.device_get(many)
        found[name] = {
            "logits": apart(one[0][1][0], many[0][1][0]),
            "stats": apart(one[0][1][1], many[0][1][1]),
            "grads": apart(one[1], many[1]),
        }
        if name == "tiny":
            shard = jax.device_get(step(params, stats, images[:2], labels[:2]))
            alone = apart(one[0][1][1], shard[0][1][1])
            assert alone > 0.1, alone  # else agreement would show nothing
    print(json.dumps(found))
    """
)


def test_eight_devices_agree_with_one() -> None:
    """Batch statistics are of the whole batch, wherever its parts are; so are the gradients."""
    env = with_devices(8, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, __file__],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, apart in json.loads(done.stdout.splitlines()[-1]).items():
        assert all(value < 1e-5 for value in apart.values()), (name, apart)


if __name__ == "__main__":
    arrays = {
        f"{name}_{what}": flat(by_torch(name)[what])
        for name in CASES
        for what in ("eval", "train", "stats")
    }
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **arrays)
