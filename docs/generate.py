# ruff: noqa: E501 (a line of a table is a line here)
"""Write the pages that list config keys, methods and data sets, from their definitions in the code.

    python docs/generate.py --write

Without the flag it says which pages are out of date; tests/test_site.py does the same.
"""

import inspect
import pathlib
import sys
from collections.abc import Iterable, Sequence

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # these very sources, wherever the package is installed

from calib_jax import data, methods  # noqa: E402
from calib_jax.data import _load  # noqa: E402
from calib_jax.experiment import _keys  # noqa: E402

GUIDES = ROOT / "docs" / "guides"
_NOTE = "Generated from the definitions in the code: `python docs/generate.py --write`.\n"
_SECTIONS = {
    "": "Run",
    "method": "Method",
    "model": "Network",
    "data": "Data",
    "optimizer": "Optimizer",
    "train": "Training",
    "checkpoint": "Checkpoints",
    "fine_tune": "Fine-tuning on a shifted set",
    "robustness": "Robustness",
}
_PAPERS = {
    "mixup_emotion": "Petre-Vlad, Caragea and Hristea, *Model Calibration for Emotion Detection*",
    "aum_mixup": "Park and Caragea (2022), [2203.07559](https://arxiv.org/abs/2203.07559)",
    "adafocal": "Ghosh, Schaaf and Gormley (2022), [2211.11838](https://arxiv.org/abs/2211.11838)",
    "autolabel": "Qin et al. (2023), [2302.11188](https://arxiv.org/abs/2302.11188)",
    "focal": "Lin et al. (2017), [1708.02002](https://arxiv.org/abs/1708.02002)",
    "augmix": "Hendrycks et al. (2020), [1912.02781](https://arxiv.org/abs/1912.02781)",
    "smoothing": "Szegedy et al. (2016), [1512.00567](https://arxiv.org/abs/1512.00567)",
    "mixup": "Zhang et al. (2018), [1710.09412](https://arxiv.org/abs/1710.09412); of features: "
    "Verma et al. (2019), [1806.05236](https://arxiv.org/abs/1806.05236)",
}
_PLAIN = "as cross entropy"
_BUCKETS = "; after each epoch a pass over the validation set per bucket"
# Method -> paper, cost beside cross entropy on as many rows.
METHODS: dict[str, tuple[str, str]] = {
    "cross_entropy": ("–", "the reference"),
    "label_smoothing": (_PAPERS["smoothing"], _PLAIN),
    "brier": ("Brier (1950)", _PLAIN),
    "mmce": ("Kumar, Sarawagi and Jain (2018), ICML", "as cross entropy; grows with the batch squared"),
    "focal": (_PAPERS["focal"], _PLAIN),
    "flsd53": ("Mukhoti et al. (2020), [2002.09437](https://arxiv.org/abs/2002.09437)", _PLAIN),
    "calfocal": (_PAPERS["adafocal"], _PLAIN),
    "adafocal": (_PAPERS["adafocal"], _PLAIN),
    "dual_focal": ("Tao, Dong and Xu (2023), [2305.13665](https://arxiv.org/abs/2305.13665)", _PLAIN),
    "mdca": ("Hebbalaguppe et al. (2022), [2203.13834](https://arxiv.org/abs/2203.13834)", _PLAIN),
    "mbls": ("Liu et al. (2022), [2111.15430](https://arxiv.org/abs/2111.15430)", _PLAIN),
    "bsce_gra": ("Lin et al. (2025), [2503.22725](https://arxiv.org/abs/2503.22725)", _PLAIN),
    "logit_norm": ("Wei et al. (2022), [2205.09310](https://arxiv.org/abs/2205.09310)", _PLAIN),
    "mixup": (_PAPERS["mixup"], _PLAIN),
    "aum_mixup": (_PAPERS["aum_mixup"], "a second training; steps also have mixed rows"),
    "sim_mixup": (_PAPERS["mixup_emotion"], "a second training; steps also have mixed rows"),
    "ea_mixup": (_PAPERS["mixup_emotion"], "a second training; steps also have mixed rows"),
    "sd": ("Furlanello et al. (2018), [1805.04770](https://arxiv.org/abs/1805.04770)", "`generations` more trainings after the teacher's"),
    "csd": (_PAPERS["mixup_emotion"], "`generations` more trainings after the teacher's"),
    "lcl": ("Suresh and Ong (2021), [2109.05427](https://arxiv.org/abs/2109.05427)", "two networks, two views of each row"),
    "randaug": ("Cubuk et al. (2020), [1909.13719](https://arxiv.org/abs/1909.13719)", "as cross entropy, and the operations"),
    "randaug_autolabel": (_PAPERS["autolabel"], f"as `randaug`{_BUCKETS}"),
    "augmix": (_PAPERS["augmix"], "as cross entropy, and the operations"),
    "augmix_jsd": (_PAPERS["augmix"], "three rows through the network for each image"),
    "augmix_autolabel": (_PAPERS["autolabel"], f"as `augmix`{_BUCKETS}"),
    "adversarial": ("Madry et al. (2018), [1706.06083](https://arxiv.org/abs/1706.06083)", "`steps` more passes forward and back in each step"),
    "ccat": ("Stutz, Hein and Schiele (2020), [1910.06259](https://arxiv.org/abs/1910.06259)", "`steps` more passes forward and back in each step"),
    "adversarial_autolabel": (_PAPERS["autolabel"], f"as `adversarial`{_BUCKETS}"),
    "mixup_autolabel": (_PAPERS["autolabel"], f"as `mixup`{_BUCKETS}"),
}  # fmt: skip
CONFIGS = {
    "quickstart": ("cross_entropy", "adafocal"),
    "adafocal/cifar10:resnet50": ("label_smoothing", "brier", "mmce", "focal", "flsd53", "calfocal"),
    "aum_mixup/snli:roberta": ("mixup", "aum_mixup"),
    "emotion/isear:roberta": ("sim_mixup", "ea_mixup", "sd", "csd", "lcl"),
    "autolabel/cifar:cifar10": (
        "randaug", "randaug_autolabel", "augmix", "augmix_jsd", "augmix_autolabel", "mixup_autolabel",
    ),
    "autolabel/adversarial:cifar10": ("adversarial", "ccat", "adversarial_autolabel"),
}  # fmt: skip
_IMAGES, _TEXTS, _PAIRS = "images", "texts", "pairs of texts"
_IMAGENET_TERMS = "ImageNet's terms of access: research, not commercial"
# Data set -> kind of examples, license as its publisher states it, publisher.
DATA_SETS: dict[str, tuple[str, str, str]] = {
    "digits": (_IMAGES, "CC BY 4.0 (UCI), in scikit-learn (BSD)", "scikit-learn"),
    "fashion_mnist": (_IMAGES, "MIT", "github.com/zalandoresearch/fashion-mnist"),
    "cifar10": (_IMAGES, "none stated", "www.cs.toronto.edu/~kriz/cifar.html"),
    "cifar100": (_IMAGES, "none stated", "www.cs.toronto.edu/~kriz/cifar.html"),
    "cifar10_c": (_IMAGES, "CC BY 4.0", "zenodo.org/records/2535967"),
    "cifar100_c": (_IMAGES, "CC BY 4.0", "zenodo.org/records/3555552"),
    "svhn": (_IMAGES, "not commercial", "ufldl.stanford.edu/housenumbers"),
    "tiny_imagenet": (_IMAGES, _IMAGENET_TERMS, "cs231n.stanford.edu"),
    "imagenet": (_IMAGES, _IMAGENET_TERMS, "image-net.org"),
    "imagenet_c": (_IMAGES, "CC BY 4.0; images under ImageNet's terms", "zenodo.org/records/2235448"),
    "newsgroups": (_TEXTS, "none stated", "qwone.com/~jason/20Newsgroups"),
    "snli": (_PAIRS, "CC BY-SA 4.0", "nlp.stanford.edu/projects/snli"),
    "mnli": (_PAIRS, "OANC and others, by genre", "cims.nyu.edu/~sbowman/multinli"),
    "qqp": (_PAIRS, "Quora's terms of service, not commercial", "gluebenchmark.com/tasks"),
    "twitter_ppdb": (_PAIRS, "none stated", "languagenet.github.io"),
    "msrp": (_PAIRS, "Microsoft's, in the download", "microsoft.com/download, id 52398"),
    "swag": ("multiple choices", "MIT", "github.com/rowanz/swagaf"),
    "hellaswag": ("multiple choices", "MIT", "github.com/rowanz/hellaswag"),
    "goemotions": (_TEXTS, "CC BY 4.0", "github.com/google-research/google-research"),
    "dailydialog": (_TEXTS, "CC BY-NC-SA 4.0", "yanran.li/dailydialog"),
    "empathetic_dialogues": (_TEXTS, "CC BY-NC 4.0", "github.com/facebookresearch/EmpatheticDialogues"),
    "ssec": (_TEXTS, "none stated", "romanklinger.de/ssec"),
    "isear": (_TEXTS, "none stated", "github.com/sinmaniphel/py_isear_dataset"),
    "emotion_stimulus": (_TEXTS, "none stated", "Ghazi, Inkpen and Szpakowicz (2015)"),
}  # fmt: skip

# Sets that this package makes itself.
GENERATED = {
    "known_truth": (
        "features, texts or images", "drawn by this library; images under their set's", "this library",
    ),
}  # fmt: skip


def pages() -> dict[pathlib.Path, str]:
    """Return the text of each page by its file."""
    return {
        GUIDES / "config_keys.md": config_keys(),
        GUIDES / "method_list.md": method_list(),
        GUIDES / "data_sets.md": data_sets(),
    }


def config_keys() -> str:
    """Return the page of all keys of a config: meaning, default and range."""
    lines = [
        "# Config keys",
        "",
        _NOTE,
        "`calib-jax run --config NAME --print_config` shows the same text with the values of a config; "
        "`--config.KEY=VALUE` sets a value. Options of a method, `config.method.NAME.OPTION`, are "
        "in the [list of methods](method_list.md), options of readers in [Data](../data.md).",
    ]
    for section, title in _SECTIONS.items():
        keys = [path for path in _keys.KEYS if path.rpartition(".")[0] == section]
        rows = [_key_row(path, _keys.KEYS[path]) for path in keys]
        lines += ["", f"## {title}", "", *_table(("key", "meaning", "default", "values"), rows)]
    return "\n".join([*lines, "", _keys.FOOTNOTE, ""])


def _key_row(path: str, key: _keys.Key) -> tuple[str, str, str, str]:
    return f"`config.{path}`", key.meaning, _value(key.default), _range(key.check, key.default)


def method_list() -> str:
    """Return the page of all methods: what they are, paper, cost, config line and options."""
    lines = [
        "# Methods",
        "",
        _NOTE,
        "Costs are relative to cross entropy on as many rows; [Performance](../benchmarks.md) has measured times, "
        "[Which method?](which_method.md) says when each is worth it. Every method takes any data and network, "
        "except those on images. An option is set by `--config.method.NAME.OPTION=VALUE`; to list several methods "
        "in `config.method.name` compares them.",
    ]
    for name in methods.NAMES:
        paper, cost = METHODS[name]
        config = next((c for c, names in CONFIGS.items() if name in names), "quickstart")
        lines += [
            "",
            f"## `{name}`",
            "",
            f"- Paper: {paper}",
            f"- Cost: {cost}",
            f"- `calib-jax run --config {config} --config.method.name={name} --workdir runs/{name}`",
        ]
        described = methods.option_docs(name)
        rows = [
            (
                f"`{o}`",
                described.get(o, ""),
                _value(default),
                _range(_keys._OPTIONS.get(o), default),
            )
            for o, default in methods.options(name).items()
        ]
        if rows:
            lines += ["", *_table(("option", "meaning", "default", "values"), rows)]
    return "\n".join([*lines, ""])


def data_sets() -> str:
    """Return the page of all data sets: examples, license and source; and the formats of own files."""
    lines = [
        "# Data sets",
        "",
        _NOTE,
        "Where each is expected on the disk: [Data](../data.md). Nothing is downloaded. Licenses are as the publishers "
        "state them, to our knowledge: read them at the source before you use a set for anything but research.",
        "",
    ]
    rows = []
    for name in (name for name in data.NAMES if name not in data.FORMATS):
        kind, license_, source = (DATA_SETS | GENERATED)[name]
        first = (inspect.getdoc(_load._READERS[name]) or "").splitlines()[0].rstrip(".")
        what = first.partition(": ")[2] or first
        rows.append((f"`{name}`", kind, what, license_, source))
    lines += _table(("name", "kind", "examples", "license", "source"), rows)
    formats = ", ".join(f"`{name}`" for name in data.FORMATS)
    lines += ["", f"Your own files: {formats} ([Your own data](../data.md#your-own-data)).", ""]
    return "\n".join(lines)


def _value(value: object) -> str:
    shown = value.__name__ if callable(value) else repr(value)
    return f"`{shown}`".replace("|", "\\|")


def _range(check: _keys.Check | None, default: object) -> str:
    """Return what is expected of a value, in the words of the error message; else its type."""
    if check is not None:
        return check.expected("").removeprefix("expected ").replace("|", "\\|")
    names = {
        bool: "true or false",
        int: "whole number",
        float: "number",
        str: "text",
        tuple: "list",
    }
    return names.get(type(default), "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return [line(head), line(["---"] * len(head)), *map(line, rows)]


def main() -> int:
    """Write the pages, or say which are out of date."""
    old = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path in old:
        if "--write" in sys.argv:
            path.write_text(pages()[path], encoding="utf-8")
        print(path.relative_to(ROOT), "written" if "--write" in sys.argv else "is out of date")
    return int(bool(old) and "--write" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
