"""Documents and what was extracted from them, turned into a graph with mentions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gfm.config import IndexConfig
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.merge import Merged, merge
from gfm.kg.nearest import nearest_names
from gfm.kg.synonyms import synonym_pairs
from gfm.types import Document, Extraction, NamedEncoder

SYNONYM = "synonym of"
_UNKNOWN_TYPE = "entity"


class Encoder(NamedEncoder, Protocol):
    """What building and opening an index need of a sentence encoder."""

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        """Embeds N texts as `(N, dim)` float32."""


class BuiltGraph(NamedTuple):
    """A graph built from extractions.

    Attributes:
        graph: entities in order of first appearance; triples extracted, then title, then synonym edges.
        mentions: `(V, D)` float32 of 0 and 1: entity occurs in document.
        entity_embeddings: `(V, dim)`, embedded once here because synonyms need them.
        counts: numbers of triples by origin, of merged spellings and of skipped blank items.
    """

    graph: KnowledgeGraph
    mentions: csr_matrix
    entity_embeddings: Tensor
    counts: dict[str, int]


def build_graph(
    documents: Sequence[Document],
    extractions: Iterable[Extraction],
    encoder: Encoder,
    config: IndexConfig,
    *,
    progress: bool = False,
) -> BuiltGraph:
    """Merges extractions into one graph and links its entities to documents.

    Names with the same `match_key` are one entity, shown in its most frequent spelling. A document
    mentions its extracted entities, the entities of its triples, and its title entity: the entity that
    the title names, with or without a trailing parenthetical, else a new one.

    - Title edges (`config.title_edges`): `(title entity, "mentions", entity)` for each entity of the
      document that none of its triples links with the title entity directly.
    - Synonym edges: `(entity, "synonym of", entity)`, see `gfm.kg.synonyms.synonym_pairs`.
    - Documents as entities (`config.document_nodes`): `(document, "mentions", entity)` for each entity of it.

    Raises:
        InputError: two documents share a title, or an extraction names an unknown passage.
    """
    merged = merge(documents, extractions, config)
    embeddings = encoder.encode(merged.names, progress=progress)
    nearest = nearest_names(
        merged.names, embeddings.numpy(), threshold=config.synonym_threshold, cap=config.synonym_cap, progress=progress
    )
    pairs = synonym_pairs(nearest, config.synonym_cap)
    counts = merged.counts | {"synonym_triples": len(pairs)}
    return BuiltGraph(to_graph(merged, pairs), merged.mentions, embeddings, counts)


def to_graph(merged: Merged, synonyms: NDArray[np.int64]) -> KnowledgeGraph:
    """The graph of merged extractions with an edge for each pair of synonyms `(P, 2)`, none of them twice."""
    relations, triples = list(merged.relations), merged.triples
    if len(synonyms):
        if SYNONYM not in relations:
            relations.append(SYNONYM)
        relation = np.full((len(synonyms), 1), relations.index(SYNONYM))
        triples = np.concatenate([triples, np.hstack([synonyms[:, :1], relation, synonyms[:, 1:]])])
        triples = triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]
    types = [kind or _UNKNOWN_TYPE for kind in merged.types] if any(merged.types) else None
    return KnowledgeGraph(
        entity_names=merged.names,
        relation_names=relations,
        edge_index=torch.from_numpy(np.ascontiguousarray(triples[:, [0, 2]].T)),
        edge_type=torch.from_numpy(np.ascontiguousarray(triples[:, 1])),
        entity_types=types,
    )
