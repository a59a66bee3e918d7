"""Experiments: from data and methods to evaluated predictions."""

from calib_jax._startup import keep_compiled as keep_compiled
from calib_jax._startup import keep_memory as keep_memory
from calib_jax.experiment._config import config_text as config_text
from calib_jax.experiment._config import default_config as default_config
from calib_jax.experiment._config_files import config_files as config_files
from calib_jax.experiment._config_files import find_config as find_config
from calib_jax.experiment._config_files import find_config_flag as find_config_flag
from calib_jax.experiment._custom import custom_from_file as custom_from_file
from calib_jax.experiment._describe import describe as describe
from calib_jax.experiment._describe import listing as listing
from calib_jax.experiment._explain import explain as explain
from calib_jax.experiment._explain import in_short as in_short
from calib_jax.experiment._export import export as export
from calib_jax.experiment._load import Classifier as Classifier
from calib_jax.experiment._load import load as load
from calib_jax.experiment._load import network_from_file as network_from_file
from calib_jax.experiment._overrides import apply_overrides as apply_overrides
from calib_jax.experiment._overrides import split_overrides as split_overrides
from calib_jax.experiment._predict import predict_file as predict_file
from calib_jax.experiment._preprocessing import Preprocessing as Preprocessing
from calib_jax.experiment._run import run as run
from calib_jax.experiment._variants import add_variants as add_variants
from calib_jax.experiment._workdir import git_hash as git_hash
