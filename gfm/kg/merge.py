"""Extractions of many documents, merged into one graph without synonyms.

Every name becomes a number once; what follows is columns of numbers, so that a million documents fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.name_merge import NameMerge
from gfm.text.names import match_key
from gfm.types import Document, Extraction

MENTIONS = "mentions"
_DOCUMENT = "document"

Ids = NDArray[np.int64]


class Merged(NamedTuple):
    """A graph built from extractions, before synonyms.

    Attributes:
        names: V entity names in order of first appearance, in their most frequent spelling.
        types: V entity types, by majority; `""` where no extraction tells.
        relations: R relation names in order of first appearance.
        triples: `(E, 3)` int64 head, relation, tail: extracted, then title edges, then those of documents.
        mentions: `(V, D)` float32 of 0 and 1: entity occurs in document.
        aliases: `(alias, entity)`, sorted: other names that mean one entity in the whole corpus.
        document_nodes: `(D,)` the entity that stands for each document; None without them.
        counts: numbers of triples by origin, of merged spellings, of aliases, of skipped blank items.
    """

    names: list[str]
    types: list[str]
    relations: list[str]
    triples: Ids
    mentions: csr_matrix
    aliases: list[tuple[str, int]]
    document_nodes: Ids | None
    counts: dict[str, int]


def merge(documents: Sequence[Document], extractions: Iterable[Extraction], config: IndexConfig) -> Merged:
    """Merges extractions into one graph and links its entities to documents.

    The result depends on the order of `documents` alone: extractions are taken in that order. What the graph holds is
    said by `gfm.kg.build.build_graph`.

    Raises:
        InputError: two documents share a title, a title is blank, or an extraction names an unknown passage.
    """
    ids = document_ids(documents)
    ordered = _in_order_of(ids, extractions)
    names = NameMerge()
    found = _flatten(ordered, ids, names)
    titles = names.add_titles([document.title for document in documents])
    pairs = np.concatenate([found.pairs, np.stack([np.arange(len(titles)), titles], axis=1)])
    pairs = pairs[_first_of_each(pairs)]
    triples = found.triples[_first_of_each(found.triples)]
    relations = list(found.relations)
    counts = {"extracted_triples": len(triples), "title_triples": 0}
    if config.title_edges:
        triples = np.concatenate([triples, _title_edges(pairs, titles, found, relations)])
        triples = triples[_first_of_each(triples)]
        counts["title_triples"] = len(triples) - counts["extracted_triples"]
    shown, types, aliases, nodes = names.shown(), names.types(), names.aliases(), None
    if config.document_nodes:
        nodes = np.arange(len(shown), len(shown) + len(documents))
        shown += _node_names(documents, shown)
        types += [_DOCUMENT] * len(documents)
        mention = np.full(len(pairs), _relation(relations, MENTIONS))
        triples = np.concatenate([triples, np.stack([nodes[pairs[:, 0]], mention, pairs[:, 1]], axis=1)])
        counts["document_triples"] = len(pairs)
        pairs = np.concatenate([pairs, np.stack([np.arange(len(documents)), nodes], axis=1)])
    counts |= {
        "merged_spellings": names.merged_spellings(),
        "aliases": len(aliases),
        "skipped_blank_names": names.blank + found.blank_relations,
    }
    mentions = mention_matrix(pairs[:, 1], pairs[:, 0], (len(shown), len(documents)))
    return Merged(shown, types, relations, triples, mentions, aliases, nodes, counts)


def document_ids(documents: Sequence[Document]) -> dict[str, int]:
    """Numbers documents by title.

    Raises:
        InputError: two documents share a title, which is their identity.
    """
    ids: dict[str, int] = {}
    for document in documents:
        if document.title in ids:
            raise InputError(f"two documents have the title {document.title!r}; titles must be unique")
        if not match_key(document.title):
            raise InputError(f"document {len(ids)} has the blank title {document.title!r}; give every document a title")
        ids[document.title] = len(ids)
    return ids


def mention_matrix(entities: Ids, documents: Ids, shape: tuple[int, int]) -> csr_matrix:
    """The `(V, D)` matrix with a 1 at each `(entity, document)` pair, however often it is given."""
    matrix = csr_matrix((np.ones(len(entities), np.float32), (entities, documents)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


class _Found(NamedTuple):
    """Columns of what the extractions hold: `(document, entity)` pairs, triples and the document of each triple."""

    pairs: Ids
    triples: Ids
    triple_documents: Ids
    relations: dict[str, int]
    blank_relations: int


def _in_order_of(ids: dict[str, int], extractions: Iterable[Extraction]) -> list[Extraction]:
    ordered = list(extractions)
    for extraction in ordered:
        if extraction.passage not in ids:
            raise InputError(
                f"extraction names the passage {extraction.passage!r}, which no document has as title; "
                "add the document or drop the extraction"
            )
    return sorted(ordered, key=lambda extraction: ids[extraction.passage])  # stable: several of one keep their order


def _flatten(extractions: Sequence[Extraction], ids: dict[str, int], names: NameMerge) -> _Found:
    pair_rows: list[int] = []
    pair_entities: list[int] = []
    rows: list[tuple[int, int, int]] = []
    row_documents: list[int] = []
    relations: dict[str, int] = {}
    blank = 0
    for extraction in extractions:
        document = ids[extraction.passage]
        entities = names.add(extraction.entities, extraction.types)
        for head, relation, tail in extraction.triples:
            ends = names.add((head, tail))
            text = relation.strip()
            if min(ends) < 0 or not text:
                blank += min(ends) >= 0
                continue
            entities += ends
            rows.append((ends[0], relations.setdefault(text, len(relations)), ends[1]))
            row_documents.append(document)
        names.add_aliases(extraction.aliases)
        kept = [entity for entity in entities if entity >= 0]
        pair_entities += kept
        pair_rows += [document] * len(kept)
    pairs = np.stack([np.array(pair_rows, dtype=np.int64), np.array(pair_entities, dtype=np.int64)], axis=1)
    triples = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return _Found(pairs, triples, np.array(row_documents, dtype=np.int64), relations, blank)


def _title_edges(pairs: Ids, titles: Ids, found: _Found, relations: list[str]) -> Ids:
    """`(title, mentions, entity)` for each entity of a document that no triple of it links with its title."""
    documents, entities = pairs.T
    heads, _, tails = found.triples.T
    own = titles[found.triple_documents]
    linked = np.concatenate(
        [
            np.stack([found.triple_documents, tails], axis=1)[heads == own],
            np.stack([found.triple_documents, heads], axis=1)[tails == own],
        ]
    )
    width = int(max(entities.max(initial=0), titles.max(initial=0))) + 1
    joined = np.isin(documents * width + entities, linked[:, 0] * width + linked[:, 1])
    wanted = ~joined & (entities != titles[documents])
    if not wanted.any():
        return np.empty((0, 3), dtype=np.int64)
    order = np.flatnonzero(wanted)[np.argsort(documents[wanted], kind="stable")]
    mention = np.full(len(order), _relation(relations, MENTIONS))
    return np.stack([titles[documents[order]], mention, entities[order]], axis=1)


def _relation(relations: list[str], name: str) -> int:
    """The number of a relation, which is added where it is new."""
    if name not in relations:
        relations.append(name)
    return relations.index(name)


def _node_names(documents: Sequence[Document], taken: Sequence[str]) -> list[str]:
    """A name for each document that no entity has: `T (document)`, else `T (document 2)`, ..."""
    used, names = set(taken), []
    for document in documents:
        name, number = f"{document.title} ({_DOCUMENT})", 1
        while name in used:
            number += 1
            name = f"{document.title} ({_DOCUMENT} {number})"
        used.add(name)
        names.append(name)
    return names


def _first_of_each(rows: Ids) -> Ids:
    """Positions of the first of equal rows, in order."""
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return np.sort(order[new])
