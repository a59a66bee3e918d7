"""The sections of what methods logged per bin or bucket, with the first seed of each method."""

from collections.abc import Mapping, Sequence

from calib_jax.report._bin_plots import (
    plot_bins,
    plot_correspondence,
    plot_gamma,
    plot_training_bins,
)
from calib_jax.report._page import Picture, Section
from calib_jax.report._read import Run
from calib_jax.report._training_plots import plot_labels
from calib_jax.report._types import Rows


def label_sections(rows: Mapping[str, Sequence[Rows]], runs: Mapping[str, Run]) -> list[Section]:
    """Return the label confidences that AutoLabel has learned.

    Args:
      rows: Lines of the log, by method and seed.
      runs: First run of each method.
    """
    sections = []
    for method, seeds in rows.items():
        logged = [row for row in seeds[0] if "method/label_confidence" in row]
        if not logged:
            continue
        meaning = logged[-1].get("method/bucket_meaning", "")
        picture = Picture(
            plot_labels(seeds[0]),
            f"Confidence in the label of each distance bucket over the epochs of {method}",
            f"What the table of AutoLabel gives to the true class. {meaning} "
            f"Seed {runs[method].record['seed']}.",
            f"labels_{method}",
        )
        sections.append(Section(f"Label confidences of {method}", pictures=[picture]))
    return sections


def bin_sections(rows: Mapping[str, Sequence[Rows]], runs: Mapping[str, Run]) -> list[Section]:
    """Return the calibration bins of the methods over the epochs.

    Args:
      rows: Lines of the log, by method and seed.
      runs: First run of each method.
    """
    sections = []
    monitored = {m: s for m, s in rows.items() if any("method/val_gap" in row for row in s[0])}
    if len(monitored) > 1:
        picture = Picture(
            plot_bins(monitored),
            f"Gap and confidence in three bins over the epochs of {', '.join(monitored)}",
            "Above: confidence less accuracy on validation, mean over the seeds in a band of a "
            "standard deviation. Below: mean probability that training examples in the bin give "
            "their label (solid), and confidence on validation (starred).",
            "bins",
        )
        sections.append(Section("Calibration of all methods, bin by bin", pictures=[picture]))
    for method, (first, *_) in rows.items():
        sections += _sections_of_method(method, first, runs[method].record["seed"])
    return sections


def _sections_of_method(method: str, rows: Rows, seed: int) -> list[Section]:
    logged = {key for row in rows for key in row}
    sections = []
    if logged & {"method/gamma", "method/gap", "method/val_gap"}:
        what = "γ" if "method/gamma" in logged else "Calibration gap"
        picture = Picture(
            plot_gamma(rows),
            f"{what} per probability bin over the epochs of {method}",
            f"{_gamma_caption(logged)} Bins hold equally many examples; their ranges are the last "
            f"ones. Seed {seed}.",
            f"bins_{method}",
        )
        sections.append(Section(f"{what} of {method}, bin by bin", pictures=[picture]))
    if "method/train_confidence" in logged:
        picture = Picture(
            plot_correspondence(rows),
            f"Confidence in training and validation over the epochs of {method}, three bins",
            "Training examples are put in the bins of the validation set by the probability "
            "of their label. Where its confidence moves, that of validation should follow; "
            "the shaded distance to the accuracy is the calibration gap. "
            f"Ranges are the last ones. Seed {seed}.",
            f"correspondence_{method}",
        )
        title = f"Training and validation confidence of {method}"
        sections.append(Section(title, pictures=[picture]))
    if "method/train_own_confidence" in logged:
        picture = Picture(
            plot_training_bins(rows),
            f"Training confidence of {method} by true and predicted class, and in own bins",
            "Above: in the true and in the predicted class, by bins of validation. Below: "
            "training and validation each in bins of their own that hold equally many examples; "
            f"shaded, the ranges of those bins. Seed {seed}.",
            f"training_bins_{method}",
        )
        title = f"Training confidence of {method} in other bins"
        sections.append(Section(title, pictures=[picture], folded=True))
    return sections


def _gamma_caption(logged: set[str]) -> str:
    if "method/gamma" in logged:
        return (
            "Below: γ, focal loss above zero and inverse focal below. On top, where it was "
            "recorded: confidence less accuracy of the bin on validation, which drives it."
        )
    steering = ", which drives the loss" if "method/gap" in logged else ""
    return f"Confidence less accuracy of the bin on validation{steering}."
