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
        "gap", "confidence − accuracy", "gap", "%", None,
        "mean confidence less accuracy: above zero overconfident, below zero underconfident",
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
    Metric(
        "true_accuracy", "true accuracy", "true accuracy", "%", True,
        "mean p(ŷ|x), the known probability that the predicted class is the label",
    ),
    Metric(
        "bayes_error", "Bayes error", "Bayes error", "%", None,
        "error of the best possible predictions, 1 − mean of the largest p(y|x)",
    ),
    Metric(
        "true_ece", "true ECE-15 equal mass", "true ECE", "%", False,
        "mean |confidence − p(ŷ|x)| over 15 bins of equal mass, p(ŷ|x) being the known probability "
        "that the predicted class is the label",
    ),
    Metric(
        "true_ece_30", "true ECE-30 equal mass", "true ECE-30", "%", False,
        "the same over twice as many bins: how far the true ECE depends on the bins",
    ),
    Metric(
        "true_gap", "E|p(ŷ|x) − confidence|", "true gap", "%", False,
        "the same without bins, example by example: an upper bound of the true ECE",
    ),
    Metric(
        "expected_nll", "expected NLL (nats)", "expected NLL", "nats", False,
        "NLL in expectation over the labels, which have known probabilities",
    ),
    Metric(
        "expected_brier", "expected Brier", "expected Brier", "", False,
        "Brier score in expectation over the labels, which have known probabilities",
    ),
    Metric("error", "error", "error", "%", False, "share of wrong predictions"),
    Metric(
        "disagreement", "disagreement of the seeds", "disagreement", "%", None,
        "share of pairs of seeds that predict different classes for an example",
    ),
    Metric(
        "mutual_information", "mutual information (nats)", "mutual information", "nats", None,
        "entropy of the seeds' mean probabilities less their mean entropy: what the seeds disagree on",
    ),
    Metric(
        "auroc", "AUROC", "AUROC", "%", True,
        "how often an example of another set scores higher than one of the test set",
    ),
    Metric(
        "fpr95", "FPR95", "FPR95", "%", False,
        "share of test examples that score as high as 95 % of another set do",
    ),
    Metric(
        "base_rate", "positive labels", "positive labels", "%", None,
        "share of the examples whose label is 1",
    ),
    Metric(
        "mean_positive", "mean P(y=1)", "mean P(y=1)", "%", None,
        "mean probability of the label being 1; calibrated predictions have that of the labels",
    ),
    Metric(
        "f1_positive", "F1 of y=1", "F1 of y=1", "%", True,
        "harmonic mean of precision and recall of the positive labels",
    ),
    Metric(
        "brier_positive", "Brier of P(y=1)", "Brier of P(y=1)", "", False,
        "squared distance between the probability of the label being 1 and the label",
    ),
    Metric(
        "ece_positive", "ECE-15 of P(y=1)", "ECE of P(y=1)", "%", False,
        "mean |P(y=1) − share of positive labels| over 15 bins of equal width",
    ),
    Metric(
        "ece_positive_mass", "ECE-15 of P(y=1) equal mass", "ECE of P(y=1) equal mass", "%", False,
        "mean |P(y=1) − share of positive labels| over 15 bins of equally many examples",
    ),
    Metric(
        "smooth_ece_positive", "smooth ECE of P(y=1)", "smooth ECE of P(y=1)", "%", False,
        "smooth ECE of the probability of the label being 1",
    ),
    Metric(
        "ece_top", "ECE-15 of max(p, 1−p)", "ECE of max(p, 1−p)", "%", False,
        "ECE of the confidence in the likelier of the two outcomes: that of a classifier of two classes",
    ),
    Metric(
        "auroc_positive", "AUROC of y=1", "AUROC of y=1", "%", True,
        "how often an example whose label is 1 has a higher probability than one whose label is 0",
    ),
    Metric(
        "coverage", "coverage", "coverage", "%", None,
        "how often the label is in the predicted set; the set promises a value, more is not better",
    ),
    Metric(
        "set_size", "set size", "set size", "", False,
        "mean number of classes in the predicted set",
    ),
    Metric(
        "worst_class_coverage", "worst-class coverage", "worst-class coverage", "%", True,
        "coverage of the class that is covered least",
    ),
    Metric(
        "size_stratified_coverage", "size-stratified coverage", "size-stratified coverage", "%", True,
        "coverage of the set sizes that are covered least",
    ),
)  # fmt: skip

#: All metrics by key, in the order of the rows of a table.
METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
