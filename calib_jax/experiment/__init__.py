"""Experiments: from data and methods to judged predictions."""

from calib_jax.experiment._config import default_config as default_config
from calib_jax.experiment._describe import describe as describe
from calib_jax.experiment._describe import in_short as in_short
from calib_jax.experiment._describe import listing as listing
from calib_jax.experiment._judge import CALIBRATORS as CALIBRATORS
from calib_jax.experiment._judge import Judgement as Judgement
from calib_jax.experiment._judge import judge as judge
from calib_jax.experiment._llm_chat import Chat as Chat
from calib_jax.experiment._llm_prompts import LlmSettings as LlmSettings
from calib_jax.experiment._llm_run import describe_llm as describe_llm
from calib_jax.experiment._llm_run import plan_llm as plan_llm
from calib_jax.experiment._llm_run import run_llm as run_llm
from calib_jax.experiment._predictions import Predictions as Predictions
from calib_jax.experiment._predictions import load_predictions as load_predictions
from calib_jax.experiment._run import run as run
from calib_jax.experiment._startup import keep_compiled as keep_compiled
from calib_jax.experiment._startup import keep_memory as keep_memory
from calib_jax.experiment._variants import VARIANT_HELP as VARIANT_HELP
from calib_jax.experiment._variants import add_variants as add_variants
from calib_jax.experiment._workdir import git_hash as git_hash
