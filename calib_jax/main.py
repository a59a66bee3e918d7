"""Run an experiment: train, evaluate, calibrate, report.

    python -m calib_jax.main --config configs/quickstart.py --workdir runs/quickstart
    python -m calib_jax.main --config … --workdir … --config.method.name=adafocal --config.seeds=0,1,2

The same command again goes on where it stopped, however it stopped. Any value of the config can be
changed by --config.KEY=VALUE; --print_config shows all keys. A row with other options or training:
    --variant adafocal_10=adafocal,num_bins=10,train.epochs=50,optimizer.learning_rate=0.05
"""

import os
import pathlib
import sys
from typing import Any

import jax
from absl import flags, logging
from ml_collections import config_flags

from calib_jax import experiment, report, train

_CONFIG = config_flags.DEFINE_config_file("config", None, "File with get_config().")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for everything the experiment leaves.")
_VARIANT = flags.DEFINE_multi_string(
    "variant", [],
    "NAME=METHOD,KEY=VALUE,...: one more row; keys are the method's options, train.X, optimizer.X and, "
    "for its objective's options, method.OBJECTIVE.X. May be given several times.",
)  # fmt: skip
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Show sizes, steps and memory, then stop.")
_PRINT = flags.DEFINE_bool("print_config", False, "Show the config with all overrides, then stop.")
_LIST = flags.DEFINE_bool("list", False, "Show methods, models, data sets and configs, then stop.")
_COMPARE = flags.DEFINE_list("compare", [], "Show tables of these workdirs together, then stop.")
_BY = flags.DEFINE_string("by", "", "Key of the config that --compare plots against, in --workdir.")
_SWEEP_INDEX = flags.DEFINE_integer(
    "sweep_index", None, "Do one of the runs (see --dry_run), while other jobs do the others."
)
_DISTRIBUTED = flags.DEFINE_enum(
    "distributed", "none", train.MODES,
    "Several processes: env reads JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; "
    "auto asks Slurm, Open MPI, the TPU pod or Kubernetes (see launch/).",
)  # fmt: skip
_SHOWN = (_CONFIG, _WORKDIR, _VARIANT, _DRY_RUN, _PRINT, _LIST, _COMPARE, _BY, _SWEEP_INDEX)


def main() -> int:
    if not sys.argv[1:] or "-h" in sys.argv or "--help" in sys.argv:
        lines = [f"  --{f.name:<14}{flags.FLAGS[f.name].help}" for f in (*_SHOWN, _DISTRIBUTED)]
        print("\n".join([__doc__, *lines]))
        return 0
    try:
        if rest := flags.FLAGS(sys.argv)[1:]:
            raise ValueError(f"not understood: {' '.join(rest)} (write --FLAG=VALUE, lists a,b,c)")
        _run()
        return 0
    except train.Stopped as stopped:
        print(f"{stopped}. The same command goes on from there.", file=sys.stderr)
        return 130
    except Exception as error:
        if (line := experiment.explain(error, parsed=flags.FLAGS.is_parsed())) is None:
            raise
        print(f"error: {line}", file=sys.stderr, flush=True)
        if isinstance(error, jax.errors.JaxRuntimeError):
            os._exit(1)  # an ordinary end would wait for the processes that are gone
        return 2


def _run() -> None:
    logging.set_verbosity(
        logging.FATAL
    )  # orbax tells of every save, and of what we handle ourselves
    config = _CONFIG.value
    if _LIST.value:
        print(experiment.listing())
    elif _COMPARE.value:
        print(report.compare_workdirs(_COMPARE.value, _BY.value, _WORKDIR.value))
    elif config is None:
        raise ValueError("which config? --config FILE (see --list)")
    else:
        experiment.add_variants(config, _VARIANT.value)
        _print_or_train(config)


def _print_or_train(config: Any) -> None:
    experiment.keep_memory()
    experiment.keep_compiled()
    if _PRINT.value or _DRY_RUN.value:
        print(config if _PRINT.value else experiment.describe(config))
        return
    if not _WORKDIR.value:
        raise ValueError("where to? --workdir FOLDER")
    description = train.init_distributed(_DISTRIBUTED.value)
    if _DISTRIBUTED.value != "none":
        print(description, file=sys.stderr)
    log = print if train.is_primary() else lambda *_: None
    log(experiment.run(config, pathlib.Path(_WORKDIR.value), log, _SWEEP_INDEX.value))


if __name__ == "__main__":
    sys.exit(main())
