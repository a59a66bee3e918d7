"""Run an experiment: train, evaluate, calibrate, report.

    python -m calib_jax.main --config configs/quickstart.py --workdir runs/quickstart
    python -m calib_jax.main --config … --workdir … --config.method.name=adafocal --config.seeds=0,1,2

The same command again goes on where it stopped, however it stopped. Each value of the config can be
changed by --config.KEY=VALUE; --print_config shows all keys. A row with other options or training:
    --variant adafocal_10=adafocal,num_bins=10,train.epochs=50
"""

import os
import sys
from collections.abc import Mapping

import jax
from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from calib_jax import experiment, report, train

_CONFIG = config_flags.DEFINE_config_file("config", None, "File with get_config(), or its name.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for everything the experiment leaves.")
_VARIANT = flags.DEFINE_multi_string(
    "variant", [],
    "NAME=METHOD,KEY=VALUE,...: one more row; keys: options, train.X, optimizer.X, method.OBJECTIVE.X.",
)  # fmt: skip
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Show sizes, steps and memory, then stop.")
_PRINT = flags.DEFINE_bool("print_config", False, "Show the config with all overrides, then stop.")
_LIST = flags.DEFINE_bool("list", False, "Show methods, models, data sets and configs, then stop.")
_COMPARE = flags.DEFINE_list("compare", [], "Show tables of these workdirs together, then stop.")
_BY = flags.DEFINE_string("by", "", "Key of the config that --compare plots against, in --workdir.")
_SWEEP_INDEX = flags.DEFINE_integer("sweep_index", None, "Do one of the runs (see --dry_run) only.")
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
        sys.argv, overrides = experiment.split_overrides(experiment.find_config_flag(sys.argv))
        if rest := flags.FLAGS(sys.argv)[1:]:
            raise ValueError(f"not understood: {' '.join(rest)} (write --FLAG=VALUE, lists a,b,c)")
        _run(overrides)
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


def _run(overrides: Mapping[str, object]) -> None:
    logging.set_verbosity(logging.FATAL)  # orbax logs every save, and errors that are handled here
    config = _CONFIG.value
    if _LIST.value:
        print(experiment.listing())
    elif _COMPARE.value:
        print(report.compare_workdirs(_COMPARE.value, _BY.value, _WORKDIR.value))
    elif config is None:
        raise ValueError("which config? --config FILE (see --list)")
    else:
        experiment.apply_overrides(config, overrides)
        experiment.add_variants(config, _VARIANT.value)
        _print_or_train(config, config_flags.get_config_filename(flags.FLAGS["config"]))


def _print_or_train(config: ConfigDict, path: str) -> None:
    experiment.keep_memory()
    experiment.keep_compiled()
    if _PRINT.value:
        print(experiment.config_text(config))
    elif _DRY_RUN.value:
        train.init_distributed("none")
        print(experiment.describe(config, **experiment.custom_from_file(path, config)))
    elif not _WORKDIR.value:
        raise ValueError("where to? --workdir FOLDER")
    else:
        description = train.init_distributed(_DISTRIBUTED.value)
        if _DISTRIBUTED.value != "none":
            print(description, file=sys.stderr)
        options = experiment.custom_from_file(path, config) | {"sweep_index": _SWEEP_INDEX.value}
        text = experiment.run(config, _WORKDIR.value, **options)
        print(text, end="\n" if text else "")


if __name__ == "__main__":
    sys.exit(main())
