"""Trained networks, loaded from the folder of a run to classify new inputs."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import _io, data, models, posthoc, train
from calib_jax._hints import check_choice
from calib_jax.data import Dataset
from calib_jax.experiment._build import Data
from calib_jax.experiment._custom import AnyNetwork, load_config_file
from calib_jax.experiment._inputs import Columns, Inputs, as_columns
from calib_jax.experiment._keys import Config, JsonDict
from calib_jax.experiment._preprocessing import Preprocessing, as_tuples

UNCALIBRATED = "uncalibrated"
_CHUNK = 4096  # examples that are tokenized, and sorted by length, at a time
# Lengths of batches of texts, each a program; the longest is that of the run.
_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
_NETWORK = "network.json"

_softmax = jax.jit(jax.nn.softmax)
_calibrate = jax.jit(lambda calibrator, logits: calibrator(logits))


def save_network(folder: pathlib.Path, config: Config, sets: Data, trainer: train.Trainer) -> None:
    """Write what `load` needs beside the checkpoint: preprocessing and architecture.

    Args:
      folder: Folder of the run.
      config: Config of the run.
      sets: Data of the run.
      trainer: Trainer of the network.
    """
    if train.is_primary():
        Preprocessing.of_run(sets, config.data.max_length, trainer).save(folder)
        architecture = _architecture(config, trainer.network.module)
        architecture["num_networks"] = trainer.phase.num_networks
        _io.write_json(folder / _NETWORK, architecture)


def _architecture(config: Config, module: nn.Module | train.NNXModule) -> JsonDict:
    """Return name and options of a network of `models.create`; of any other one, only its class."""
    name, options = config.model.name, dict(config.model.options)
    if isinstance(module, models.TextClassifier | models.ViT):
        name = module.config.model_type
        options = dataclasses.asdict(module.config) | {"remat": module.remat}
        if isinstance(module, models.TextClassifier):
            options["head"] = module.head_kind
    elif isinstance(module, models.TextCNN):
        options |= {key: getattr(module, key) for key in ("vocab_size", "dim", "learned")}
    known = {"name": name, "options": options, "dtype": config.model.dtype}
    if isinstance(module, nn.Module) and hasattr(module, "num_classes"):
        with contextlib.suppress(ValueError):  # options of a network that is not the config's
            if _create(known, module.num_classes) == module:
                return known
    cls = module.module_type if isinstance(module, train.NNXModule) else type(module)
    return {"name": "", "class": f"{cls.__module__}.{cls.__qualname__}"}


def _create(architecture: JsonDict, num_classes: int) -> nn.Module:
    name, options, dtype = (architecture[key] for key in ("name", "options", "dtype"))
    return models.create(name, num_classes, dtype=jnp.dtype(dtype), **options)


def load(run_folder: str | os.PathLike[str], network: AnyNetwork | None = None) -> "Classifier":
    """Load the network that a run has trained and evaluated, with preprocessing and calibrators.

    Neither the training data nor the devices of the training are needed.

    Args:
      run_folder: Folder of a finished run, `WORKDIR/METHOD/seed_N`.
      network: Network that was trained, if it is not one of `models.create`.

    Raises:
      ValueError: With one line, for a folder that is not a finished run, or a checkpoint that is
        missing or damaged.
    """
    folder = pathlib.Path(run_folder).expanduser()
    check_run(folder)
    results, settings = read_json(folder / "results.json"), read_json(folder / "config.json")
    preprocessing = Preprocessing.load(folder)
    network, num_networks = _network(folder, preprocessing, network)
    example = {
        name: jax.ShapeDtypeStruct(
            (1, *shape), jnp.float32 if name == "image" else preprocessing.dtypes[name]
        )
        for name, shape in preprocessing.arrays.items()
    }
    shapes, state_shapes = jax.eval_shape(network.init, jax.random.key(0), example)
    all_shapes = shapes if num_networks == 1 else (shapes,) * num_networks
    params, model_state = train.restore_network(
        folder / results["checkpoint"], all_shapes, state_shapes
    )
    config = settings["config"]
    paths = {name: folder / "calibrators" / f"{name}.npz" for name in config["calibrate"]}
    return Classifier(
        network.bind(model_state),
        params if num_networks == 1 else params[0],  # the one that was evaluated
        preprocessing,
        {name: posthoc.load(path) for name, path in paths.items()},
        config,
    )


def network_from_file(
    path: str | os.PathLike[str], run_folder: str | os.PathLike[str]
) -> AnyNetwork:
    """Return the network that `get_network` of a config file makes for the config of a run.

    Args:
      path: Config file.
      run_folder: Folder of a finished run.
    """
    if not pathlib.Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    module, folder = load_config_file(os.fspath(path)), pathlib.Path(run_folder).expanduser()
    if not hasattr(module, "get_network"):
        raise ValueError(f"{path}: expected a config file with a function get_network(config)")
    check_run(folder)
    return module.get_network(Config(read_json(folder / "config.json")["config"]))


def check_run(folder: pathlib.Path) -> None:
    """Raise unless a folder is that of a finished run; a folder of runs is told by their names."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder")
    if (folder / "results.json").exists() and (folder / "config.json").exists():
        return
    runs = [p.parent for p in folder.glob("*/seed_*/results.json")]
    runs += [p.parent for p in folder.glob("seed_*/results.json")]
    if runs:
        names = ", ".join(sorted(str(run.relative_to(folder)) for run in runs))
        raise ValueError(f"{folder} is a folder of runs; expected one of them: {names}")
    if (folder / "config.json").exists():
        raise ValueError(
            f"{folder} has no results.json: it is not finished; the command that began it goes on"
        )
    raise ValueError(f"{folder} is not the folder of a run, which has config.json and results.json")


def read_json(path: pathlib.Path) -> JsonDict:
    """Read a JSON file of a run."""
    try:
        return as_tuples(json.loads(path.read_text()))
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error})") from None


def _network(
    folder: pathlib.Path, preprocessing: Preprocessing, network: AnyNetwork | None
) -> tuple[train.Network, int]:
    """Return the network without parameters, and how many of its kind were trained together."""
    made = read_json(folder / _NETWORK)
    if isinstance(network, train.Network):
        return network, made["num_networks"]
    if network is None:
        if not made["name"]:
            raise ValueError(
                f"{folder} has a network of its user's, {made['class']}: pass it to "
                "experiment.load(run_folder, network), or --network CONFIG_FILE that makes it"
            )
        network = _create(made, len(preprocessing.label_names))
    return train.Network(network, preprocessing.mean, preprocessing.std), made["num_networks"]


class Classifier:
    """A trained network with its preprocessing and calibrators, on one device.

    Attributes:
      label_names: Name of each class.
      calibrators: Calibrators of the run by name, fitted on its validation set; the first is the
        default.
      network: Network, with its model state.
      params: Parameters of the network.
      preprocessing: What turns inputs into the network's arrays.
      batch_size: Number of rows that are computed at a time.
      settings: Config of the run.
    """

    def __init__(
        self,
        network: train.Network,
        params: Any,
        preprocessing: Preprocessing,
        calibrators: Mapping[str, posthoc.Calibrator],
        settings: JsonDict,
    ) -> None:
        device = jax.devices()[0]
        model_state = jax.device_put(network.model_state, device)
        self.network, self.params = network.bind(model_state), jax.device_put(params, device)
        self.preprocessing, self.calibrators = preprocessing, dict(calibrators)
        self.settings = settings
        self.batch_size: int = (
            settings["train"]["eval_batch_size"] or settings["train"]["batch_size"]
        )
        self._logits = jax.jit(
            lambda params, state, arrays: network.bind(state)(params, train.scale_images(arrays))[0]
        )

    @property
    def label_names(self) -> tuple[str, ...]:
        """Name of each class."""
        return self.preprocessing.label_names

    def predict_proba(self, inputs: Inputs, calibrator: str | None = None) -> np.ndarray:
        """Return calibrated probabilities, float32 `[n, num_classes]`.

        Args:
          inputs: List of texts, of (text, pair) tuples or of (text, choices) tuples, images uint8
            `[n, h, w, c]`, features `[n, size]`, columns by name (`{"text": …, "pair": …}`), or a data
            set: what the network was trained on.
          calibrator: Name of one of `calibrators`, or `'uncalibrated'`; by default the first.
        """
        return self._predict(inputs, self.calibrate(calibrator))

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return the name of the most probable class of each input, objects `[n]`."""
        names = np.array(self.label_names, object)
        return names[np.argmax(self.predict_proba(inputs), axis=-1)]

    def logits(self, inputs: Inputs) -> np.ndarray:
        """Return the network's logits, float32 `[n, num_classes]`."""
        return self._predict(inputs, lambda logits: logits)

    def calibrator_name(self, name: str | None = None) -> str:
        """Return the name of a calibrator, by default of the first; raise for one that is unknown."""
        name = name or next(iter(self.calibrators), UNCALIBRATED)
        check_choice("calibrator", name, (*self.calibrators, UNCALIBRATED))
        return name

    def calibrate(self, name: str | None = None) -> Callable[[jax.Array], jax.Array]:
        """Return the compiled function from logits to probabilities; see `predict_proba`."""
        name = self.calibrator_name(name)
        if name == UNCALIBRATED:
            return _softmax
        return functools.partial(_calibrate, self.calibrators[name])

    def _predict(self, inputs: Inputs, finish: Callable[[jax.Array], jax.Array]) -> np.ndarray:
        outputs: list[np.ndarray] = []
        pending: list[Any] = []
        for arrays in self._chunks(inputs):
            # The next chunk is prepared while the device computes this one.
            pending.append(self._start(arrays, finish))
            if len(pending) > 1:
                outputs.append(_collect(pending.pop(0)))
        outputs += map(_collect, pending)
        if not outputs:
            return np.zeros((0, len(self.label_names)), np.float32)
        return np.concatenate(outputs)

    def _chunks(self, inputs: Inputs) -> Iterator[Columns]:
        """Yield the network's arrays of at most `_CHUNK` examples at a time."""
        if isinstance(inputs, Dataset) and inputs.read is not None:
            for rows in np.array_split(np.arange(len(inputs)), -(-len(inputs) // _CHUNK)):
                yield from data.stream(inputs, rows[None], seed=None)
            return
        if isinstance(inputs, Dataset) and "input_ids" in inputs.inputs:
            yield from _slices({name: inputs.inputs[name] for name in self.preprocessing.arrays})
            return
        for columns in _slices(as_columns(inputs, self.preprocessing.inputs)):
            yield self.preprocessing(columns)

    def _start(self, arrays: Columns, finish: Callable[[jax.Array], jax.Array]) -> Any:
        """Start the computation of a chunk; return the plan of its batches and their results."""
        count = len(next(iter(arrays.values())))
        # A few examples do not fill a batch: a power of two, so that there are few programs.
        size = min(self.batch_size, 1 << (count - 1).bit_length())
        lengths, buckets = None, ()
        if "mask" in arrays:
            longest = arrays["mask"].shape[-1]
            lengths = arrays["mask"].sum(-1).reshape(count, -1).max(-1)
            buckets = (*(x for x in _LENGTHS if x < longest), longest)
        plan = data.in_order(count, size, lengths=lengths, buckets=buckets)
        results = []
        for step, rows in enumerate(plan.rows):
            batch = {name: column[rows] for name, column in arrays.items()}
            if plan.lengths is not None:
                batch = {name: x[..., : plan.lengths[step]] for name, x in batch.items()}
            logits = self._logits(self.params, self.network.model_state, batch)
            results.append(finish(logits))
        return plan, count, results


def _slices(columns: Columns) -> Iterator[Columns]:
    for start in range(0, len(next(iter(columns.values()))), _CHUNK):
        yield {name: column[start : start + _CHUNK] for name, column in columns.items()}


def _collect(started: Any) -> np.ndarray:
    """Return the results of a chunk in the order of its examples."""
    plan, count, results = started
    rows = np.concatenate([np.asarray(result) for result in results])[:count]
    if plan.lengths is None:
        return rows
    return rows[np.argsort(plan.rows.ravel()[:count], kind="stable")]
