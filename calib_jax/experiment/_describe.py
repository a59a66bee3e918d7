"""What there is, and what a config would do without doing it."""

import pathlib
from typing import Any

import jax
import numpy as np

from calib_jax import data, methods, models, report, train
from calib_jax.experiment import _build, _config
from calib_jax.experiment._fine_tune import num_examples
from calib_jax.experiment._recipe import ARTIFACTS, phases, with_teachers
from calib_jax.experiment._variants import run_config


def describe(config: Any) -> str:
    """Sizes of data, network and run, and the memory that a training step takes."""
    _config.check(config)
    names, seeds = with_teachers(config, _config.method_names(config)), _config.seeds(config)
    sets = _build.load_data(config)
    lines = []
    for part in sets.parts():
        shapes = ", ".join(f"{k} {v.dtype} {list(v.shape[1:])}" for k, v in part.inputs.items())
        size = sum(v.nbytes for v in part.inputs.values()) / 1e6
        shown = f"{shapes}, {size:.1f} MB" if shapes else "streamed"
        lines.append(f"data       {part.name} {part.split}: {len(part)} examples, {shown}")
        lines += [f"           {note}" for note in part.notes]
    for name in names:
        artifacts: dict[str, np.ndarray] = {}
        for phase in phases(config, name):
            settings = run_config(config, phase.owner)[1]
            trainer = _build.build_trainer(settings, sets, phase, artifacts)
            if phase.provides:
                artifacts |= ARTIFACTS[phase.provides].shapes(sets.train)
            if not any(line.startswith("network") for line in lines):
                state = trainer.abstract_state()
                number = sum(leaf.size for leaf in jax.tree.leaves(state.params))
                lines += [
                    f"network    {config.model.name}: {number:,} parameters",
                    f"run        {config.train.epochs} epochs, batch {config.train.batch_size} on "
                    f"{trainer.mesh.size} devices; {len(names)} methods x {len(seeds)} seeds",
                ]
            at_once = len(seeds) if config.seeds_in_parallel else 1
            if at_once > 1:
                train.check_seeds([trainer] * at_once)
            state_bytes, kept = (at_once * size for size in trainer.memory())
            title = (phase.owner or "all") + f", {phase.name}" * (phase.name != "train")
            if any(line.startswith(f"train      {title}:") for line in lines):
                continue  # a training that other methods share
            lines.append(
                f"train      {title}: {trainer.total_steps} steps of {trainer.train.batch_size}; "
                f"state {state_bytes / 1e6:.1f} MB on each device, "
                f"up to {kept / trainer.mesh.size / 1e6:.1f} MB for the gradient of a step"
            )
    for name in names:
        if name in config.method.variants:
            settings = report.settings_text(config.method.variants[name].to_dict())
            lines.append(f"variant    {name}: {settings}")
    for share in config.fine_tune.shares if sets.tune is not None else ():
        tune, number = config.fine_tune, num_examples(share, sets)
        lines.append(f"fine-tune  {tune.data}: {tune.epochs} epochs of {number} examples")
    runs = len(names) * len(seeds)
    order = ", then of ".join(names)
    lines.append(f"runs       {runs} (--sweep_index 0 to {runs - 1}): the seeds of {order}")
    return "\n".join(lines)


def listing() -> str:
    """All names that a config may use, and the configs of this folder."""
    rooms = {"methods": methods.NAMES, "models": models.NAMES, "data": data.NAMES}
    lines = [f"{room:<10}{', '.join(names)}" for room, names in rooms.items()]
    for path in sorted(pathlib.Path("configs").rglob("[!_]*.py")):
        first = path.read_text().partition("\n")[0].strip('"').strip()
        lines.append(f"{'config':<10}{path}: {first}")
    return "\n".join(lines)
