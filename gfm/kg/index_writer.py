"""Writing an index: gather the truth, derive the arrays, switch versions last."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix
from torch import Tensor

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.build import Encoder, build_graph, document_ids, mention_matrix
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.storage import MANIFEST, check_target, remove_old_versions, write_arrays, write_json, write_tables, writing
from gfm.types import Document, Extraction

FORMAT = 1

_STRING = pa.string()
_TRIPLE = pa.struct([("head", _STRING), ("relation", _STRING), ("tail", _STRING)])


class _Content(NamedTuple):
    graph: KnowledgeGraph
    mentions: csr_matrix
    entity_embeddings: Tensor
    counts: dict[str, int]
    tables: dict[str, pa.Table]


def write_index(
    root: Path,
    encoder: Encoder,
    *,
    documents: Sequence[Document],
    extractions: Iterable[Extraction] | None,
    graph: KnowledgeGraph | None,
    mentions: Iterable[tuple[str, str]] | None,
    config: IndexConfig,
    reader_counts: Mapping[str, int],
    progress: bool,
) -> None:
    """Writes a complete new version into `root` and makes it the one in force; see `KGIndex.build`."""
    check_target(root)
    document_rows = _documents_table(documents)
    if graph is not None:
        if extractions is not None:
            raise InputError("both extractions and a graph were given; the graph of an index has one source")
        content = _from_graph(graph, documents, mentions or (), encoder, progress)
    else:
        if mentions is not None:
            raise InputError("mentions were given without a graph; extractions bring their own")
        content = _from_extractions(documents, list(extractions or ()), encoder, config, progress)
    arrays, names = _arrays(content, documents, encoder, progress)
    version = uuid.uuid4().hex
    with writing(root):
        tables = write_tables(root / "lance", {"documents": document_rows, **content.tables})
        write_arrays(root / "arrays" / version, arrays, names)
        manifest = _manifest(version, content, documents, encoder, config, tables, reader_counts)
        manifest["source"] = "extractions" if graph is None else "graph"
        write_json(root / MANIFEST, manifest)
        remove_old_versions(root, version, tables)


def _from_extractions(
    documents: Sequence[Document],
    extractions: list[Extraction],
    encoder: Encoder,
    config: IndexConfig,
    progress: bool,
) -> _Content:
    if not documents:
        raise InputError("there is nothing to index: no documents and no graph were given")
    rows = [
        {
            "passage": extraction.passage,
            "entities": list(extraction.entities),
            "triples": [dict(zip(("head", "relation", "tail"), t, strict=True)) for t in extraction.triples],
        }
        for extraction in extractions
    ]
    schema = pa.schema([("passage", _STRING), ("entities", pa.list_(_STRING)), ("triples", pa.list_(_TRIPLE))])
    # First, because it refuses what no encoder or file can hold.
    tables = {"extractions": _table(rows, schema)}
    return _Content(*build_graph(documents, extractions, encoder, config, progress=progress), tables)


def _from_graph(
    graph: KnowledgeGraph,
    documents: Sequence[Document],
    mentions: Iterable[tuple[str, str]],
    encoder: Encoder,
    progress: bool,
) -> _Content:
    if graph.num_entities == 0:
        raise InputError("the graph has no entities; there is nothing to index")
    pairs = list(dict.fromkeys(mentions))
    titles = document_ids(documents)
    for name, title in pairs:
        if name not in graph.entity_ids:
            raise InputError(f"mention of {name!r} in {title!r}: the graph lacks that entity; add it or drop it")
        if title not in titles:
            raise InputError(f"mention of {name!r} in {title!r}: no document has that title; add it or drop it")
    matrix = mention_matrix(
        np.array([graph.entity_ids[name] for name, _ in pairs], dtype=np.int64),
        np.array([titles[title] for _, title in pairs], dtype=np.int64),
        (graph.num_entities, len(documents)),
    )
    types: Sequence[str | None] = graph.entity_types or [None] * graph.num_entities
    entity_rows = [{"name": n, "type": t} for n, t in zip(graph.entity_names, types, strict=True)]
    entities = _table(entity_rows, pa.schema([("name", _STRING), ("type", _STRING)]))
    relations = _table([{"name": name} for name in graph.relation_names], pa.schema([("name", _STRING)]))
    tables = {
        "entities": entities,
        "relations": relations,
        "triples": _triples_table(graph, entities["name"], relations["name"]),
        "mentions": _table(
            [{"entity": name, "title": title} for name, title in pairs],
            pa.schema([("entity", _STRING), ("title", _STRING)]),
        ),
    }
    return _Content(graph, matrix, encoder.encode(graph.entity_names, progress=progress), {}, tables)


def _arrays(
    content: _Content, documents: Sequence[Document], encoder: Encoder, progress: bool
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    graph, mentions = content.graph, content.mentions
    texts = [f"{document.title} {document.text}" for document in documents]
    arrays = {
        "edge_index": graph.edge_index.numpy(),
        "edge_type": graph.edge_type.numpy(),
        "mention_indptr": mentions.indptr.astype(np.int32 if mentions.nnz < 2**31 else np.int64),
        "mention_indices": mentions.indices.astype(np.int32 if mentions.nnz < 2**31 else np.int64),
        "entity_embeddings": content.entity_embeddings.numpy(),
        "relation_embeddings": encoder.encode(graph.relation_texts(), progress=progress).numpy(),
        "document_embeddings": encoder.encode(texts, progress=progress).numpy(),
    }
    names = {
        "entities": list(graph.entity_names),
        "relations": list(graph.relation_names),
        "titles": [document.title for document in documents],
    }
    if graph.entity_types is not None:
        names["entity_types"] = list(graph.entity_types)
    return arrays, names


def _manifest(
    version: str,
    content: _Content,
    documents: Sequence[Document],
    encoder: Encoder,
    config: IndexConfig,
    tables: dict[str, int],
    reader_counts: Mapping[str, int],
) -> dict[str, Any]:
    graph = content.graph
    return {
        "format": FORMAT,
        "version": version,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "encoder": {"name": encoder.name, "fingerprint": encoder.fingerprint, "dim": encoder.dim},
        "tables": tables,
        "entity_types": graph.entity_types is not None,
        "config": asdict(config),
        "counts": {
            **reader_counts,
            **content.counts,
            "entities": graph.num_entities,
            "relations": graph.num_relations,
            "triples": graph.num_edges,
            "documents": len(documents),
            "mentions": int(content.mentions.nnz),
        },
    }


def _documents_table(documents: Sequence[Document]) -> pa.Table:
    rows = [{"row": i, "title": d.title, "text": d.text} for i, d in enumerate(documents)]
    return _table(rows, pa.schema([("row", pa.int64()), ("title", _STRING), ("text", _STRING)]))


def _triples_table(graph: KnowledgeGraph, entities: pa.ChunkedArray, relations: pa.ChunkedArray) -> pa.Table:
    """The triples by name, from columns: a dictionary for each of millions would take gigabytes."""
    head, tail = (entities.take(pa.array(ids)) for ids in graph.edge_index.numpy())
    relation = relations.take(pa.array(graph.edge_type.numpy()))
    return pa.table([head, relation, tail], schema=pa.schema(list(_TRIPLE)))


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except UnicodeEncodeError as error:
        text = error.object[max(0, error.start - 20) : error.end + 20]
        raise InputError(f"text {text!r} holds half of a surrogate pair, which is no Unicode; repair it") from error
