"""One table: retrieval methods on the same questions, index and encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gfm.errors import InputError
from gfm.evaluation.bootstrap import Estimate, summarise
from gfm.evaluation.retrieval import entities_by_key, gold_entities, recall_at_k, reciprocal_rank
from gfm.kg.index import KGIndex
from gfm.retrieval.baselines import BM25Retriever, DenseRetriever
from gfm.retrieval.gfm_retriever import Evidence, GFMRetriever
from gfm.retrieval.ranker import top_k
from gfm.text.encoder import TextEncoder
from gfm.types import Question

RANKED = 100
"""Documents and entities ranked per question; a gold item behind that position counts as not found."""


class Ranking(NamedTuple):
    """What a method ranked: document and entity ids, best first, and its selected set where it has one."""

    documents: list[int]
    entities: list[int]
    selected: list[int] | None = None


Method = Callable[[str], Mapping[str, Ranking]]


def bm25_method(index: KGIndex) -> Method:
    """BM25 over title and text of documents, and over entity names."""
    documents = BM25Retriever([f"{d.title} {d.text}" for d in index.all_documents()])
    entities = BM25Retriever(index.graph.entity_names)
    return lambda question: {"bm25": Ranking(_best(documents.scores(question)), _best(entities.scores(question)))}


def dense_method(index: KGIndex, encoder: TextEncoder) -> Method:
    """Cosine with the embeddings of documents and of entity names."""
    index.check_encoder(encoder)
    documents, entities = DenseRetriever(index.document_embeddings), DenseRetriever(index.entity_embeddings)

    def rank(question: str) -> dict[str, Ranking]:
        q = encoder.encode([question])[0]
        return {"dense": Ranking(_best(documents.scores(q)), _best(entities.scores(q)))}

    return rank


def gfm_method(retriever: GFMRetriever) -> Method:
    """GFM-Retriever as configured (`gfm`), and with documents ranked by the graph alone (`gfm-graph`)."""
    return lambda question: rank_evidence(retriever.gather(question), retriever.config.dense_weight)


def rank_evidence(evidence: Evidence, dense_weight: float) -> dict[str, Ranking]:
    """The rankings of `gfm_method` from evidence that was gathered already."""
    entities, selected = _best(evidence.gates), evidence.selected.tolist()
    weights = {"gfm": dense_weight, "gfm-graph": 0.0}
    return {n: Ranking(_best(evidence.document_scores(w)), entities, selected) for n, w in weights.items()}


def compare(
    index: KGIndex,
    questions: Sequence[Question],
    methods: Iterable[Method],
    progress: Callable[[Sequence[Question]], Iterable[Question]] = iter,
) -> dict[str, dict[str, Estimate]]:
    """Runs every method on every question.

    Document metrics: `document_recall@k` and `document_mrr` against the supporting documents. Entity metrics:
    `entity_recall@k` against `gold_entities`, by falling gate or score over all entities. The kept set:
    `selected_entities`, its mean size, and `selected_entity_recall`, the share of gold entities in it.

    Args:
        index: the corpus that all methods search.
        questions: with their supporting documents.
        methods: from the makers above.
        progress: wraps the questions, for a progress bar.

    Returns:
        Per method and metric the mean in [0, 1] (a count for sizes) with its 95% bootstrap interval.

    Raises:
        InputError: no question, or none whose supporting documents the index holds.
    """
    row_of = {title: row for row, title in enumerate(index.titles)}
    if not any(title in row_of for question in questions for title in question.supporting_documents):
        raise InputError("no supporting document of any question is in the index; check that both are of one corpus")
    by_key, methods = entities_by_key(index), list(methods)
    rows: dict[str, list[dict[str, float | None]]] = {}
    for question in progress(questions):
        # A supporting document that the index lacks stays in the gold set, under an id no method can return.
        documents = {row_of.get(title, -1 - i) for i, title in enumerate(dict.fromkeys(question.supporting_documents))}
        entities = gold_entities(index, question, by_key)
        for method in methods:
            for name, ranking in method(question.question).items():
                rows.setdefault(name, []).append(_metrics(ranking, documents, entities))
    return {name: summarise(columns) for name, columns in rows.items()}


def as_json(num_questions: int, table: Mapping[str, Mapping[str, Estimate]]) -> dict[str, Any]:
    """The comparison as plain data: each metric's mean under its name, intervals under `intervals`."""
    methods = {
        name: {metric: estimate.mean for metric, estimate in metrics.items()}
        | {"intervals": {metric: [e.low, e.high] for metric, e in metrics.items()}}
        for name, metrics in table.items()
    }
    return {"questions": num_questions, "methods": methods}


def _metrics(ranking: Ranking, documents: set[int], entities: frozenset[int]) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    for k in (2, 5):
        row[f"document_recall@{k}"] = recall_at_k(ranking.documents, documents, k)
    row["document_mrr"] = reciprocal_rank(ranking.documents, documents)
    for k in (2, 5):
        row[f"entity_recall@{k}"] = recall_at_k(ranking.entities, entities, k)
    row["entity_mrr"] = reciprocal_rank(ranking.entities, entities)
    if ranking.selected is not None:
        row["selected_entities"] = float(len(ranking.selected))
        row["selected_entity_recall"] = recall_at_k(ranking.selected, entities, max(1, len(ranking.selected)))
    return row


def _best(scores: np.ndarray) -> list[int]:
    return list(top_k(scores, RANKED).tolist())
