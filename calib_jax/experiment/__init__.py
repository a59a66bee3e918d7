"""Experiments: from data and methods to evaluated predictions."""

from calib_jax._startup import keep_compiled as keep_compiled
from calib_jax._startup import keep_memory as keep_memory
from calib_jax.experiment._config import default_config as default_config
from calib_jax.experiment._describe import describe as describe
from calib_jax.experiment._describe import listing as listing
from calib_jax.experiment._explain import explain as explain
from calib_jax.experiment._explain import in_short as in_short
from calib_jax.experiment._run import run as run
from calib_jax.experiment._variants import add_variants as add_variants
from calib_jax.experiment._workdir import git_hash as git_hash
