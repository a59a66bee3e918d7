"""The metric registry: how every metric is named, in what unit it is shown, and what it means."""

from typing import NamedTuple


class Metric(NamedTuple):
    """The description of a metric, whose values are fractions (or nats) everywhere but in tables.

    Attributes:
      key: Name in results, logs and dicts such as that of `summary`.
      title: Name in a table with a row per metric.
      short: Name in a table with a column per metric.
      unit: `%`, `nats` or empty.
      higher_is_better: Direction; `None` if neither is better.
      definition: One sentence for readers of a report.
    """

    key: str
    title: str
    short: str
    unit: str
    higher_is_better: bool | None
    definition: str

    @property
    def is_percent(self) -> bool:
        """Return whether tables show the metric in percent."""
        return self.unit == "%"

    @property
    def scale(self) -> int:
        """Return the factor from a value to the number in a table."""
        return 100 if self.is_percent else 1

    @property
    def heading(self) -> str:
        """Return the title with the unit percent."""
        return f"{self.title} %" if self.is_percent else self.title

    @property
    def short_heading(self) -> str:
        """Return the short title with the unit percent."""
        return f"{self.short} %" if self.is_percent else self.short


_ALL = (
    Metric("accuracy", "accuracy", "accuracy", "%", True, "share of right predictions"),
    Metric(
        "f1_macro", "F1 macro", "F1 macro", "%", True,
        "harmonic mean of precision and recall of each class, averaged over the classes",
    ),
    Metric(
        "f1_weighted", "F1 weighted", "F1 weighted", "%", True,
        "the same, averaged with the numbers of the classes' examples as weights",
    ),
    Metric(
        "confidence", "mean confidence", "confidence", "%", None,
        "mean probability of the predicted class",
    ),
    Metric(
        "nll", "NLL (nats)", "NLL", "nats", False,
        "mean negative log likelihood of the labels, in nats",
    ),
    Metric(
        "refinement", "NLL after best T", "NLL after best T", "nats", False,
        "NLL after the temperature that is best for these examples: what calibration cannot repair",
    ),
    Metric(
        "brier", "Brier", "Brier", "", False,
        "squared distance between probabilities and one-hot label, summed over the classes",
    ),
    Metric(
        "ece", "ECE-15 equal width", "ECE equal width", "%", False,
        "mean |confidence − accuracy| over 15 bins of equal width, weighted by their examples; the "
        "most common one. Confidence is that of the predicted class",
    ),
    Metric(
        "ece_10", "ECE-10 equal width", "ECE-10", "%", False,
        "the same over ten bins that are closed on the left, as papers on language report it",
    ),
    Metric(
        "ece_mass", "ECE-15 equal mass", "ECE equal mass", "%", False,
        "the same with bins that hold equally many examples, so that the crowded end near 1 is "
        "looked at more closely",
    ),
    Metric(
        "ece_debiased", "ECE-15 debiased L2", "ECE debiased", "%", False,
        "root-mean-square over the bins, less what sampling noise alone would show",
    ),
    Metric(
        "ece_sweep", "ECE sweep equal mass", "ECE sweep", "%", False,
        "with as many bins, of equal mass or width, as leave the accuracies rising",
    ),
    Metric(
        "ece_sweep_width", "ECE sweep equal width", "ECE sweep equal width", "%", False,
        "with as many bins of equal width as leave the accuracies rising",
    ),
    Metric(
        "smooth_ece", "smooth ECE", "smooth ECE", "%", False,
        "the same idea with a kernel that chooses its own width in place of bins",
    ),
    Metric(
        "classwise_ece", "classwise ECE-15", "classwise ECE", "%", False,
        "equal-width ECE of each class's probability, averaged over the classes",
    ),
    Metric(
        "mce", "MCE-15", "MCE", "%", False,
        "the largest gap of a single equal-width bin; noisy, as that bin may be nearly empty",
    ),
    Metric(
        "aurc", "AURC", "AURC", "%", False,
        "error rate of the most confident part, averaged over all sizes of that part",
    ),
    Metric(
        "e_aurc", "E-AURC", "E-AURC", "%", False,
        "AURC less that of the same predictions in the best possible order",
    ),
    Metric("error", "error", "error", "%", False, "share of wrong predictions"),
    Metric(
        "auroc", "AUROC", "AUROC", "%", True,
        "how often an example of another set scores higher than one of the test set",
    ),
    Metric(
        "fpr95", "FPR95", "FPR95", "%", False,
        "share of test examples that score as high as 95 % of another set do",
    ),
)  # fmt: skip

#: All metrics by key, in the order of the rows of a table.
METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
