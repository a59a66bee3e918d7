"""Metrics: calibration, proper scores, accuracy, selective prediction and OOD detection.

All are pure, jit-able functions that return fractions, take `weights` (0 for padding) and give the
same number eagerly, under jit, in pieces (`BinStats` add) and sharded over devices.
"""

from calib_jax.metrics._binary import MultilabelSummary as MultilabelSummary
from calib_jax.metrics._binary import binary_ece as binary_ece
from calib_jax.metrics._binary import binary_summary as binary_summary
from calib_jax.metrics._binary import multilabel_summary as multilabel_summary
from calib_jax.metrics._binning import BinStats as BinStats
from calib_jax.metrics._binning import bin_stats as bin_stats
from calib_jax.metrics._bootstrap import Interval as Interval
from calib_jax.metrics._bootstrap import bootstrap as bootstrap
from calib_jax.metrics._calibration import classwise_ece as classwise_ece
from calib_jax.metrics._calibration import ece as ece
from calib_jax.metrics._calibration import ece_debiased as ece_debiased
from calib_jax.metrics._calibration import ece_sweep as ece_sweep
from calib_jax.metrics._calibration import mce as mce
from calib_jax.metrics._classification import accuracy as accuracy
from calib_jax.metrics._classification import confusion_matrix as confusion_matrix
from calib_jax.metrics._classification import f1 as f1
from calib_jax.metrics._consistency import ConsistencyTest as ConsistencyTest
from calib_jax.metrics._consistency import consistency_test as consistency_test
from calib_jax.metrics._mergeable import CalibrationError as CalibrationError
from calib_jax.metrics._proper import BrierDecomposition as BrierDecomposition
from calib_jax.metrics._proper import brier_decomposition as brier_decomposition
from calib_jax.metrics._proper import brier_score as brier_score
from calib_jax.metrics._proper import inverse_temperature as inverse_temperature
from calib_jax.metrics._proper import nll as nll
from calib_jax.metrics._proper import refinement as refinement
from calib_jax.metrics._registry import METRICS as METRICS
from calib_jax.metrics._registry import Metric as Metric
from calib_jax.metrics._selective import aurc as aurc
from calib_jax.metrics._selective import auroc as auroc
from calib_jax.metrics._selective import coverage_at_risk as coverage_at_risk
from calib_jax.metrics._selective import e_aurc as e_aurc
from calib_jax.metrics._selective import energy_score as energy_score
from calib_jax.metrics._selective import fpr_at_tpr as fpr_at_tpr
from calib_jax.metrics._selective import max_logit_score as max_logit_score
from calib_jax.metrics._selective import predictive_entropy as predictive_entropy
from calib_jax.metrics._selective import risk_at_coverage as risk_at_coverage
from calib_jax.metrics._selective import risk_coverage as risk_coverage
from calib_jax.metrics._selective import roc_curve as roc_curve
from calib_jax.metrics._sets import coverage as coverage
from calib_jax.metrics._sets import set_size as set_size
from calib_jax.metrics._sets import size_stratified_coverage as size_stratified_coverage
from calib_jax.metrics._sets import worst_class_coverage as worst_class_coverage
from calib_jax.metrics._smooth import SmoothCurve as SmoothCurve
from calib_jax.metrics._smooth import smooth_curve as smooth_curve
from calib_jax.metrics._smooth import smooth_ece as smooth_ece
from calib_jax.metrics._summary import summary as summary
from calib_jax.metrics._top_label import top_label as top_label
from calib_jax.metrics._top_label import top_label_probs as top_label_probs
from calib_jax.metrics._truth import true_calibration_error as true_calibration_error
from calib_jax.metrics._truth import truth_summary as truth_summary
