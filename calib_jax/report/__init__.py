"""Reports: tables and pictures of judged predictions. Plots return their figure and show nothing."""

from calib_jax.report._plots import plot_reliability as plot_reliability
from calib_jax.report._plots import plot_risk_coverage as plot_risk_coverage
from calib_jax.report._tables import metric_table as metric_table
