"""Checkpoints of other programs: the one place where a pickle is opened, by a reader that takes nothing but tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfm.checkpoint.folder import Checkpoint
from gfm.checkpoint.info import CheckpointInfo
from gfm.config import ModelConfig
from gfm.errors import InputError
from gfm.nn.gnn import QueryConditionedGNN
from gfm.types import NamedEncoder

GFM_RAG_WEIGHTS = "model.pth"
# Their names for ours, in order; the first that fits is taken.
_NAMES = (
    (r"^rel_mlp\.", "relation_projection."),
    (r"^question_mlp\.", "question_projection."),
    (r"^entity_model\.mlp\.", "score_mlp."),
    (r"^entity_model\.layers\.(\d+)\.layer_norm\.", r"layers.\1.norm."),
    (r"^entity_model\.layers\.(\d+)\.", r"layers.\1."),
)
# What their config may say of the entity model; anything else would compute something that ours does not.
_SUPPORTED = {"message_func": "distmult", "aggregate_func": "sum", "short_cut": True, "layer_norm": True}


def import_gfm_rag(folder: str | Path, encoder: NamedEncoder) -> Checkpoint:
    """Reads the layout that GFM-RAG v1 releases: `config.json` and `model.pth`.

    Its models aggregate into the head of an edge and read `inverse_<name>` as the text of an inverse relation; its
    ranking lets the twenty best entities vote alike. The checkpoint says so, and retrieval does the same.

    Args:
        folder: holds the two files.
        encoder: the sentence encoder that the model was trained with.

    Raises:
        InputError: a missing or damaged file, a model of another form, or an encoder of another size.
    """
    folder = Path(folder)
    named, config = _read_config(folder)
    entity_model = config["entity_model"]
    hidden = entity_model["hidden_dims"]
    weights = _read_weights(folder / GFM_RAG_WEIGHTS)
    text_dim = int(config["feat_dim"])
    if encoder.dim != text_dim:
        raise InputError(
            f"{str(folder)!r} was trained on embeddings of size {text_dim} ({named}), but {encoder.name!r} gives "
            f"{encoder.dim}; name its encoder with --encoder"
        )
    model = ModelConfig(hidden[0], len(hidden), zero_preserving=False, swap_inverses=True)
    gnn = QueryConditionedGNN(text_dim, **asdict(model))
    try:
        gnn.load_state_dict({_our_name(name): tensor for name, tensor in weights.items()})
    except RuntimeError as error:
        raise InputError(f"weights of {str(folder)!r} do not fit its config: {' '.join(str(error).split())}") from error
    info = CheckpointInfo(
        text_dim,
        model,
        encoder.name,
        encoder.fingerprint,
        phase="imported",
        seed_weighting="idf" if config.get("init_nodes_weight") else "one",
        inverse_text="inverse_",
        entity_votes="one",
        training={"imported_from": "GFM-RAG v1", "encoder": named},
    )
    return Checkpoint(gnn.eval(), None, info)


def _read_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the model's encoder and its `model_config`, found to be of the form that ours computes."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        named, model = config["text_emb_model_config"]["text_emb_model_name"], config["model_config"]
        entity_model = model["entity_model"]
        hidden, size, _ = entity_model["hidden_dims"], entity_model["input_dim"], int(model["feat_dim"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{str(path)!r} is no config of a GFM-RAG v1 model: {type(error).__name__} {error}") from error
    for key, value in _SUPPORTED.items():
        if entity_model.get(key) != value:
            raise InputError(f"{str(path)!r}: {key} is {entity_model.get(key)!r}; only {value!r} can be imported")
    if not isinstance(hidden, list) or not hidden or any(width != size for width in hidden):
        raise InputError(f"{str(path)!r}: hidden_dims are {hidden!r} after {size!r}; only equal sizes can be imported")
    return str(named), model


def _read_weights(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise InputError(f"{str(path)!r} does not exist; the released layout is config.json with {path.name}")
    try:
        # weights_only: an unpickler that knows tensors and containers and runs nothing.
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights = state["model"]
    except Exception as error:  # torch raises half a dozen classes for files that are not its own
        first_line = " ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise InputError(f"{str(path)!r} does not read as a file of tensors: {first_line}") from error
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise InputError(f"{str(path)!r} holds no tensors by name under 'model'")
    return weights


def _our_name(name: str) -> str:
    for pattern, ours in _NAMES:
        new, count = re.subn(pattern, ours, name)
        if count:
            return new
    return name
