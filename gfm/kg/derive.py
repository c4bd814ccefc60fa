"""What an index derives from its tables: graph, mentions, embeddings, synonyms, the table of names.

A pure function of the documents, their extractions and the settings: whichever adds, updates and deletes led to them,
the result is that of a build from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gfm.config import IndexConfig
from gfm.kg.build import to_graph
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.merge import Merged, merge
from gfm.kg.name_table import NameTable
from gfm.kg.nearest import nearest_names, updated
from gfm.kg.rows import StoredDocument
from gfm.kg.synonyms import Nearest, synonym_pairs
from gfm.kg.vectors import DOCUMENT, ENTITY, RELATION, Vectors
from gfm.progress import Stopwatch
from gfm.types import Document, Extraction


class PreviousNearest(NamedTuple):
    """The nearest names of the version before, which make those of this one cheap."""

    names: list[str]
    nearest: Nearest


class Derived(NamedTuple):
    """Everything below `arrays/<version>`, ready to be written.

    Attributes:
        arrays: by file name without `.npy`.
        names: by file name without `.json`.
        counts: for the manifest.
    """

    arrays: dict[str, NDArray[Any]]
    names: dict[str, Any]
    counts: dict[str, int]


class _Content(NamedTuple):
    graph: KnowledgeGraph
    mentions: csr_matrix
    entity_embeddings: NDArray[np.float32]
    aliases: Sequence[tuple[str, int]] = ()
    document_nodes: NDArray[np.int64] | None = None
    nearest: Nearest | None = None


def from_extractions(
    documents: Sequence[StoredDocument],
    extractions: Iterable[Extraction],
    vectors: Vectors,
    dim: int,
    config: IndexConfig,
    *,
    previous: PreviousNearest | None = None,
    watch: Stopwatch,
    progress: bool = False,
) -> Derived:
    """Derives an index from documents, sorted by title, and what was extracted from them."""
    with watch.stage("graph"):
        merged = merge([d.document for d in documents], extractions, config)
    with watch.stage("embeddings"):
        of_documents = _document_vectors(documents, vectors, dim)
        of_entities = _entity_vectors(merged, of_documents, vectors, dim)
    with watch.stage("synonyms"):
        nearest = _nearest(merged, of_entities, config, previous, progress)
        pairs = synonym_pairs(nearest, config.synonym_cap)
        graph = to_graph(merged, pairs)
    content = _Content(graph, merged.mentions, of_entities, merged.aliases, merged.document_nodes, nearest)
    counts = merged.counts | {"synonym_triples": len(pairs)}
    return _derived(content, documents, of_documents, vectors, counts, watch)


def from_graph(
    documents: Sequence[StoredDocument],
    graph: KnowledgeGraph,
    mentions: csr_matrix,
    vectors: Vectors,
    dim: int,
    *,
    watch: Stopwatch,
) -> Derived:
    """Derives an index from a given graph, which stays as it is, with `given_mentions`."""
    with watch.stage("embeddings"):
        of_documents = _document_vectors(documents, vectors, dim)
        of_entities = vectors.get(ENTITY, graph.entity_names, graph.entity_names, dim)
    return _derived(_Content(graph, mentions, of_entities), documents, of_documents, vectors, {}, watch)


def embedded_text(document: Document) -> str:
    """What stands for a document before the encoder."""
    return f"{document.title} {document.text}"


def _document_vectors(documents: Sequence[StoredDocument], vectors: Vectors, dim: int) -> NDArray[np.float32]:
    texts = [embedded_text(d.document) for d in documents]
    return vectors.get(DOCUMENT, [d.content for d in documents], texts, dim)


def _entity_vectors(
    merged: Merged, of_documents: NDArray[np.float32], vectors: Vectors, dim: int
) -> NDArray[np.float32]:
    """Names by their text; the nodes of documents by what the documents say."""
    if merged.document_nodes is None:
        return vectors.get(ENTITY, merged.names, merged.names, dim)
    named = np.setdiff1d(np.arange(len(merged.names)), merged.document_nodes)
    names = [merged.names[entity] for entity in named]
    result = np.empty((len(merged.names), dim), dtype=np.float32)
    result[named] = vectors.get(ENTITY, names, names, dim)
    result[merged.document_nodes] = of_documents
    return result


def _nearest(
    merged: Merged,
    embeddings: NDArray[np.float32],
    config: IndexConfig,
    previous: PreviousNearest | None,
    progress: bool,
) -> Nearest:
    usable = None
    if merged.document_nodes is not None:
        usable = np.ones(len(merged.names), dtype=bool)
        usable[merged.document_nodes] = False
    search = nearest_names if previous is None else partial(updated, previous.nearest, previous.names)
    return search(
        merged.names,
        embeddings,
        threshold=config.synonym_threshold,
        cap=config.synonym_cap,
        usable=usable,
        progress=progress,
    )


def _derived(
    content: _Content,
    documents: Sequence[StoredDocument],
    of_documents: NDArray[np.float32],
    vectors: Vectors,
    counts: dict[str, int],
    watch: Stopwatch,
) -> Derived:
    graph, mentions = content.graph, content.mentions
    texts = graph.relation_texts()
    with watch.stage("embeddings"):
        of_relations = vectors.get(RELATION, texts, texts, of_documents.shape[1])
    with watch.stage("names"):
        table = NameTable.build(graph.entity_names, content.aliases)
    index_type = np.int32 if mentions.nnz < 2**31 else np.int64
    blob, offsets = _packed([d.document.text for d in documents])
    arrays = {
        "edge_index": graph.edge_index.numpy(),
        "edge_type": graph.edge_type.numpy(),
        "mention_indptr": mentions.indptr.astype(index_type),
        "mention_indices": mentions.indices.astype(index_type),
        "entity_embeddings": content.entity_embeddings,
        "relation_embeddings": of_relations,
        "document_embeddings": of_documents,
        "texts": blob,
        "text_offsets": offsets,
        **{f"names_{name}": array for name, array in table.arrays().items()},
    }
    names: dict[str, Any] = {
        "entities": list(graph.entity_names),
        "relations": list(graph.relation_names),
        "titles": [d.document.title for d in documents],
        "aliases": [[alias, int(entity)] for alias, entity in content.aliases],
    }
    if graph.entity_types is not None:
        names["entity_types"] = list(graph.entity_types)
    if content.document_nodes is not None:
        arrays["document_nodes"] = content.document_nodes
    if content.nearest is not None:
        arrays["nearest_neighbours"] = content.nearest.neighbours
        arrays["nearest_cosine"] = content.nearest.cosine
    counts = counts | {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "triples": graph.num_edges,
        "documents": len(documents),
        "mentions": int(mentions.nnz),
    }
    return Derived(arrays, names, counts)


def _packed(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All texts in one piece of UTF-8, and where each begins and ends, `(D + 1,)`."""
    encoded = [text.encode("utf-8") for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded], dtype=np.int64)])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets.astype(np.int64)
