"""Writes tests/models/golden: tiny random encoders and what PyTorch transformers computes with them.

    python tests/models/make_golden.py      (needs torch: pip install -e '.[parity]')

Per architecture a folder `golden/<name>`, as PyTorch's `save_pretrained` writes it (sequence
classification), and `golden/<name>.npz`: inputs with padding, hidden states, logits and gradients; the
tensors of a multiple-choice head for the same encoder, its inputs and logits. Weights are random.
"""

import pathlib

import numpy as np
import torch
import transformers

GOLDEN = pathlib.Path(__file__).parent / "golden"
NUM_CLASSES = 3
SIZES = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
}
# Beyond the sizes, what a real checkpoint of the architecture has.
OWN = {
    "bert": {"pad_token_id": 0},
    "roberta": {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "electra": {"pad_token_id": 0, "embedding_size": 16},
}
CLASS = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}
# Gradients kept in the golden file; `{}` is the architecture.
GRADIENTS = (
    "{}.embeddings.word_embeddings.weight",
    "{}.embeddings.position_embeddings.weight",
    "{}.encoder.layer.0.attention.self.query.weight",
    "{}.encoder.layer.1.attention.self.value.bias",
    "{}.encoder.layer.0.attention.output.dense.weight",
    "{}.encoder.layer.0.output.LayerNorm.weight",
    "{}.encoder.layer.1.intermediate.dense.weight",
)


def build(name: str, task: str) -> torch.nn.Module:
    """A model with weights large enough that attention, norms and biases all matter."""
    config = getattr(transformers, CLASS[name] + "Config")(
        **SIZES, **OWN[name], num_labels=NUM_CLASSES, attn_implementation="eager"
    )
    model = getattr(transformers, f"{CLASS[name]}For{task}")(config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.normal_(0, 0.2)
            if key.endswith("LayerNorm.weight"):
                weight.add_(1)
    return model


def inputs(name: str, rows: int, length: int, seed: int) -> dict[str, torch.Tensor]:
    """Random words, each row padded from another place on."""
    rng = np.random.default_rng(seed)
    pad = OWN[name]["pad_token_id"]
    words = length - 2 * np.arange(rows) % (length - 1)
    mask = np.arange(length) < words[:, None]
    ids = np.where(mask, rng.integers(5, SIZES["vocab_size"], (rows, length)), pad)
    types = (np.arange(length) > words[:, None] // 2) & mask
    types &= OWN[name].get("type_vocab_size", 2) > 1
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    return {key: torch.from_numpy(value.astype(np.int64)) for key, value in arrays.items()}


def write(name: str) -> None:
    torch.manual_seed(0)
    arrays: dict[str, np.ndarray] = {}

    def keep(key: str, tensor: torch.Tensor) -> None:
        array = tensor.detach().numpy()
        arrays[key] = array.astype(np.int32) if array.dtype == np.int64 else array

    model = build(name, "SequenceClassification")
    model.save_pretrained(GOLDEN / name)
    batch = inputs(name, 5, 12, seed=1)
    labels = torch.tensor([0, 1, 2, 1, 0])
    output = model(**batch, output_hidden_states=True)
    torch.nn.functional.cross_entropy(output.logits, labels).backward()
    for key, tensor in batch.items():
        keep(key, tensor)
    keep("labels", labels)
    keep("hidden_states", torch.stack(output.hidden_states))
    keep("logits", output.logits)
    gradients = {key: weight.grad for key, weight in model.named_parameters()}
    for pattern in GRADIENTS:
        keep("grad/" + pattern.format(name), gradients[pattern.format(name)])
    for key in gradients:
        if key.startswith("classifier."):
            keep("grad/" + key, gradients[key])

    choice = build(name, "MultipleChoice")
    inner = {k: v for k, v in model.state_dict().items() if k.startswith(name + ".")}
    choice.load_state_dict(inner, strict=False)
    batch = inputs(name, 6, 10, seed=2)
    batch = {key: tensor.reshape(2, 3, 10) for key, tensor in batch.items()}
    for key, tensor in batch.items():
        keep("choice/" + key, tensor)
    keep("choice/logits", choice(**batch).logits)
    for key, tensor in choice.state_dict().items():
        if key not in inner:
            keep("choice_head/" + key, tensor)

    np.savez_compressed(GOLDEN / f"{name}.npz", **arrays)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for architecture in OWN:
        write(architecture)
