"""What there is, and what a config would do without doing it."""

from collections.abc import Iterable, Iterator, Sequence

import jax

from calib_jax import data as data_room
from calib_jax import methods, models, report, train
from calib_jax.experiment import _build, _config
from calib_jax.experiment._config_files import config_files
from calib_jax.experiment._custom import AnyNetwork, DataSets, identify, make_custom
from calib_jax.experiment._fine_tune import num_examples
from calib_jax.experiment._keys import Config
from calib_jax.experiment._recipe import planned_trainers, with_teachers
from calib_jax.experiment._validate import check_network, missing_classes


def describe(
    config: Config,
    data: DataSets | None = None,
    network: AnyNetwork | None = None,
    method: methods.Method | methods.Objective | methods.Recipe | None = None,
) -> str:
    """Return sizes of data, network and run, and the memory that a training step takes.

    Args:
      config: Config of the experiment.
      data: Data sets instead of the config's, as in `run`.
      network: Network instead of the config's, as in `run`.
      method: Method to train with, as in `run`.
    """
    _config.check(config)
    config, custom = make_custom(config, data, network, method)
    names = with_teachers(config, _config.method_names(config, custom.name), custom)
    seeds = _config.seeds(config)
    at_once = len(seeds) if config.seeds_in_parallel else 1
    sets = _build.load_data(config, custom)
    built = _build.build_network(config, sets, custom)
    identity = identify(config, custom, sets.by_name(), built, check_network(built, sets.all()))
    model = identity["model"]
    lines = [
        *_data_lines(sets),
        f"network    {model['name']}: {model['num_parameters']:,} parameters",
        f"run        {config.train.epochs} epochs, batch {config.train.batch_size} on "
        f"{jax.device_count()} devices; {len(names)} methods x {len(seeds)} seeds",
        *_training_lines(planned_trainers(config, sets, names, built, custom), at_once),
        *_variant_lines(config, names),
    ]
    for share in config.fine_tune.shares if sets.tune is not None else ():
        tune, number = config.fine_tune, num_examples(share, sets)
        lines.append(f"fine-tune  {tune.data}: {tune.epochs} epochs of {number} examples")
    runs = len(names) * len(seeds)
    order = ", then of ".join(names)
    lines.append(f"runs       {runs} (--sweep_index 0 to {runs - 1}): the seeds of {order}")
    return "\n".join(lines)


def _data_lines(sets: _build.Data) -> Iterator[str]:
    for dataset in sets.all():
        shapes = ", ".join(f"{k} {v.dtype} {list(v.shape[1:])}" for k, v in dataset.inputs.items())
        size = sum(rows.nbytes for rows in dataset.inputs.values()) / 1e6
        shown = f"{shapes}, {size:.1f} MB" if shapes else "streamed"
        yield f"data       {dataset.name} {dataset.split}: {len(dataset)} examples, {shown}"
        yield from (f"           {note}" for note in dataset.notes)
    for dataset in (sets.train, sets.val, sets.test):
        if warning := missing_classes(dataset):
            yield f"           {dataset.name} {dataset.split}: {warning}"


def _training_lines(
    planned: Iterable[tuple[methods.Phase, train.Trainer]], at_once: int
) -> Iterator[str]:
    for phase, trainer in planned:
        if at_once > 1:
            train.check_seeds([trainer] * at_once)
        state_bytes, kept = (at_once * size for size in trainer.memory())
        title = phase.owner or "all"
        if phase.name != "train":
            title += f", {phase.name}"
        yield (
            f"train      {title}: {trainer.total_steps} steps of {trainer.train.batch_size}; "
            f"state {state_bytes / 1e6:.1f} MB on each device, "
            f"up to {kept / trainer.mesh.size / 1e6:.1f} MB for the gradient of a step"
        )


def _variant_lines(config: Config, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name in config.method.variants:
            settings = report.settings_text(config.method.variants[name].to_dict())
            yield f"variant    {name}: {settings}"


def listing() -> str:
    """Return all names that a config may use, and the configs."""
    rooms = {"methods": methods.NAMES, "models": models.NAMES, "data": data_room.NAMES}
    lines = [f"{room:<10}{', '.join(names)}" for room, names in rooms.items()]
    for name, path in config_files():
        first = path.read_text().partition("\n")[0].strip('"').strip()
        lines.append(f"{'config':<10}{name}: {first}")
    return "\n".join(lines)
