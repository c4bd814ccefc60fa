"""Documents and what was extracted from them, turned into a graph with mentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.synonyms import synonym_pairs
from gfm.text.names import match_key, without_parenthetical
from gfm.types import Document, Extraction, NamedEncoder

MENTIONS = "mentions"
SYNONYM = "synonym of"


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

    Raises:
        InputError: two documents share a title, or an extraction names an unknown passage.
    """
    merged = _Merge(document_ids(documents))
    for extraction in extractions:
        merged.add(extraction)
    titles = merged.add_titles([document.title for document in documents])
    extracted = len(merged.triples)
    if config.title_edges:
        merged.add_title_edges(titles)
    linked = len(merged.triples)
    names = merged.names()
    embeddings = encoder.encode(names, progress=progress)
    pairs = synonym_pairs(names, embeddings, threshold=config.synonym_threshold, cap=config.synonym_cap)
    graph = _to_graph(names, merged, pairs)
    counts = {
        "extracted_triples": extracted,
        "title_triples": linked - extracted,
        "synonym_triples": len(pairs),
        "merged_spellings": sum(len(spellings) - 1 for spellings in merged.spellings if spellings),
        "skipped_blank_names": merged.blank,
    }
    return BuiltGraph(graph, merged.mentions(len(documents)), embeddings, counts)


def document_ids(documents: Sequence[Document]) -> dict[str, int]:
    """Numbers documents by title.

    Raises:
        InputError: two documents share a title, which is their identity.
    """
    ids: dict[str, int] = {}
    for document in documents:
        if document.title in ids:
            raise InputError(f"two documents have the title {document.title!r}; titles must be unique")
        ids[document.title] = len(ids)
    return ids


class _Merge:
    """The graph under construction: ids by key, spellings, triples and the entities of each document."""

    def __init__(self, documents: dict[str, int]) -> None:
        self.documents = documents
        self.ids: dict[str, int] = {}
        self.spellings: list[Counter[str]] = []
        self.relations: dict[str, int] = {}
        self.triples: dict[tuple[int, int, int], None] = {}
        self.entities_of: list[dict[int, None]] = [{} for _ in documents]
        self.linked_in: list[set[tuple[int, int]]] = [set() for _ in documents]
        self.blank = 0

    def add(self, extraction: Extraction) -> None:
        document = self.documents.get(extraction.passage)
        if document is None:
            raise InputError(
                f"extraction names the passage {extraction.passage!r}, which no document has as title; "
                "add the document or drop the extraction"
            )
        found = self.entities_of[document]
        for name in extraction.entities:
            entity = self._entity(name)
            if entity is not None:
                found[entity] = None
        for head, relation, tail in extraction.triples:
            ends = self._entity(head), self._entity(tail)
            if ends[0] is None or ends[1] is None or not relation.strip():
                self.blank += bool(ends[0] is not None and ends[1] is not None)
                continue
            found.update({ends[0]: None, ends[1]: None})
            self.linked_in[document].add((ends[0], ends[1]))
            self._link(ends[0], relation.strip(), ends[1])

    def add_titles(self, titles: Sequence[str]) -> list[int]:
        """Returns the title entity of each document and counts it among the document's entities."""
        # Titles without a parenthetical first: "Publix (2)" may then mean the entity of "Publix",
        # whichever document comes first.
        entities = [-1] * len(titles)
        for document in sorted(range(len(titles)), key=lambda d: without_parenthetical(titles[d]) != titles[d]):
            title = titles[document]
            short = match_key(without_parenthetical(title))
            entity = self.ids.get(short) if match_key(title) not in self.ids else None
            if entity is None:
                entity = self._entity(title)
            if entity is None:
                raise InputError(f"document {document} has the blank title {title!r}; give every document a title")
            entities[document] = entity
            self.entities_of[document][entity] = None
        return entities

    def add_title_edges(self, titles: Sequence[int]) -> None:
        """Links each document's title entity with those of its entities that no triple of it links."""
        for title, entities, linked in zip(titles, self.entities_of, self.linked_in, strict=True):
            for entity in entities:
                if entity != title and (title, entity) not in linked and (entity, title) not in linked:
                    self._link(title, MENTIONS, entity)

    def names(self) -> list[str]:
        """The most frequent spelling of each entity; the first seen among equals."""
        return [spellings.most_common(1)[0][0] for spellings in self.spellings]

    def mentions(self, num_documents: int) -> csr_matrix:
        documents = np.repeat(np.arange(num_documents), [len(entities) for entities in self.entities_of])
        entities = np.fromiter((e for found in self.entities_of for e in found), dtype=np.int64)
        return mention_matrix(entities, documents, (len(self.ids), num_documents))

    def _entity(self, name: str) -> int | None:
        key = match_key(name)
        if not key:
            self.blank += 1
            return None
        entity = self.ids.setdefault(key, len(self.ids))
        if entity == len(self.spellings):
            self.spellings.append(Counter())
        self.spellings[entity][name] += 1
        return entity

    def _link(self, head: int, relation: str, tail: int) -> None:
        self.triples[head, self.relations.setdefault(relation, len(self.relations)), tail] = None


def mention_matrix(entities: NDArray[np.int64], documents: NDArray[np.int64], shape: tuple[int, int]) -> csr_matrix:
    """The `(V, D)` matrix with a 1 at each `(entity, document)` pair, however often it is given."""
    matrix = csr_matrix((np.ones(len(entities), np.float32), (entities, documents)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def _to_graph(names: list[str], merged: _Merge, synonyms: NDArray[np.int64]) -> KnowledgeGraph:
    relations = dict(merged.relations)
    triples = np.array(list(merged.triples), dtype=np.int64).reshape(-1, 3)
    if len(synonyms):
        relation = np.full((len(synonyms), 1), relations.setdefault(SYNONYM, len(relations)))
        triples = np.concatenate([triples, np.hstack([synonyms[:, :1], relation, synonyms[:, 1:]])])
        triples = triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]
    return KnowledgeGraph(
        entity_names=names,
        relation_names=list(relations),
        edge_index=torch.from_numpy(np.ascontiguousarray(triples[:, [0, 2]].T)),
        edge_type=torch.from_numpy(np.ascontiguousarray(triples[:, 1])),
    )
