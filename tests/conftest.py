import gc
import os
import pathlib
from collections.abc import Iterator
from importlib import metadata

import hypothesis
import pytest

# Compiled programs are kept between runs (and shared by the workers of one run).
_CACHE = pathlib.Path(__file__).parent.parent / ".jax_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling small programs that run once: quickly made ones take a third
# less of it in all. `XLA_FLAGS= pytest` tests what users have. A process that is given a flag which
# its XLA does not know ends, so only versions that are known to have these are.
if metadata.version("jaxlib").startswith("0.10."):
    _QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    _QUICK += " --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", _QUICK)


hypothesis.settings.register_profile("calib_jax", deadline=None, derandomize=True)
hypothesis.settings.load_profile("calib_jax")


# Minutes long in all: begun first, so that no worker is left alone with one of them at the end.
_LONG_FILES = (
    "test_code_quality.py",
    "test_readme.py",
    "test_tutorials.py",
    "train/test_devices.py",
    "experiment/test_sweep.py",
    "experiment/test_end_to_end.py",
    "experiment/test_load.py",
    "experiment/test_kill.py",
    "numerics/test_posthoc.py",
    "numerics/test_metrics.py",
    "posthoc/test_common.py",
    "test_doctests.py",
    "numerics/test_losses.py",
    "test_lowering.py",
)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # pytest-xdist would sort the files by number of tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {pathlib.Path(__file__).parent / name: i for i, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Leave all that was imported out of garbage collection: a tenth of the time went into it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="module", autouse=True)
def _forget_programs() -> Iterator[None]:
    """Every compiled program has maps of memory, of which a process may have 65,530 and no more."""
    yield
    import jax  # not before the variables above are set

    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """The folder with real data sets, as CALIB_JAX_DATA names it."""
    folder = os.environ.get("CALIB_JAX_DATA")
    if not folder or not pathlib.Path(folder).is_dir():
        pytest.skip("needs real data: set CALIB_JAX_DATA to the folder that holds the data sets")
    return pathlib.Path(folder)
