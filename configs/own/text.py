"""Your own texts, from a csv, jsonl or parquet file: calibrated probabilities and a report.

    python -m calib_jax.main --config configs/own/text.py --config.data.options.path=a.csv --workdir run

The file has a column of texts (`text`) and one of classes (`label`), names or numbers. For other names
add --config.data.options.text=REVIEW --config.data.options.label=STARS. 20 % of the rows are the test
split and 10 % validation, unless there are files for them (--config.data.options.val=… and test=…). Other
formats: --config.data.name=jsonl, parquet, huggingface or tfds; docs/data.md has all options.

Expect accuracy and calibration before and after temperature scaling and other calibrators; to compare
methods add --config.method.name=cross_entropy,adafocal. A small network and its word vectors are learned
from these texts alone, for minutes on a CPU (GloVe vectors: --config.data.word_vectors=FILE). To
fine-tune a pretrained encoder, more accurate and far slower, use --config configs/own/text.py:pretrained
and --config.model.pretrained=FOLDER.
"""

from calib_jax import experiment

NETWORKS = ("text_cnn", "pretrained")


def get_config(network: str = "text_cnn"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.data.name = "csv"
    config.data.options = {
        "path": "", "train": "", "val": "", "test": "",
        "val_share": 0.1, "test_share": 0.2, "split_seed": 0, "max_malformed": 0.01,
        "text": "", "pair": "", "choices": "", "label": "",
    }  # fmt: skip
    config.num_bootstrap = 200
    if network == "text_cnn":
        config.model.name = "text_cnn"
        config.data.max_length = 200
        config.optimizer.name = "adam"
        config.optimizer.learning_rate = 1e-3
        config.train.batch_size = 64
        config.train.epochs = 5
    else:
        config.model.name = "roberta"
        config.model.pretrained = "models/roberta-base"
        config.data.max_length = 128
        config.optimizer.name = "adamw"
        config.optimizer.learning_rate = 2e-5
        config.optimizer.schedule = "linear"
        config.optimizer.warmup = 0.1
        config.optimizer.weight_decay = 0.01
        config.optimizer.decay_all = False
        config.optimizer.clip_norm = 1.0
        config.train.batch_size = 32
        config.train.epochs = 3
    return config
