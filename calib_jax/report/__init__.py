"""Reports: tables and plots of evaluated predictions. Plots return their figure and show nothing."""

from calib_jax.report._across import Point as Point
from calib_jax.report._across import plot_across as plot_across
from calib_jax.report._bin_plots import plot_correspondence as plot_correspondence
from calib_jax.report._bin_plots import plot_gamma as plot_gamma
from calib_jax.report._confusion import plot_confusion as plot_confusion
from calib_jax.report._dynamics_plots import plot_dynamics as plot_dynamics
from calib_jax.report._html import Picture as Picture
from calib_jax.report._html import Section as Section
from calib_jax.report._html import write_html as write_html
from calib_jax.report._loss_plots import plot_focal_losses as plot_focal_losses
from calib_jax.report._plots import plot_reliability as plot_reliability
from calib_jax.report._plots import plot_risk_coverage as plot_risk_coverage
from calib_jax.report._plots import plot_roc as plot_roc
from calib_jax.report._robustness import plot_labels as plot_labels
from calib_jax.report._robustness import plot_operations as plot_operations
from calib_jax.report._robustness import plot_severity as plot_severity
from calib_jax.report._robustness import robustness_table as robustness_table
from calib_jax.report._summary import summarise as summarise
from calib_jax.report._tables import metric_table as metric_table
from calib_jax.report._text import comparison_text as comparison_text
from calib_jax.report._text import summary_markdown as summary_markdown
from calib_jax.report._training_plots import plot_curves as plot_curves
from calib_jax.report._workdir import write_report as write_report
from calib_jax.report._workdirs import compare_workdirs as compare_workdirs
