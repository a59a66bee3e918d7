"""Run an experiment: train, evaluate, calibrate, report.

    python -m calib_jax.main --config configs/quickstart.py --workdir runs/quickstart
    python -m calib_jax.main --config … --workdir … --config.method.name=adafocal --config.seeds=0,1,2

The same command again goes on where it stopped, however it stopped. Any value of the config can be
changed by --config.KEY=VALUE (--print_config shows all keys), and rows be added by --variant.
"""

import os
import pathlib
import sys
import traceback

import jax
from absl import flags, logging
from ml_collections import config_flags

from calib_jax import experiment, report, train

_CONFIG = config_flags.DEFINE_config_file("config", None, "File with get_config().")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for everything the experiment leaves.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Show sizes, steps and memory, then stop.")
_PRINT = flags.DEFINE_bool("print_config", False, "Show the config with all overrides, then stop.")
_DISTRIBUTED = flags.DEFINE_enum(
    "distributed", "none", train.MODES,
    "Several processes: env reads JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; "
    "auto asks Slurm, Open MPI, the TPU pod or Kubernetes (see launch/).",
)  # fmt: skip
_SWEEP_INDEX = flags.DEFINE_integer(
    "sweep_index", None, "Do one of the runs (see --dry_run), while other jobs do the others."
)
_LIST = flags.DEFINE_bool("list", False, "Show methods, models, data sets and configs, then stop.")
_VARIANT = flags.DEFINE_multi_string("variant", [], experiment.VARIANT_HELP)
_COMPARE = flags.DEFINE_list("compare", [], "Show tables of these workdirs together, then stop.")


def main() -> int:
    if not sys.argv[1:] or "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__ + "\n" + _flag_help())
        return 0
    try:
        if rest := flags.FLAGS(sys.argv)[1:]:
            raise ValueError(f"not understood: {' '.join(rest)} (write --FLAG=VALUE, lists a,b,c)")
        return _run()
    except train.Stopped as stopped:
        print(f"{stopped}. The same command goes on from there.", file=sys.stderr)
        return 130
    except (NameError, ImportError, SyntaxError) as error:
        if flags.FLAGS.is_parsed():
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = error if isinstance(error, SyntaxError) else last  # in the config file
        print(f"error: {where.filename}, line {where.lineno}: {error}", file=sys.stderr)
        return 2
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        why = experiment.in_short(error).splitlines()[0]
        print(f"error: the processes lost each other ({why}). ", end="", file=sys.stderr)
        print("The same command goes on from the last checkpoint.", file=sys.stderr, flush=True)
        os._exit(1)  # an ordinary end would wait for those that are gone
    except (flags.Error, ValueError, AttributeError, KeyError, TypeError, OSError) as error:
        if flags.FLAGS.is_parsed() and not isinstance(error, ValueError | OSError):
            raise  # not the user's doing
        print(f"error: {experiment.in_short(error)}", file=sys.stderr)
        return 2


def _run() -> int:
    logging.set_verbosity(logging.FATAL)  # orbax tells of every save, and of what we mend ourselves
    if _LIST.value or _COMPARE.value:
        print(experiment.listing() if _LIST.value else report.compare_workdirs(_COMPARE.value))
        return 0
    if _CONFIG.value is None:
        raise ValueError("which config? --config FILE (see --list)")
    config = experiment.add_variants(_CONFIG.value, _VARIANT.value)
    experiment.keep_memory()
    experiment.keep_compiled()
    if _PRINT.value or _DRY_RUN.value:
        print(config if _PRINT.value else experiment.describe(config))
        return 0
    if not _WORKDIR.value:
        raise ValueError("where to? --workdir FOLDER")
    found = train.join(_DISTRIBUTED.value)
    if _DISTRIBUTED.value != "none":
        print(found, file=sys.stderr)
    say = print if train.is_first() else lambda *_: None
    say(experiment.run(config, pathlib.Path(_WORKDIR.value), say, _SWEEP_INDEX.value))
    return 0


def _flag_help() -> str:
    own = "config workdir variant dry_run print_config list compare sweep_index distributed"
    return "\n".join(f"  --{name:<14}{flags.FLAGS[name].help}" for name in own.split())


if __name__ == "__main__":
    sys.exit(main())
