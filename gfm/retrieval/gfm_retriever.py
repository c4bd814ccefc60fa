"""GFM-Retriever: a question to its subgraph, paths and documents."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gfm.checkpoint import Checkpoint, load_checkpoint
from gfm.config import LinkingConfig, RetrievalConfig
from gfm.errors import InputError
from gfm.kg.index import KGIndex
from gfm.nn.edges import RelationalEdges
from gfm.nn.selector import noiseless_gate
from gfm.nn.states import Seeds
from gfm.retrieval.base import check_question
from gfm.retrieval.baselines import DenseRetriever
from gfm.retrieval.linking import DEFAULT_WEIGHTING, EntityLinker, seed_weights
from gfm.retrieval.paths import extract_paths, induced_edges
from gfm.retrieval.ranker import fuse, path_counts, rank_documents, top_k
from gfm.text.encoder import TextEncoder
from gfm.types import Edge, Retrieval, ScoredDocument, Seed, SelectedEntity
from gfm.types import Path as RelationalPath


class LinkedQuestions(NamedTuple):
    """Questions ready for propagation: embeddings `(B, text_dim)`, weighted seeds, and why each seed is one."""

    embedding: Tensor
    seeds: Seeds
    reasons: list[list[Seed]]


class QuestionLinker:
    """Turns question texts into propagation input over one index; training and inference share it."""

    def __init__(self, index: KGIndex, encoder: TextEncoder, config: LinkingConfig) -> None:
        index.check_encoder(encoder)
        self.index, self.encoder, self.config = index, encoder, config
        self.linker = EntityLinker.for_index(index, config)

    def __call__(self, questions: Sequence[str]) -> LinkedQuestions:
        """Embeds and links questions."""
        embedding = self.encoder.encode(questions)
        reasons = [self.linker.link(text, q) for text, q in zip(questions, embedding, strict=True)]
        entity = torch.tensor([seed.entity for seeds in reasons for seed in seeds], dtype=torch.int64)
        number = torch.repeat_interleave(torch.arange(len(reasons)), torch.tensor([len(s) for s in reasons]))
        weighting = self.config.seed_weighting or DEFAULT_WEIGHTING
        weight = seed_weights(entity, self.index.entity_document_counts, weighting)
        return LinkedQuestions(embedding, Seeds(entity, number, weight), reasons)


class Evidence(NamedTuple):
    """What retrieval found for one question, by id.

    Attributes:
        gates: of all entities `(V,)`.
        selected: entity ids of `V_q`, by falling gate.
        graph_scores: of all documents `(D,)`, Eq. 20.
        dense_scores: cosine of every document with the question `(D,)`.
    """

    seeds: list[Seed]
    gates: np.ndarray
    selected: np.ndarray
    paths: list[RelationalPath]
    graph_scores: np.ndarray
    dense_scores: np.ndarray
    seconds: dict[str, float]

    def document_scores(self, dense_weight: float) -> np.ndarray:
        """Ranking value of all documents `(D,)`: by the graph alone at 0, by dense similarity alone at 1."""
        return self.graph_scores if dense_weight == 0 else fuse(self.graph_scores, self.dense_scores, dense_weight)


class GFMRetriever:
    """Answers a question with a minimal subgraph of an index, its paths and documents.

    Args:
        checkpoint: the model; without a trained selector the GNN's own probabilities are the gates.
        index: an open index.
        encoder: must be the one that index and checkpoint were made with.
        config: thresholds, budgets and the weight of dense similarity.

    Raises:
        InputError: the encoder differs from the index's or the checkpoint's, or a budget is set for a checkpoint whose
            entities all carry a state.
    """

    def __init__(
        self, checkpoint: Checkpoint, index: KGIndex, encoder: TextEncoder, config: RetrievalConfig | None = None
    ) -> None:
        self.checkpoint, self.index, self.config = checkpoint, index, config or RetrievalConfig()
        info = checkpoint.info
        checkpoint.check_encoder(encoder.name, encoder.fingerprint)
        if self.config.frontier_budget is not None and not info.model.zero_preserving:
            raise InputError(
                f"frontier_budget is {self.config.frontier_budget:g} but the checkpoint gives every entity a state "
                "(zero_preserving is false); leave the budget out"
            )
        linking = self.config.linking
        weighting = linking.seed_weighting or info.seed_weighting
        self.link = QuestionLinker(index, encoder, replace(linking, seed_weighting=weighting))
        self._documents_by_cosine = DenseRetriever(index.document_embeddings)
        self._relations_by_cosine = DenseRetriever(index.relation_embeddings[: index.graph.num_relations])
        edge_index, edge_type = index.graph.with_inverses()
        self.edges = RelationalEdges(edge_index, edge_type, index.graph.num_entities, index.graph.num_edge_types)
        self._model = checkpoint.in_dtype(getattr(torch, self.config.dtype))
        self._relations = self._model.gnn.relation_states(
            index.relations_read_as(info.inverse_text, encoder), cache=True
        )

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: str | Path | Checkpoint,
        index: str | Path | KGIndex,
        encoder: TextEncoder | None = None,
        config: RetrievalConfig | None = None,
    ) -> GFMRetriever:
        """Opens a checkpoint (folder or hub id) and an index (folder); the encoder is the index's unless given."""
        opened = index if isinstance(index, KGIndex) else KGIndex.open(index)
        model = checkpoint if isinstance(checkpoint, Checkpoint) else load_checkpoint(checkpoint)
        return cls(model, opened, encoder or TextEncoder(opened.encoder_name), config)

    @property
    def threshold(self) -> float:
        """δ: the configured one, else the checkpoint's."""
        return self.checkpoint.info.threshold if self.config.threshold is None else self.config.threshold

    @property
    def frontier_budget(self) -> int | None:
        """K: how many entities may carry a state after each layer; None: all that are reached."""
        budget = self.config.frontier_budget
        if budget is None:
            return None
        return max(1, round(budget * self.index.graph.num_entities if budget < 1 else budget))

    @torch.no_grad()
    def gates(self, linked: LinkedQuestions) -> Tensor:
        """Noise-free gates of all entities `(B, V)` (Eq. 11); without a selector the GNN's probabilities (Eq. 4)."""
        gnn, selector = self._model.gnn, self._model.selector
        states = gnn.propagate(linked.embedding, self._relations, linked.seeds, self.edges, self.frontier_budget)
        if selector is None:
            return torch.sigmoid(gnn.logits(states, linked.embedding).float())
        return noiseless_gate(selector(states, linked.embedding).float())

    def gather(self, question: str) -> Evidence:
        """Everything that `retrieve` reports, by id and unrendered: what evaluation ranks and counts."""
        clock = _Clock()
        linked = self.link([question])
        clock.lap("link")
        gates = self.gates(linked)[0].numpy()
        clock.lap("propagate")
        above = np.flatnonzero(gates >= self.threshold)
        selected = above[np.argsort(-gates[above], kind="stable")]
        graph, q = self.index.graph, linked.embedding[0]
        paths = extract_paths(
            graph,
            [seed.entity for seed in linked.reasons[0]],
            selected,
            gates,
            self._relations_by_cosine.scores(q),
            max_hops=self.config.max_hops,
            beam=self.config.beam,
            max_paths=self.config.max_paths,
        )
        clock.lap("paths")
        graph_scores = self._graph_scores(gates, paths, top_k(gates, self.config.rank_entities))
        dense_scores = self._documents_by_cosine.scores(q)
        clock.lap("documents")
        return Evidence(linked.reasons[0], gates, selected, paths, graph_scores, dense_scores, clock.seconds)

    def _graph_scores(self, gates: np.ndarray, paths: list[RelationalPath], voting: np.ndarray) -> np.ndarray:
        mentions = self.index.mentions
        if self.checkpoint.info.entity_votes == "one":
            return rank_documents(np.ones_like(gates), mentions, {}, voting)
        return rank_documents(gates, mentions, path_counts(paths, len(gates)), voting)

    def retrieve(self, question: str, top_k: int = 5) -> Retrieval:
        """Retrieves the evidence for one question; `top_k` bounds the documents, not the subgraph.

        Raises:
            InputError: an empty question or `top_k` below 1.
        """
        check_question(question, top_k)
        return self.render(question, self.gather(question), top_k)

    def render(self, question: str, evidence: Evidence, top_k: int = 5) -> Retrieval:
        """Gathered evidence by name, with the texts of its best `top_k` documents."""
        return Retrieval(
            question=question,
            seeds=tuple(evidence.seeds),
            entities=tuple(self._entity(entity, evidence.gates) for entity in evidence.selected.tolist()),
            edges=self._edges(evidence.selected),
            documents=self._documents(evidence.document_scores(self.config.dense_weight), top_k),
            paths=tuple(evidence.paths),
            timings=evidence.seconds,
            notes=self._notes(evidence),
        )

    def _documents(self, scores: np.ndarray, k: int) -> tuple[ScoredDocument, ...]:
        best = top_k(scores, k) if len(scores) else np.empty(0, dtype=np.int64)
        found = self.index.documents(best.tolist())
        return tuple(ScoredDocument(d.title, d.text, float(scores[i])) for d, i in zip(found, best, strict=True))

    def _entity(self, entity: int, gates: np.ndarray) -> SelectedEntity:
        graph = self.index.graph
        return SelectedEntity(entity, graph.entity_names[entity], graph.type_of(entity), float(gates[entity]))

    def _edges(self, selected: np.ndarray) -> tuple[Edge, ...]:
        graph = self.index.graph
        ids = induced_edges(graph, selected)
        heads, tails = graph.edge_index[:, ids].tolist()
        triples = zip(heads, graph.edge_type[ids].tolist(), tails, strict=True)
        names, relations = graph.entity_names, graph.relation_names
        return tuple(Edge(names[h], relations[r], names[t]) for h, r, t in dict.fromkeys(triples))

    def _notes(self, evidence: Evidence) -> tuple[str, ...]:
        notes = []
        if all(seed.reason == "similar" for seed in evidence.seeds):
            notes.append("no entity of the graph is named in the question: seeds were found by similarity")
        if self.checkpoint.selector is None:
            notes.append("the checkpoint has no selector: gates are the GNN's probabilities")
        if not len(evidence.selected):
            notes.append(f"no entity reached the threshold {self.threshold:g}: the subgraph is empty")
        return tuple(notes)


class _Clock:
    """Seconds per step, and in all."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step], self.seconds["total"] = now - self.last, now - self.start
        self.last = now
