"""Evaluation: predictions of any origin, their metrics before and after calibration, OOD detection."""

from calib_jax.evaluation._detection import detect as detect
from calib_jax.evaluation._evaluate import Evaluation as Evaluation
from calib_jax.evaluation._evaluate import check_calibrators as check_calibrators
from calib_jax.evaluation._evaluate import evaluate as evaluate
from calib_jax.evaluation._predictions import Predictions as Predictions
from calib_jax.evaluation._predictions import check_predictions as check_predictions
from calib_jax.evaluation._predictions import load_predictions as load_predictions
