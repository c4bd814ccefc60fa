"""A graph that is given rather than built: as tables, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.merge import document_ids, mention_matrix
from gfm.kg.rows import columns_table
from gfm.kg.tables import Tables
from gfm.types import Document

TABLES = ("entities", "relations", "triples", "mentions")


@dataclass(frozen=True)
class GivenGraph:
    """A graph that is indexed as it is, with `(entity name, title)` mentions."""

    graph: KnowledgeGraph
    mentions: Sequence[tuple[str, str]] = ()


def given_mentions(
    graph: KnowledgeGraph, mentions: Sequence[tuple[str, str]], documents: Sequence[Document]
) -> csr_matrix:
    """The `(V, D)` matrix of `(entity name, title)` pairs.

    Raises:
        InputError: a pair names what is not there.
    """
    titles = document_ids(documents)
    for name, title in mentions:
        if name not in graph.entity_ids:
            raise InputError(f"mention of {name!r} in {title!r}: the graph lacks that entity; add it or drop it")
        if title not in titles:
            raise InputError(f"mention of {name!r} in {title!r}: no document has that title; add it or drop it")
    return mention_matrix(
        np.array([graph.entity_ids[name] for name, _ in mentions], dtype=np.int64),
        np.array([titles[title] for _, title in mentions], dtype=np.int64),
        (graph.num_entities, len(documents)),
    )


def tables_of(graph: KnowledgeGraph, mentions: Sequence[tuple[str, str]]) -> dict[str, pa.Table]:
    """The graph and its mentions by name, as an index stores them."""
    string = pa.string()
    types: Sequence[str | None] = graph.entity_types or [None] * graph.num_entities
    named = pa.schema([("name", string)])
    entities = columns_table([list(graph.entity_names), list(types)], pa.schema([("name", string), ("type", string)]))
    relations = columns_table([list(graph.relation_names)], named)
    pairs = columns_table(
        [[name for name, _ in mentions], [title for _, title in mentions]],
        pa.schema([("entity", string), ("title", string)]),
    )
    # By column: a dictionary for each of millions of triples would take gigabytes.
    head, tail = (entities["name"].take(pa.array(np.asarray(ids))) for ids in graph.edge_index.numpy())
    relation = relations["name"].take(pa.array(graph.edge_type.numpy()))
    schema = pa.schema([("head", string), ("relation", string), ("tail", string)])
    return {
        "entities": entities,
        "relations": relations,
        "triples": pa.table([head, relation, tail], schema=schema),
        "mentions": pairs,
    }


def read_given(tables: Tables, versions: Mapping[str, int]) -> GivenGraph:
    """The graph and mentions that `tables_of` made, at the versions that a manifest names."""
    rows = {name: tables.version_of(name, int(versions[name])) for name in TABLES}
    entities, relations = rows["entities"]["name"].to_pylist(), rows["relations"]["name"].to_pylist()
    types = rows["entities"]["type"].to_pylist()
    triples = zip(*(rows["triples"][column].to_pylist() for column in ("head", "relation", "tail")), strict=True)
    graph = KnowledgeGraph.from_triples(
        triples,
        entities=entities,
        relations=relations,
        entity_types=None if None in types else dict(zip(entities, types, strict=True)),
    )
    mentions = zip(rows["mentions"]["entity"].to_pylist(), rows["mentions"]["title"].to_pylist(), strict=True)
    return GivenGraph(graph, list(mentions))
