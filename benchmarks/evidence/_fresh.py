"""How far the true ECE on the test rows is from that on a million fresh draws."""

import json
import pathlib
from typing import Any

from calib_jax import experiment, metrics
from calib_jax._io import write_atomic
from calib_jax.data import load

NUM_DRAWS = 1_000_000
_KEYS = ("true_ece", "true_ece_30", "true_gap", "true_accuracy")


def compare(runs: pathlib.Path, seed: int = 0) -> list[dict[str, Any]]:
    """Return metrics on the test rows and on fresh draws, for one seed of each method on Gaussians.

    Args:
      runs: Folder of the workdirs.
      seed: Seed of the runs.
    """
    found = []
    for workdir in sorted(runs.glob("gaussians_*")):
        settings = json.loads((workdir / "config.json").read_text())["config"]["data"]["options"]
        draws = load("known_truth", "test", **settings | {"num_test": NUM_DRAWS})
        for run in sorted(workdir.glob(f"*/seed_{seed}")):
            if (run / "results.json").exists():
                tested = json.loads((run / "results.json").read_text())["splits"]["test"][0]
                logits = experiment.load(run).logits(draws.inputs["features"])
                fresh = metrics.truth_summary(logits, draws.label_probs)  # type: ignore[arg-type]
                found.append(
                    {
                        "cell": workdir.name,
                        "method": run.parent.name,
                        "test": {key: round(tested["metrics"][key], 5) for key in _KEYS},
                        "fresh": {key: round(float(fresh[key]), 5) for key in _KEYS},
                    }
                )
    return found


def write(runs: pathlib.Path, out: pathlib.Path) -> str:
    """Write `fresh_draws.json`; return the largest differences in one line."""
    found = compare(runs)
    lines = ",\n".join(json.dumps(row) for row in found)
    write_atomic(out / "fresh_draws.json", f"[\n{lines}\n]\n")
    return sentence(found)


def sentence(found: list[dict[str, Any]]) -> str:
    """Return how much test rows and the number of bins matter, in percentage points."""
    rows = max(abs(row["test"]["true_ece"] - row["fresh"]["true_ece"]) for row in found)
    bins = max(abs(row["fresh"]["true_ece_30"] - row["fresh"]["true_ece"]) for row in found)
    return (
        f"Over {len(found)} networks, the true ECE on 20,000 test rows differs from that on "
        f"{NUM_DRAWS:,} fresh draws by at most {100 * rows:.2f} points, and doubling the bins "
        f"changes the latter by at most {100 * bins:.2f}."
    )
