"""Reports: tables and plots of evaluated predictions. Plots return their figure and show nothing.

The modules are imported on first use: matplotlib takes as long to import as JAX.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calib_jax.report._bin_plots import plot_bins as plot_bins
    from calib_jax.report._bin_plots import plot_correspondence as plot_correspondence
    from calib_jax.report._bin_plots import plot_gamma as plot_gamma
    from calib_jax.report._bin_plots import plot_training_bins as plot_training_bins
    from calib_jax.report._common_errors import common_errors as common_errors
    from calib_jax.report._common_errors import plot_common_errors as plot_common_errors
    from calib_jax.report._compare import compare_workdirs as compare_workdirs
    from calib_jax.report._compare_plots import Point as Point
    from calib_jax.report._compare_plots import plot_across as plot_across
    from calib_jax.report._confusion import plot_confusion as plot_confusion
    from calib_jax.report._dynamics_plots import plot_dynamics as plot_dynamics
    from calib_jax.report._evaluation_page import write_evaluation_page as write_evaluation_page
    from calib_jax.report._group_tables import class_table as class_table
    from calib_jax.report._group_tables import group_table as group_table
    from calib_jax.report._group_tables import outcomes as outcomes
    from calib_jax.report._label_page import label_table as label_table
    from calib_jax.report._label_page import write_label_page as write_label_page
    from calib_jax.report._loss_plots import plot_focal_losses as plot_focal_losses
    from calib_jax.report._page import Picture as Picture
    from calib_jax.report._page import Section as Section
    from calib_jax.report._page import save_plot as save_plot
    from calib_jax.report._page import write_html as write_html
    from calib_jax.report._prediction_plots import plot_reliability as plot_reliability
    from calib_jax.report._prediction_plots import plot_risk_coverage as plot_risk_coverage
    from calib_jax.report._prediction_plots import plot_roc as plot_roc
    from calib_jax.report._read import settings_text as settings_text
    from calib_jax.report._report import write_report as write_report
    from calib_jax.report._robustness import plot_operations as plot_operations
    from calib_jax.report._robustness import plot_severity as plot_severity
    from calib_jax.report._robustness import robustness_table as robustness_table
    from calib_jax.report._set_table import set_table as set_table
    from calib_jax.report._summary import summarize as summarize
    from calib_jax.report._summary_text import comparison_text as comparison_text
    from calib_jax.report._summary_text import summary_markdown as summary_markdown
    from calib_jax.report._table import metric_table as metric_table
    from calib_jax.report._training_plots import plot_curves as plot_curves
    from calib_jax.report._training_plots import plot_labels as plot_labels
    from calib_jax.report._types import PLOT_FORMATS as PLOT_FORMATS
    from calib_jax.report._verdict import difference_table as difference_table
    from calib_jax.report._verdict import verdict as verdict

# Where each name is, as above (`tests/test_lazy_imports.py`).
_MODULES = {
    "plot_bins": "_bin_plots",
    "plot_correspondence": "_bin_plots",
    "plot_gamma": "_bin_plots",
    "plot_training_bins": "_bin_plots",
    "common_errors": "_common_errors",
    "plot_common_errors": "_common_errors",
    "compare_workdirs": "_compare",
    "Point": "_compare_plots",
    "plot_across": "_compare_plots",
    "plot_confusion": "_confusion",
    "plot_dynamics": "_dynamics_plots",
    "write_evaluation_page": "_evaluation_page",
    "class_table": "_group_tables",
    "group_table": "_group_tables",
    "outcomes": "_group_tables",
    "label_table": "_label_page",
    "write_label_page": "_label_page",
    "plot_focal_losses": "_loss_plots",
    "PLOT_FORMATS": "_types",
    "Picture": "_page",
    "Section": "_page",
    "save_plot": "_page",
    "write_html": "_page",
    "plot_reliability": "_prediction_plots",
    "plot_risk_coverage": "_prediction_plots",
    "plot_roc": "_prediction_plots",
    "settings_text": "_read",
    "write_report": "_report",
    "plot_operations": "_robustness",
    "plot_severity": "_robustness",
    "robustness_table": "_robustness",
    "set_table": "_set_table",
    "summarize": "_summary",
    "comparison_text": "_summary_text",
    "summary_markdown": "_summary_text",
    "metric_table": "_table",
    "plot_curves": "_training_plots",
    "plot_labels": "_training_plots",
    "difference_table": "_verdict",
    "verdict": "_verdict",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"calib_jax.report.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'calib_jax.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
