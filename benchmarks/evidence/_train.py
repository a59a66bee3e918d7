"""The runs that the claims are tested on: all methods, sizes and noise levels of a source."""

import pathlib
import runpy
from collections.abc import Sequence

from calib_jax import experiment
from calib_jax._startup import keep_compiled

_CONFIG = pathlib.Path(__file__).parents[2] / "configs" / "evidence" / "known_truth.py"
SOURCES = ("gaussians", "digits", "texts")
NOISE = (0.1, 0.3)


def train(runs: pathlib.Path, sources: Sequence[str], cell: int | None = None) -> None:
    """Run what is not finished of the config, one workdir for each source, size and noise level.

    Each has data of its own: another seed of the distribution and of the flips.

    Args:
      runs: Folder of the workdirs.
      sources: Some of `SOURCES`.
      cell: The only one to run of a source's, from 0; `None` for all.
    """
    keep_compiled()
    module = runpy.run_path(str(_CONFIG))
    for source in sources:
        cells = [(size, noise) for size in module["NETWORKS"][source] for noise in NOISE]
        for seed, (size, noise) in enumerate(cells):
            if cell not in (None, seed):
                continue
            config = module["get_config"](source)
            config.data.options.num_train = size
            config.data.options.noise = noise
            config.data.options.seed = seed
            print(experiment.run(config, runs / f"{source}_{size}_{noise}"), flush=True)
