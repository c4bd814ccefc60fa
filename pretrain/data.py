"""Reads the knowledge graphs of the pretraining stage, each of them from its files only once."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfm.config import GraphConfig
from gfm.errors import InputError
from gfm.files import cache_folder, content_fingerprint, sha256
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers import read_rows, read_triples
from gfm.text.encoder import TextEncoder
from gfm.training.graph_store import FORMAT, StoredGraph, store_graph
from gfm.training.graphs import CompletionGraph
from gfm.types import INVERSE_TEXT

SPLITS = ("train", "valid", "test")
DOMAINS = "entity_domains.tsv"


def prepare_graph(
    cfg: GraphConfig, encoder: TextEncoder, with_names: bool, inverse_text: str = INVERSE_TEXT
) -> StoredGraph:
    """Turns a folder with `train.tsv`, `valid.tsv` and `test.tsv` into arrays, or finds those made before.

    `with_names` embeds the entity names too, for Phase II: of each domain the sum of its names' embeddings is kept. A
    graph's domain is the config's; `entity_domains.tsv` in its folder (entity, tab, domain) gives some entities others.
    `inverse_text` stands before a relation's name where its inverse is embedded.

    Raises:
        InputError: no train.tsv, an empty one, or an unknown entity in `entity_domains.tsv`.
    """
    folder = Path(cfg.path)
    if not (folder / "train.tsv").is_file():
        raise InputError(
            f"graph folder {cfg.path!r} has no train.tsv; give a folder with train.tsv, valid.tsv, test.tsv"
        )
    files = [path for name in SPLITS if (path := folder / f"{name}.tsv").is_file()]
    content = [f"{path.stem} {sha256(path)}" for path in files]
    if with_names:
        domains = folder / DOMAINS
        content += ["names", _domain(cfg), sha256(domains) if domains.is_file() else ""]
    key = [str(FORMAT), encoder.fingerprint, str(encoder.dtype), inverse_text, *content]
    name = hashlib.sha256("\n".join(key).encode()).hexdigest()[:32]

    def make() -> tuple[dict[str, Any], dict[str, Tensor]]:
        splits = {path.stem: read_triples(path) for path in files}
        whole = KnowledgeGraph.from_triples(triple for graph in splits.values() for triple in graph.triples())
        arrays = {split: _renumbered(graph, whole) for split, graph in splits.items()}
        if not len(arrays["train"]):
            raise InputError(f"{str(folder / 'train.tsv')!r} holds no triple; there is nothing to train on")
        arrays["relation_embeddings"] = encoder.encode(whole.relation_texts(inverse_text), progress=sys.stderr.isatty())
        facts: dict[str, Any] = {
            "entities": whole.num_entities,
            "relations": whole.num_relations,
            "fingerprint": content_fingerprint(content),
        }
        if with_names:
            facts["domains"], more = _domains(whole, cfg, encoder)
            arrays |= more
        return facts, arrays

    return store_graph(cache_folder("graphs") / name, make)


def open_graph(
    stored: StoredGraph,
    name: str,
    held_out: str,
    limit: int | None = None,
    domain_numbers: dict[str, int] | None = None,
) -> CompletionGraph:
    """A completion graph of prepared arrays.

    The graph is the train split. The other splits, where they exist, only tell which answers are true, so that no
    negative is one; `held_out` names the split to rank.

    Args:
        stored: the arrays.
        name: in log keys.
        held_out: `"valid"` or `"test"`.
        limit: ranks only the first so many triples.
        domain_numbers: of all domains of the run, in Phase II.
    """
    splits = {split: stored.array(split) for split in SPLITS if stored.has(split)}
    domain = None
    if domain_numbers is not None:
        local = torch.tensor([domain_numbers[name] for name in stored.facts["domains"]])
        domain = local[stored.array("entity_domain")]
    ranked = splits.get(held_out, torch.empty(0, 3, dtype=torch.int64))
    return CompletionGraph(
        name=name,
        num_entities=stored.facts["entities"],
        num_relations=stored.facts["relations"],
        train=splits["train"],
        known=torch.cat(list(splits.values())),
        relation_embeddings=stored.array("relation_embeddings"),
        held_out=ranked if limit is None else ranked[:limit],
        entity_domain=domain,
    )


def domain_means(graphs: list[StoredGraph]) -> tuple[list[str], Tensor]:
    """All domains of the graphs, and the mean text embedding of each one's entity names `(D, text_dim)`."""
    names = sorted({name for graph in graphs for name in graph.facts["domains"]})
    total: dict[str, Tensor] = {}
    count = dict.fromkeys(names, 0)
    for graph in graphs:
        counts = torch.bincount(graph.array("entity_domain"), minlength=len(graph.facts["domains"]))
        for name, row, size in zip(graph.facts["domains"], graph.array("domain_sum"), counts.tolist(), strict=True):
            total[name] = total[name] + row if name in total else row
            count[name] += size
    return names, torch.stack([total[name] / max(1, count[name]) for name in names])


def _domains(whole: KnowledgeGraph, cfg: GraphConfig, encoder: TextEncoder) -> tuple[list[str], dict[str, Tensor]]:
    """The graph's domains, every entity's number among them, and the sum of each one's name embeddings."""
    of_entity = [_domain(cfg)] * whole.num_entities
    path = Path(cfg.path) / DOMAINS
    if path.is_file():
        for line, (entity, domain) in read_rows(path, ("entity", "domain")):
            if entity not in whole.entity_ids:
                raise InputError(f"{path}, line {line}: the graph has no entity {entity!r}; take the line out")
            of_entity[whole.entity_ids[entity]] = domain
    names = sorted(set(of_entity))
    place = {name: i for i, name in enumerate(names)}
    number = torch.tensor([place[name] for name in of_entity])
    embedded = encoder.encode(whole.entity_names, progress=sys.stderr.isatty())
    total = embedded.new_zeros(len(names), embedded.size(1)).index_add_(0, number, embedded)
    return names, {"entity_domain": number, "domain_sum": total}


def _domain(cfg: GraphConfig) -> str:
    return cfg.domain or cfg.name or Path(cfg.path).name


def _renumbered(graph: KnowledgeGraph, whole: KnowledgeGraph) -> Tensor:
    """A split's triples `(N, 3)` in the numbering of the whole graph."""
    entity = torch.tensor([whole.entity_ids[name] for name in graph.entity_names], dtype=torch.int64)
    relation = torch.tensor([whole.relation_ids[name] for name in graph.relation_names], dtype=torch.int64)
    head, tail = entity[graph.edge_index]
    return torch.stack([head, relation[graph.edge_type], tail], dim=1)
