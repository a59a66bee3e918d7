"""Writes tests/models/golden: tiny random encoders and what PyTorch transformers computes with them.

    python tests/models/make_golden.py [NAME …]     (needs torch: pip install -e '.[parity]')

Per architecture a folder `golden/<name>`, as PyTorch's `save_pretrained` writes it (sequence
classification), and `golden/<name>.npz`: inputs with padding, hidden states, logits and gradients; the
tensors of a multiple-choice head for the same encoder, its inputs and logits. Weights are random.
Of those in `TINY`, all gradients as `golden/<name>/gradients.safetensors`.
"""

import pathlib
import sys
import tempfile

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
TINY = {
    "xlm-roberta": {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    | {"vocab_size": 24, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    | {"intermediate_size": 12, "max_position_embeddings": 14},
    "distilbert": {"pad_token_id": 0, "vocab_size": 24, "max_position_embeddings": 12}
    | {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12},
    "vit": {"image_size": 12, "patch_size": 4, "num_channels": 2}
    | {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12},
}
OWN = {
    "bert": {"pad_token_id": 0},
    "roberta": {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "electra": {"pad_token_id": 0, "embedding_size": 16},
}
CLASS = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}
CLASS |= {"xlm-roberta": "XLMRoberta", "distilbert": "DistilBert", "vit": "ViT"}
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
    sizes = TINY[name] if name in TINY else SIZES | OWN[name]
    config = getattr(transformers, CLASS[name] + "Config")(
        **sizes, num_labels=NUM_CLASSES, attn_implementation="eager"
    )
    model = getattr(transformers, f"{CLASS[name]}For{task}")(config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.normal_(0, 0.2)
            if "norm" in key.lower() and key.endswith(".weight"):
                weight.add_(1)
    return model


def inputs(name: str, rows: int, length: int, seed: int) -> dict[str, torch.Tensor]:
    """Random words, each row padded from another place on."""
    rng = np.random.default_rng(seed)
    sizes = TINY[name] if name in TINY else SIZES | OWN[name]
    pad = sizes["pad_token_id"]
    words = length - 2 * np.arange(rows) % (length - 1)
    mask = np.arange(length) < words[:, None]
    ids = np.where(mask, rng.integers(5, sizes["vocab_size"], (rows, length)), pad)
    types = (np.arange(length) > words[:, None] // 2) & mask
    types &= sizes.get("type_vocab_size", 2) > 1
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


def write_tiny(name: str) -> None:
    """Inputs, logits and all gradients, under the names that PyTorch saves; of texts, multiple choice."""
    torch.manual_seed(0)
    labels = torch.tensor([0, 1, 2, 1])
    rng = np.random.default_rng(1)
    if name == "vit":
        model = build(name, "ImageClassification")
        pixels = torch.from_numpy(rng.normal(size=(4, 2, 12, 12)).astype(np.float32))
        batch = {"pixel_values": pixels}
    else:
        model = build(name, "SequenceClassification")
        batch = inputs(name, 4, 9, seed=1)
    if name == "distilbert":
        del batch["token_type_ids"]
    model.save_pretrained(GOLDEN / name)
    logits = model(**batch).logits
    kept = {**batch, "labels": labels, "logits": logits}
    if name != "vit":
        choice = build(name, "MultipleChoice")
        prefix = model.base_model_prefix + "."
        inner = {k: v for k, v in model.state_dict().items() if k.startswith(prefix)}
        choice.load_state_dict(inner, strict=False)
        batch = {key: tensor.reshape(2, 2, 9) for key, tensor in batch.items()}
        kept["choice/logits"] = choice(**batch).logits
        kept |= {f"choice_head/{k}": v for k, v in choice.state_dict().items() if k not in inner}
    arrays = {key: tensor.detach().numpy() for key, tensor in kept.items()}
    np.savez_compressed(GOLDEN / f"{name}.npz", **arrays)

    torch.nn.functional.cross_entropy(logits, labels).backward()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for weight in model.parameters():
            weight.copy_(weight.grad)
        model.save_pretrained(folder)
        saved = pathlib.Path(folder, "model.safetensors").read_bytes()
    (GOLDEN / name / "gradients.safetensors").write_bytes(saved)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for architecture in sys.argv[1:] or (*OWN, *TINY):
        (write_tiny if architecture in TINY else write)(architecture)
