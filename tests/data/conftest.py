"""tfds sets prepared from files made here: array_record, no TensorFlow, no network."""

import io
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

Example = dict[str, Any]


def _png(pixels: np.ndarray) -> io.BytesIO:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    content.seek(0)
    return content


def _prepare(
    folder: pathlib.Path, name: str, features: Any, splits: dict[str, list[Example]]
) -> None:
    import tensorflow_datasets as tfds

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features_dict = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=features_dict)

        def _split_generators(self, _: Any) -> dict[str, Any]:
            return {split: self._generate_examples(rows) for split, rows in splits.items()}

        def _generate_examples(self, rows: list[Example]) -> Iterator[tuple[int, Example]]:
            yield from enumerate(rows)

    Builder.name = name
    Builder(data_dir=folder, file_format="array_record").download_and_prepare()


@pytest.fixture(scope="session")
def two_cifar10s(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """The same 30 + 10 images as tfds stores them and in the binary edition."""
    import tensorflow_datasets as tfds

    folder, binary = tmp_path_factory.mktemp("tfds_cifar10"), tmp_path_factory.mktemp("cifar10")
    batches = binary / "cifar-10-batches-bin"
    batches.mkdir()
    (batches / "batches.meta.txt").write_text("\n".join(f"class{i}" for i in range(10)) + "\n\n")
    splits = {}
    for split, file, n in (("train", "data_batch_1", 30), ("test", "test_batch", 10)):
        rows = np.random.default_rng(n).integers(0, 10, (n, 1 + 3072), dtype=np.uint8)
        rows.tofile(batches / f"{file}.bin")
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[split] = [
            {"id": f"{split}_{i:05d}", "image": _png(image), "label": int(label)}
            for i, (image, label) in enumerate(zip(images, rows[:, 0], strict=True))
        ]
    features = {
        "id": tfds.features.Text(),
        "image": tfds.features.Image(shape=(32, 32, 3)),
        "label": tfds.features.ClassLabel(names=[f"class{i}" for i in range(10)]),
    }
    _prepare(folder, "cifar10", features, splits)
    return folder, binary


@pytest.fixture(scope="session")
def tfds_imagenet(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """20 + 5 images of 320x256 pixels; every pixel of image `i` has i, its column and its row."""
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("tfds_imagenet")
    row, column = np.mgrid[:256, :320].astype(np.uint8)

    def examples(first: int, n: int) -> list[Example]:
        return [
            {
                "image": _png(np.stack([np.full_like(row, i), column, row], axis=-1)),
                "label": i % 3,
                "file_name": f"ILSVRC2012_val_{i:08d}.JPEG",
            }
            for i in range(first, first + n)
        ]

    features = {
        "image": tfds.features.Image(),
        "label": tfds.features.ClassLabel(names=["n0", "n1", "n2"]),
        "file_name": tfds.features.Text(),
    }
    _prepare(
        folder, "imagenet2012", features, {"train": examples(0, 20), "validation": examples(100, 5)}
    )
    # Cropped and corrupted: of 224x224 pixels, and the image's number is 100 higher.
    square = column[:224, :224]
    corrupted = [
        {**example, "image": _png(np.stack([np.full_like(square, 200 + i), square, square], -1))}
        for i, example in enumerate(examples(100, 5))
    ]
    # The published folders: class by class, each image 20 brighter than its number.
    for i, example in enumerate(examples(100, 5)):
        path = folder / f"ImageNet-C/weather/fog/2/n{example['label']}/{example['file_name']}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((224, 224, 3), 120 + i, np.uint8)).save(path, "PNG")
    _prepare(folder / "imagenet2012_corrupted", "fog_3", features, {"validation": corrupted})
    return folder


@pytest.fixture(scope="session")
def tfds_texts(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """40 + 12 texts with whole numbers as labels, in splits `train` and `extra`."""
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("tfds_texts")
    features = {"text": tfds.features.Text(), "label": tfds.features.Scalar(np.int64)}

    def rows(first: int, n: int) -> list[Example]:
        return [{"text": f"text ä {i}", "label": i % 2} for i in range(first, first + n)]

    _prepare(folder, "toy_texts", features, {"train": rows(0, 40), "extra": rows(40, 12)})
    return folder
