"""Selection of the result among the networks that a run trained one after the other."""

import pathlib
import shutil
from collections.abc import Sequence

from calib_jax import train
from calib_jax.experiment._keys import JsonDict


def best_of(
    generations: Sequence[tuple[pathlib.Path, JsonDict]], folder: pathlib.Path, metric: str
) -> JsonDict:
    """Return the results of a run: those of the generation that does best on validation.

    Paper: the best generation by its test tables; here: by validation. The first teacher is shown but
    does not compete, as it is the result of another method.

    Args:
      generations: Folder and evaluation of each network, the first teacher first if there is one.
      folder: Folder of the run; what is shown of the best generation is copied there.
      metric: Metric by which it is chosen, as in `config.checkpoint.best`; of equals the first.
    """
    _, last = generations[-1]
    if len(generations) == 1:
        return last
    key = metric.removeprefix("val/")
    numbered = list(enumerate(generations, start=1))
    candidates = [(n, g) for n, g in numbered if g[1]["method"] == last["method"]]
    number, (source, best) = min(
        candidates, key=lambda item: train.cost(metric, item[1][1]["validation"][key])
    )
    for name in ("logits", "plots", "calibrators"):
        if (source / name).exists():
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True)
    for name in ("metrics.jsonl", "errors.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)
    shown = ("method", "validation", "splits")
    return best | {
        "train_seconds": last["train_seconds"],
        "checkpoint": (source.relative_to(folder) / best["checkpoint"]).as_posix(),
        "generation": number,
        "generations": [{"generation": n} | {k: g[k] for k in shown} for n, (_, g) in numbered],
    }
