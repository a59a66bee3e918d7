"""Numbers of examples in the publishers' files, which tell a complete set from a sample of it.

The tests compare these numbers with the docstrings of the readers, and with the files of those sets
that are available there: parts of CIFAR-10, SNLI, MNLI, QQP and SVHN, and the whole of digits, 20
Newsgroups, MSRP, HellaSWAG and the emotion sets except SSEC. The other numbers are stated by the
publishers and unchecked.
"""

# Set -> published file or split -> images, posts or lines without a header; where versions differ in rows
# without a label, the number of rows with one.
ROWS = {
    "fashion_mnist": {"train": 60_000, "test": 10_000},
    "cifar10": {"train": 50_000, "test": 10_000},
    "cifar100": {"train": 50_000, "test": 10_000},
    "svhn": {"train": 73_257, "test": 26_032},
    "tiny_imagenet": {"train": 100_000, "test": 10_000},
    "imagenet": {"train": 1_281_167, "validation": 50_000},
    "newsgroups": {"train": 11_314, "test": 7_532},
    "snli": {"train": 549_367, "dev": 9_842, "test": 9_824},
    "mnli": {"train": 392_702, "dev_matched": 9_815},
    "qqp": {"train": 363_846, "dev": 40_430, "test": 0},  # test: labels were never published
    "twitter_ppdb": {
        "test": 10_370
    },  # for the training file only the number of usable pairs is known:
    "swag": {"train": 73_546, "val": 20_006},
    "hellaswag": {"train": 39_905, "val": 10_042},
    "msrp": {"train": 4_076, "test": 1_725},
    "goemotions": {"train": 43_410, "val": 5_426, "test": 5_427},
    "empathetic_dialogues": {"train": 19_532, "val": 2_769, "test": 2_546},
    "isear": {"all": 7_666},
    "dailydialog": {"train": 87_170, "val": 8_069, "test": 7_740},  # turns
    "ssec": {"train": 2_914, "test": 1_956},
    "emotion_stimulus": {"all": 2_414},
}
# Pairs of TwitterPPDB without those of three votes, as counted by its authors.
TWITTER_PPDB_PAIRS = {"train": 42_200, "test": 9_324}
