"""Reads the knowledge graphs of the pretraining stage."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from gfm.config import GraphConfig
from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers import read_triples
from gfm.text.encoder import TextEncoder
from gfm.training.sampling import CompletionGraph

SPLITS = ("train", "valid", "test")


def load_graph(cfg: GraphConfig, encoder: TextEncoder, held_out: str, limit: int | None = None) -> CompletionGraph:
    """Loads `train.tsv`, `valid.tsv` and `test.tsv` of a folder as one completion graph.

    The graph is the train split. The other splits, where they exist, only tell which answers are true, so that no
    negative is one; `held_out` names the split to rank.
    """
    folder = Path(cfg.path)
    if not (folder / "train.tsv").is_file():
        raise InputError(
            f"graph folder {cfg.path!r} has no train.tsv; give a folder with train.tsv, valid.tsv, test.tsv"
        )
    splits = {name: read_triples(folder / f"{name}.tsv") for name in SPLITS if (folder / f"{name}.tsv").is_file()}
    whole = KnowledgeGraph.from_triples(triple for graph in splits.values() for triple in graph.triples())
    ids = {name: _renumbered(graph, whole) for name, graph in splits.items()}
    ranked = ids.get(held_out, torch.empty(0, 3, dtype=torch.int64))
    return CompletionGraph(
        name=cfg.name or folder.name,
        num_entities=whole.num_entities,
        num_relations=whole.num_relations,
        train=ids["train"],
        known=torch.cat(list(ids.values())),
        relation_embeddings=encoder.encode(whole.relation_texts()),
        held_out=ranked if limit is None else ranked[:limit],
    )


def _renumbered(graph: KnowledgeGraph, whole: KnowledgeGraph) -> Tensor:
    """A split's triples `(N, 3)` in the numbering of the whole graph."""
    entity = torch.tensor([whole.entity_ids[name] for name in graph.entity_names])
    relation = torch.tensor([whole.relation_ids[name] for name in graph.relation_names])
    head, tail = entity[graph.edge_index]
    return torch.stack([head, relation[graph.edge_type], tail], dim=1)
