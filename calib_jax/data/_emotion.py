"""Emotion detection: three sets to train on, each with a shifted set of the same classes.

| training set           | classes      | shifted set        |
|------------------------|--------------|--------------------|
| `goemotions`           | Ekman's 6    | `dailydialog`      |
| `empathetic_dialogues` | Plutchik's 8 | `ssec`             |
| `isear`                | 6, shame too | `emotion_stimulus` |

As in the paper, repetitions of a text with the same class are left out.
"""

import csv
import io
import pathlib
import re
import zipfile
import zlib

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find
from calib_jax.data._rows import Row, Table, stratified, unquote

EKMAN = ("anger", "disgust", "fear", "joy", "sadness", "surprise")
PLUTCHIK = (
    "anger", "anticipation", "disgust", "fear", "joy", "sadness", "surprise", "trust",
)  # fmt: skip
WITH_SHAME = ("anger", "disgust", "fear", "joy", "sadness", "shame")

# The paper's table 6; for table 5, see `_goemotions.py`.
_EMPATHETIC = {
    "anger": "angry annoyed furious jealous",
    "anticipation": "anticipating hopeful prepared anxious",
    "disgust": "disgusted",
    "fear": "afraid terrified apprehensive",
    "joy": "joyful content proud excited grateful confident caring",
    "sadness": "sad devastated lonely disappointed guilty ashamed embarrassed nostalgic sentimental",
    "surprise": "surprised impressed",
    "trust": "trusting faithful",
}
# Answers in ISEAR without a report, without brackets and in lower case.
_NO_REPORT = re.compile(
    r"no (response|reponse|description)|blank|none|nothing|never|has not really happened"
    r"|(does not|doesn't) apply|(i am quite \w+, )?not applicable( to myself)?"
    r"|(the )?same as in \w+"
    r"|never (experienced|felt|really had)\b.{0,70}"
    r"|((honestly|sorry|normally),? |this is difficult, since )?"
    r"((i )?(can ?not|can't|do not|don't) (remember|recall|think of|describe|know|feel)"
    r"|i (have|was) (never|not) (felt|ashamed))\b.{0,70}"
)
_TAGGED = re.compile(r"<(\w+)>(.*)<[\\/]\1>")
_CAUSE = re.compile(r"<[\\/]?cause>")
_FINE_TUNING = 0.05  # fraction of a shifted set's training data that the paper fine-tunes with


def empathetic_dialogues(
    split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01
) -> Dataset:
    """Read EmpatheticDialogues: 24,847 situations with one of 32 emotions, grouped into Plutchik's eight.

    Only the situation of each conversation is used: the prompt of its first row. Paper: 18 training
    situations fewer, and one of another class in each other split, by unstated rules.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Rashkin et al., 2019, arXiv:1811.00207.
    """
    file_split = {"val": "valid"}.get(split, split)
    path = find(
        "empathetic_dialogues",
        data_dir,
        (f"empatheticdialogues/{file_split}.csv",),
        "Get empatheticdialogues.tar.gz of github.com/facebookresearch/EmpatheticDialogues and unpack "
        "it to <data folder>/empatheticdialogues/.",
    )
    classes = class_of_emotion(_EMPATHETIC, PLUTCHIK)
    table = Table("empathetic_dialogues", max_malformed)
    conversation = None
    for row in table.read(path, header="conv_id"):
        # Commas of the text are written _comma_, and quotes have no special meaning.
        cells = row.text.split(",")
        if not 8 <= len(cells) <= 9:  # the ninth: candidates for an answer
            table.malformed(row, f"{len(cells)} of 8 columns")
            continue
        text = cells[3].replace("_comma_", ",").strip()
        if cells[0] == conversation:
            continue
        conversation = cells[0]
        if not text or cells[2] not in classes:
            table.malformed(row, f"emotion {cells[2][:20]!r}" if text else "empty text")
        else:
            table.add_once(row, classes[cells[2]], text)
    return table.dataset(split, PLUTCHIK, ROWS["empathetic_dialogues"][split])


def isear(split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01) -> Dataset:
    """Read ISEAR: 7,666 reports of situations in which students felt one of seven emotions.

    Guilt, which the shifted set does not have, and answers without a report are left out. 60 % of the
    rest are the training split, 20 % each validation and test, stratified by class. Paper: 154 answers
    without a report, guilt included, by an unstated rule; here: a pattern matches 157, chosen to
    reproduce the paper's 6,395 reports; it differs by one in two classes.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Scherer and Wallbott, 1994, Journal of Personality and Social Psychology 66.
    """
    path = find(
        "isear",
        data_dir,
        ("isear/isear.csv", "isear.csv"),
        "Get isear.csv (the edition with | between fields) from "
        "github.com/sinmaniphel/py_isear_dataset and put it in <data folder>/isear/.",
    )
    table = Table("isear", max_malformed)
    for row in table.read(path, header="MYKEY"):
        cells = row.text.split("|")
        if len(cells) < 43:
            table.malformed(row, f"{len(cells)} of 43 columns")
            continue
        # Line breaks of the questionnaire have become "á" or the separator itself.
        emotion, text = cells[36], " ".join(" ".join(cells[40:-2]).replace("á", " ").split())
        if emotion == "guilt":
            table.leave_out(row, "are of guilt")
        elif emotion not in WITH_SHAME or not text:
            table.malformed(row, f"emotion {emotion[:20]!r}" if text else "empty text")
        elif _NO_REPORT.fullmatch(text.strip(" []().").lower()):
            table.leave_out(row, "report nothing")
        else:
            table.add_once(row, WITH_SHAME.index(emotion), text)
    dataset = table.dataset(split, WITH_SHAME, ROWS["isear"]["all"])
    num_train = round(0.6 * len(dataset))
    subsets = stratified(dataset.labels, (num_train, (len(dataset) - num_train) // 2))
    return dataset.take(subsets[("train", "val", "test").index(split)])


def dailydialog(
    split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01
) -> Dataset:
    """Read DailyDialog: the turns of 13,118 dialogues that have one of Ekman's emotions.

    The shifted set of `goemotions`. An id is a turn's position among all turns of the file of its
    split.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Li et al., 2017, arXiv:1710.03957.
    """
    file_split = {"val": "validation"}.get(split, split)
    path = find(
        "dailydialog",
        data_dir,
        (f"ijcnlp_dailydialog/{file_split}.zip",),
        "Get ijcnlp_dailydialog.zip from yanran.li/dailydialog and unzip it "
        "to <data folder>/ijcnlp_dailydialog/ (the archives in it stay as they are).",
    )
    table = Table("dailydialog", max_malformed)
    texts, emotions = (
        f"{file_split}/dialogues_{kind}{file_split}.txt" for kind in ("", "emotion_")
    )
    try:
        with zipfile.ZipFile(path) as archive:
            dialogues = io.BytesIO(archive.read(texts))
            labels = archive.read(emotions).decode("ascii").split("\n")
    except (zipfile.BadZipFile, zlib.error, KeyError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: expected an archive with {texts} and {emotions} ({error}); get it again"
        ) from error
    position = 0
    for dialogue in table.rows(path.parent / texts, dialogues):
        turns = dialogue.text.split("__eou__")[:-1]
        numbers = labels[dialogue.line - 1].split() if dialogue.line <= len(labels) else []
        _add_turns(table, dialogue, position, turns, numbers)
        position += len(turns)
    table.num_rows = position  # turns, not dialogues
    return table.dataset(split, EKMAN, ROWS["dailydialog"][split])


def _add_turns(
    table: Table, dialogue: Row, position: int, turns: list[str], numbers: list[str]
) -> None:
    """Add the turns of a dialogue that have an emotion: 1 to 6, in the order of `EKMAN`."""
    if len(turns) != len(numbers) or not set(numbers) <= set("0123456"):
        table.malformed(dialogue, f"{len(turns)} turns, {len(numbers)} emotions")
        return
    for i, (turn, number) in enumerate(zip(turns, numbers, strict=True)):
        if number == "0":
            table.leave_out(dialogue, "have no emotion")
        else:
            row = dialogue._replace(position=position + i)
            table.add_once(row, int(number) - 1, turn.strip())


def ssec(split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01) -> Dataset:
    """Read SSEC: 4,870 tweets, with one of Plutchik's eight emotions.

    The shifted set of `empathetic_dialogues`. Tweets to which two thirds of the annotators gave exactly
    one emotion are kept. 5 % of the training file are the training split, for fine-tuning, and the rest
    is validation, stratified by class. The paper's text swaps the two, but its table 17 has the larger
    part for validation, as here. These rules give 1,286 validation tweets; the table has 1,274. The
    files are not available to the tests.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Schuff et al., 2017, WASSA.
    """
    file_split = "test" if split == "test" else "train"
    file = f"{file_split}-combined-0.66.csv"
    path = find(
        "ssec",
        data_dir,
        tuple(f"{folder}/{file}" for folder in ("ssec-aggregated", "ssec/ssec-aggregated", "ssec")),
        "Get ssec-aggregated-withtext.zip from romanklinger.de/ssec and unzip it "
        "to <data folder>/ssec-aggregated/.",
    )
    table = Table("ssec", max_malformed)
    for row in table.read(path):
        cells = [cell.strip() for cell in row.text.split("\t")]
        if "EMPTY ANNOTATION" in row.text:
            table.leave_out(row, "are marked EMPTY ANNOTATION")
            continue
        if len(cells) != 9:
            table.malformed(row, f"{len(cells)} of 9 columns")
            continue
        *marks, text = cells
        text = unquote(text).strip()
        wrong = [m for m, e in zip(marks, PLUTCHIK, strict=True) if m.lower() not in ("---", e)]
        marked = [label for label, mark in enumerate(marks) if mark != "---"]
        if wrong or not text:
            table.malformed(row, f"emotion {wrong[0][:20]!r}" if wrong else "empty text")
        elif len(marked) == 1:
            table.add_once(row, marked[0], text)
        else:
            table.leave_out(row, "have several emotions" if marked else "have no emotion")
    dataset = table.dataset(split, PLUTCHIK, ROWS["ssec"][file_split])
    if split == "test":
        return dataset
    train, val = stratified(dataset.labels, (round(_FINE_TUNING * len(dataset)),))
    return dataset.take(train if split == "train" else val)


def emotion_stimulus(
    split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01
) -> Dataset:
    """Read Emotion-Stimulus: 2,414 sentences with one of seven emotions.

    The files are the authors' tagged ones or one csv.
    The shifted set of `isear`, which does not have surprise: left out. 5 % are the training split, for
    fine-tuning, and the rest is halved into validation and test, stratified by class. Paper: 2,199
    sentences; here: 2,197, because all repetitions are left out.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Ghazi, Inkpen and Szpakowicz, 2015, CICLing.
    """
    folders = ("emotion-stimulus", "emotion-stimulus/Dataset", "emotion-cause/Dataset", "Dataset")
    path = find(
        "emotion_stimulus",
        data_dir,
        ("emotion-stimulus/emotion-stimulus.csv", *(f"{f}/Emotion Cause.txt" for f in folders)),
        "Get the Emotion-Stimulus data (Ghazi, Inkpen and Szpakowicz, 2015: Emotion Cause.txt and "
        "No Cause.txt) and put them in <data folder>/emotion-stimulus/.",
    )
    classes = {name: label for label, name in enumerate(WITH_SHAME)}
    classes |= {"happy": classes["joy"], "sad": classes["sadness"]}
    table = Table("emotion_stimulus", max_malformed)
    tagged = path.suffix == ".txt"
    for file in (path, path.with_name("No Cause.txt")) if tagged else (path,):
        if not file.is_file():
            raise ValueError(f"{file} is missing: it has the sentences without a cause; get it too")
        for row in table.read(file, header="Emotion,Text"):
            emotion, text = (_tagged if tagged else _comma_separated)(row.text)
            text = " ".join(text.split())
            if emotion == "surprise":
                table.leave_out(row, "are of surprise")
            elif emotion not in classes or not text:
                table.malformed(row, "no sentence with its emotion")
            else:
                table.add_once(row, classes[emotion], text)
    dataset = table.dataset(split, WITH_SHAME, ROWS["emotion_stimulus"]["all"])
    num_train = round(_FINE_TUNING * len(dataset))
    subsets = stratified(dataset.labels, (num_train, (len(dataset) - num_train) // 2))
    return dataset.take(subsets[("train", "val", "test").index(split)])


def _tagged(line: str) -> tuple[str, str]:
    r"""Return emotion and sentence of a line like `<sad>It was sad <cause>to go<\cause> . <\sad>`."""
    match = _TAGGED.fullmatch(line.strip())
    return (match[1], _CAUSE.sub(" ", match[2])) if match else ("", "")


def _comma_separated(line: str) -> tuple[str, str]:
    try:
        emotion, text = next(csv.reader([line], strict=True))
    except (csv.Error, ValueError):
        return "", ""
    return emotion, text


def class_of_emotion(groups: dict[str, str], names: tuple[str, ...]) -> dict[str, int]:
    """Return the class of each emotion, given the emotions of each class, separated by spaces."""
    return {e: names.index(name) for name, emotions in groups.items() for e in emotions.split()}
