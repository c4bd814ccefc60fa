"""Checkpoints of other programs: the one place where a pickle is opened, by a reader that takes nothing but tensors."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfm.checkpoint.folder import Checkpoint
from gfm.checkpoint.info import CheckpointInfo
from gfm.checkpoint.modules import modules_from
from gfm.config import ModelConfig
from gfm.errors import InputError
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
# What their config may say besides sizes, the value that ours computes first; keys that are not here are refused.
_MODEL = {
    "_target_": ("GNNRetriever",),
    "init_nodes_weight": (True, False),
    "init_nodes_type": ("document", None),
    "use_ent_emb": (None,),
}
_RANKER = {"_target_": ("IDFWeightedTopKRanker",), "top_k": (20,)}
_ENTITY_MODEL = {
    "_target_": ("QueryNBFNet",),
    "message_func": ("distmult",),
    "aggregate_func": ("sum",),
    "short_cut": (True,),
    "layer_norm": (True,),
    "activation": ("relu",),
    "concat_hidden": (False,),
    "num_mlp_layer": (2,),
    "remove_one_hop": (False,),
}
_ENCODER = {"_target_": ("BaseTextEmbModel",), "query_instruct": (None, ""), "passage_instruct": (None, "")}
# What their program takes where the config says nothing, and ours would not.
_THEIR_DEFAULTS = {"short_cut": False, "layer_norm": False}


class ForeignForm(NamedTuple):
    """What GFM-RAG's config says of a model.

    Attributes:
        encoder: name of the sentence encoder it was trained with.
        text_dim: size of that encoder's embeddings.
        hidden_dim: of the GNN.
        num_layers: of the GNN.
        seed_weighting: `"idf"` or `"one"`.
    """

    encoder: str
    text_dim: int
    hidden_dim: int
    num_layers: int
    seed_weighting: str


def gfm_rag_form(folder: str | Path) -> ForeignForm:
    """Reads the `config.json` of a model that GFM-RAG v1 released.

    Raises:
        InputError: no such file, another kind of model, or one that computes something that ours does not.
    """
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        text, model = config["text_emb_model_config"], config["model_config"]
        entity_model, ranker = model["entity_model"], model.get("ranker")
        named, text_dim = text["text_emb_model_name"], model["feat_dim"]
        hidden = [entity_model["input_dim"], *entity_model["hidden_dims"]]
        _only(text, _ENCODER, "text_emb_model_name", "normalize", "batch_size", "model_kwargs", "truncate_dim")
        _only(model, _MODEL, "entity_model", "feat_dim", "ranker")
        _only(_THEIR_DEFAULTS | entity_model, _ENTITY_MODEL, "input_dim", "hidden_dims", "num_relation")
        if ranker is not None:
            _only(ranker, _RANKER)
        if len(hidden) < 2 or len(set(hidden)) > 1 or not all(type(size) is int for size in (text_dim, *hidden)):
            raise ValueError(f"feat_dim is {text_dim!r}, input_dim and hidden_dims are {hidden!r}; equal sizes fit")
        model_config = ModelConfig(hidden[0], len(hidden) - 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        raise InputError(
            f"{str(path)!r} is no config of a GFM-RAG v1 model that can be imported: {type(error).__name__} {error}"
        ) from error
    weighting = "idf" if model.get("init_nodes_weight", True) else "one"  # theirs is on where nothing is said
    return ForeignForm(str(named), text_dim, model_config.hidden_dim, model_config.num_layers, weighting)


def import_gfm_rag(folder: str | Path, encoder: NamedEncoder) -> Checkpoint:
    """Reads the layout that GFM-RAG v1 releases: `config.json` and `model.pth`.

    Its models aggregate into the head of an edge and read `inverse_<name>` as the text of an inverse relation; its
    ranking lets the twenty best entities vote alike. The checkpoint says so, and retrieval does the same.

    Args:
        folder: holds the two files.
        encoder: the sentence encoder that the model was trained with, whatever its name is here.

    Raises:
        InputError: a missing or damaged file, a model of another form, or an encoder of another size.
    """
    folder = Path(folder)
    form = gfm_rag_form(folder)
    if encoder.dim != form.text_dim:
        raise InputError(
            f"{str(folder)!r} was trained on embeddings of size {form.text_dim} ({form.encoder}), but "
            f"{encoder.name!r} gives {encoder.dim}; name its encoder with --encoder"
        )
    info = CheckpointInfo(
        form.text_dim,
        ModelConfig(form.hidden_dim, form.num_layers, zero_preserving=False, swap_inverses=True),
        encoder.name,
        encoder.fingerprint,
        phase="imported",
        seed_weighting=form.seed_weighting,
        inverse_text="inverse_",
        entity_votes="one",
        training={"imported_from": "GFM-RAG v1", "trained_with_encoder": form.encoder},
    )
    weights = _read_weights(folder / GFM_RAG_WEIGHTS)
    renamed = {f"gnn.{_our_name(name)}": tensor for name, tensor in weights.items()}
    try:
        if len(renamed) < len(weights):
            raise ValueError("two tensors are for the same part of the model")
        gnn, _ = modules_from(info, False, renamed)
    except ValueError as error:
        raise InputError(f"weights of {str(folder)!r} do not fit its config: {error}") from error
    return Checkpoint(gnn, None, info)


def _only(record: Mapping[str, Any], known: Mapping[str, tuple[Any, ...]], *free: str) -> None:
    """Refuses a key that is neither known nor free, and a value that is none of those that ours computes."""
    for key, value in record.items():
        if key in free:
            continue
        if key not in known:
            raise ValueError(f"{key} is {value!r}, which gfm does not know")
        said = str(value).rpartition(".")[2] if key == "_target_" else value
        if not any(said == allowed and type(said) is type(allowed) for allowed in known[key]):
            raise ValueError(f"{key} is {value!r}; only {known[key][0]!r} can be imported")


def _read_weights(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise InputError(f"{str(path)!r} does not exist; the released layout is config.json with {path.name}")
    if zipfile.is_zipfile(path) and any(entry.compress_type for entry in zipfile.ZipFile(path).infolist()):
        raise InputError(f"{str(path)!r} holds compressed parts, which torch never writes; get the file anew")
    try:
        # weights_only: an unpickler that knows tensors and containers and runs nothing.
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights = state["model"]
    except Exception as error:  # torch raises half a dozen classes for files that are not its own
        # Not its text: torch's advice is to read the file in the way that runs what is in it.
        raise InputError(
            f"{str(path)!r} does not read as a file of nothing but tensors under 'model' ({type(error).__name__}); "
            "get it anew from whom you trust"
        ) from error
    named = isinstance(weights, dict) and all(isinstance(name, str) for name in weights)
    if not named or not all(isinstance(value, Tensor) for value in weights.values()):
        raise InputError(f"{str(path)!r} holds no tensors by name under 'model'")
    return weights


def _our_name(name: str) -> str:
    for pattern, ours in _NAMES:
        new, count = re.subn(pattern, ours, name)
        if count:
            return new
    return name
