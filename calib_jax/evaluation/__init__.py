"""Evaluation of predictions of any origin: metrics before and after calibration, OOD, robustness."""

from calib_jax.evaluation._align import align_classes as align_classes
from calib_jax.evaluation._calibrate import check_calibrators as check_calibrators
from calib_jax.evaluation._command import run_apply as run_apply
from calib_jax.evaluation._command import run_evaluation as run_evaluation
from calib_jax.evaluation._detection import detect as detect
from calib_jax.evaluation._ensemble import disagreement as disagreement
from calib_jax.evaluation._ensemble import ensemble_logits as ensemble_logits
from calib_jax.evaluation._ensemble import evaluate_ensemble as evaluate_ensemble
from calib_jax.evaluation._ensemble import mutual_information as mutual_information
from calib_jax.evaluation._errors import confident_errors as confident_errors
from calib_jax.evaluation._errors import num_kept as num_kept
from calib_jax.evaluation._evaluate import Evaluation as Evaluation
from calib_jax.evaluation._evaluate import compare as compare
from calib_jax.evaluation._evaluate import evaluate as evaluate
from calib_jax.evaluation._predictions import Predictions as Predictions
from calib_jax.evaluation._predictions import check_predictions as check_predictions
from calib_jax.evaluation._read import load_predictions as load_predictions
from calib_jax.evaluation._robustness import attack_accuracy as attack_accuracy
from calib_jax.evaluation._robustness import corruption_metrics as corruption_metrics
from calib_jax.evaluation._robustness import shift_metrics as shift_metrics
from calib_jax.evaluation._shift import corrupted_images as corrupted_images
from calib_jax.evaluation._shift import operated_images as operated_images
from calib_jax.evaluation._warnings import validation_warnings as validation_warnings
