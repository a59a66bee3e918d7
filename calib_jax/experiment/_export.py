"""A trained classifier in formats that need no calib_jax: `jax.export`, and Hugging Face's layout."""

import json
import pathlib
from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from calib_jax import _io, data, models, posthoc, train
from calib_jax.experiment._load import UNCALIBRATED, Classifier

_PLATFORMS = ("cpu", "cuda", "tpu")
# The script of an export; {inputs} is one of the three below.
_SCRIPT = '''"""Classify with the program in this folder: python predict.py {usage}

Needs jax, flatbuffers{needs}; not calib_jax.
"""
import json, pathlib, sys
import jax.export, numpy as np

folder = pathlib.Path(__file__).parent
about = json.loads((folder / "classifier.json").read_text())
params = dict(np.load(folder / "params.npz"))
program = jax.export.deserialize(bytearray((folder / "program.jax").read_bytes()))
{inputs}
for row in np.asarray(program.call(params, inputs)):
    print(about["label_names"][row.argmax()], *row, sep="\\t")
'''
_ARRAYS = 'inputs = {{"{name}": np.load(sys.argv[1])["{name}"].astype("{dtype}")}}'
_TOKENS = """import transformers
rows = [line.rstrip("\\n").split("\\t") for line in open(sys.argv[1], encoding="utf-8")]
pairs = [row[:1] + row[i : i + 1] for row in rows for i in range(1, max(len(row), 2))]
tokens = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")(
    *map(list, zip(*pairs)), truncation=True, max_length=about["max_length"], padding=True)
tokens["mask"] = tokens["attention_mask"]
shape = (len(rows), *about["shape"], -1)
inputs = {{name: np.array(tokens[name], np.int32).reshape(shape) for name in about["arrays"]}}"""
_WORDS = """rows = {{word: row for row, word in enumerate(about["words"], 1)}}
spaces = str.maketrans(dict.fromkeys(about["separators"], " "))
inputs = {{"input_ids": np.array([
    ([0] * {length} + [rows[word] for word in line.lower().translate(spaces).split() if word in rows])
    [-{length}:] for line in open(sys.argv[1], encoding="utf-8")], np.int32)}}"""


def export(
    classifier: Classifier, folder: pathlib.Path, calibrator: str | None = None
) -> list[str]:
    """Write a classifier to a folder that is used without calib_jax.

    The folder has `program.jax`, a `jax.export` program for CPU, CUDA and TPU from the network's arrays
    to calibrated probabilities, for any number of rows (and tokens); its parameters, `params.npz`; and
    `predict.py`, which runs it. Of an encoder there is `huggingface/`, too, for PyTorch.

    Args:
      classifier: Classifier to export.
      folder: Folder to write; created if needed.
      calibrator: Calibrator to include, as in `Classifier.predict_proba`.

    Returns:
      One line for the user on each thing that was written.
    """
    name = classifier.calibrator_name(calibrator)
    folder.mkdir(parents=True, exist_ok=True)
    _write_program(classifier, folder, name)
    _write_script(classifier, folder, name)
    lines = [f"{folder}/program.jax, params.npz: for {', '.join(_PLATFORMS)}; calibrator: {name}"]
    lines.append(f"{folder}/predict.py: runs it without calib_jax")
    if isinstance(classifier.network.module, models.TextClassifier | models.ViT):
        lines.append(_write_huggingface(classifier, folder / "huggingface", name))
    return lines


def _write_program(classifier: Classifier, folder: pathlib.Path, calibrator: str) -> None:
    network = (classifier.params, classifier.network.model_state)
    leaves, structure = jax.tree_util.tree_flatten_with_path(network)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    params = dict(zip(names, (leaf for _, leaf in leaves), strict=True))
    calibrate = classifier.calibrate(calibrator)

    def program(params: dict[str, jax.Array], arrays: dict[str, jax.Array]) -> jax.Array:
        weights, state = jax.tree.unflatten(structure, [params[name] for name in names])
        apply = classifier.network.bind(state)
        return calibrate(apply(weights, train.scale_images(arrays))[0])

    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in params.items()}
    exported = jax_export.export(jax.jit(program), platforms=_PLATFORMS)(
        shapes, _array_shapes(classifier)
    )
    try:
        content = exported.serialize()
    except ImportError:
        raise ValueError("export: needs flatbuffers: pip install 'calib_jax[export]'") from None
    _io.write_atomic(folder / "program.jax", bytes(content))
    _io.write_npz(folder / "params.npz", **{k: np.asarray(x) for k, x in params.items()})


def _array_shapes(classifier: Classifier) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the arrays of the program, for any number of rows and, with a mask, of tokens."""
    preprocessing = classifier.preprocessing
    has_mask = "mask" in preprocessing.arrays
    scope = jax_export.SymbolicScope([f"length <= {preprocessing.max_length}"] if has_mask else [])
    shapes = {}
    for name, shape in preprocessing.arrays.items():
        sizes = ["rows", *map(str, shape)]
        if has_mask:
            sizes[-1] = "length"
        symbolic = jax_export.symbolic_shape(", ".join(sizes), scope=scope)
        shapes[name] = jax.ShapeDtypeStruct(symbolic, preprocessing.dtypes[name])
    return shapes


def _write_script(classifier: Classifier, folder: pathlib.Path, calibrator: str) -> None:
    preprocessing = classifier.preprocessing
    about: dict[str, Any] = {"label_names": classifier.label_names, "calibrator": calibrator}
    if preprocessing.words:
        usage, needs = "TEXTS.txt (one on each line)", ""
        inputs = _WORDS.format(length=preprocessing.max_length)
        about |= {"words": preprocessing.words, "separators": data.SEPARATORS}
    elif preprocessing.tokenizer:
        usage = "TEXTS.txt (one on each line; tabs before a second text or choices)"
        inputs, needs = _TOKENS.format(), ", transformers"
        about |= {"max_length": preprocessing.max_length, "arrays": tuple(preprocessing.arrays)}
        about["shape"] = preprocessing.inputs.get("choices", ())
        data.copy_tokenizer(preprocessing.tokenizer, folder / "tokenizer")
    else:
        (name,) = preprocessing.arrays
        usage, needs = f"INPUTS.npz (with an array {name})", ""
        inputs = _ARRAYS.format(name=name, dtype=preprocessing.dtypes[name])
    _io.write_json(folder / "classifier.json", about)
    script = _SCRIPT.format(usage=usage, needs=needs, inputs=inputs)
    _io.write_atomic(folder / "predict.py", script)


def _write_huggingface(classifier: Classifier, folder: pathlib.Path, calibrator: str) -> str:
    """Write the encoder for PyTorch's `transformers`; return a line for the user."""
    preprocessing, module = classifier.preprocessing, classifier.network.module
    assert isinstance(module, models.TextClassifier | models.ViT)
    names, mean, std = preprocessing.label_names, preprocessing.mean, preprocessing.std
    try:
        models.save_pretrained(
            folder, module, classifier.params, label_names=names, mean=mean, std=std
        )
    except ValueError as error:
        return f"no Hugging Face folder: {error}"
    settings = json.loads((folder / "config.json").read_text())
    fitted = classifier.calibrators.get(calibrator)
    note = f"{calibrator} is not a temperature, so its probabilities are uncalibrated"
    if calibrator == UNCALIBRATED:
        note = "uncalibrated"
    elif isinstance(fitted, posthoc.Temperature):
        settings["calibration_temperature"] = float(fitted.temperature)
        note = "divide its logits by config.calibration_temperature"
    if preprocessing.tokenizer:
        data.copy_tokenizer(preprocessing.tokenizer, folder)
    _io.write_json(folder / "config.json", settings)
    return f"{folder}: for PyTorch's {settings['architectures'][0]}; {note}"
