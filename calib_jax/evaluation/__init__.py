"""Evaluation of predictions of any origin: metrics before and after calibration, OOD, robustness."""

from calib_jax.evaluation._detection import detect as detect
from calib_jax.evaluation._evaluate import Evaluation as Evaluation
from calib_jax.evaluation._evaluate import check_calibrators as check_calibrators
from calib_jax.evaluation._evaluate import evaluate as evaluate
from calib_jax.evaluation._predictions import Predictions as Predictions
from calib_jax.evaluation._predictions import check_predictions as check_predictions
from calib_jax.evaluation._predictions import load_predictions as load_predictions
from calib_jax.evaluation._robustness import attack_accuracy as attack_accuracy
from calib_jax.evaluation._robustness import corruption_metrics as corruption_metrics
from calib_jax.evaluation._robustness import shift_metrics as shift_metrics
