"""Training steps as plain functions: batch in, loss and metrics out. No engine, no logging, no optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfm.config import LossConfig, SelectorConfig
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.relations import RelationStates
from gfm.nn.selector import SubgraphSelector, gumbel_sigmoid
from gfm.nn.states import EntityStates, Seeds
from gfm.training import losses
from gfm.training.sampling import CompletionGraph, Queries, both_directions, sample_negatives

Metrics = dict[str, Tensor]


def phase_one_loss(logits: Tensor, positives: Tensor, negatives: Tensor, cfg: LossConfig) -> tuple[Tensor, Metrics]:
    """`L_I = α₁ L_BCE + (1 − α₁) L_rank` over the candidates `positives | negatives`."""
    bce = losses.bce_loss(logits, positives, negatives, cfg.adversarial_temperature)
    rank = losses.rank_loss(logits, positives, positives | negatives)
    loss = cfg.alpha_bce * bce + (1 - cfg.alpha_bce) * rank
    return loss, {"bce": bce.detach(), "rank": rank.detach()}


def completion_logits(
    gnn: QueryConditionedGNN,
    graph: CompletionGraph,
    queries: Queries,
    edges: RelationalEdges,
    relations: RelationStates | None = None,
) -> Tensor:
    """Logits `(Q, V)` of completion queries; the question is the text embedding of the (inverse) relation.

    `relations` are the graph's relation states where they were prepared, else they are projected anew.
    """
    question = graph.relation_embeddings[queries.edge_type]
    prepared = graph.relation_embeddings if relations is None else relations
    logits: Tensor = gnn(question, prepared, queries.seeds(), edges)
    return logits


def completion_step(
    gnn: QueryConditionedGNN,
    graph: CompletionGraph,
    triples: Tensor,
    cfg: LossConfig,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Metrics]:
    """Phase I on one batch: predicts the tail and the head of every triple with the batch's own edges hidden."""
    edges = graph.edges_without(triples)
    queries = both_directions(triples, graph.num_relations)
    logits = completion_logits(gnn, graph, queries, edges)
    positives = torch.zeros_like(logits, dtype=torch.bool)
    positives.scatter_(1, queries.answer.unsqueeze(1), True)
    negatives = sample_negatives(~graph.known_answers(queries), cfg.num_negatives, generator)
    return phase_one_loss(logits, positives, negatives, cfg)


@dataclass(frozen=True)
class QuestionBatch:
    """Questions over one graph.

    Attributes:
        question: text embeddings `(B, text_dim)`.
        seeds: linked entities with their weights.
        positives: `(B, V)` bool, entities of the gold documents.
    """

    question: Tensor
    seeds: Seeds
    positives: Tensor

    def to(self, device: torch.device | str) -> QuestionBatch:
        """The same batch on another device."""
        seeds = Seeds(*(part.to(device) for part in self.seeds))
        return QuestionBatch(self.question.to(device), seeds, self.positives.to(device))


def question_step(
    gnn: QueryConditionedGNN, relations: Tensor, edges: RelationalEdges, batch: QuestionBatch, cfg: LossConfig
) -> tuple[Tensor, Metrics]:
    """Fine-tunes the GNN itself: `L_I` on question → entities of the gold documents, all others negative."""
    logits = gnn(batch.question, relations, batch.seeds, edges)
    return phase_one_loss(logits, batch.positives, ~batch.positives, cfg)


def selector_step(
    selector: SubgraphSelector,
    states: EntityStates,
    pairs: Tensor,
    batch: QuestionBatch,
    cfg: SelectorConfig,
    loss_cfg: LossConfig,
    temperature: float,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Metrics]:
    """Fine-tunes the selector on frozen GNN states (Eq. 15-18).

    `L_ftn = α₁ L_BCE(s) + (1 − α₁) L_rank(s) + L_NCE + β₁ L_size + β₂ L_con`; without `cfg.supervised` the first two
    are dropped and no label is read.

    Args:
        selector: what learns.
        states: `Z^L` of the frozen GNN.
        pairs: `(2, P)` from `losses.undirected_pairs`.
        batch: questions and, where supervised, their positives.
        cfg: weights of the bottleneck terms.
        loss_cfg: weights inside `L_I`.
        temperature: τ of the gates at this step.
        generator: draws the gates' noise.
    """
    logits = selector(states, batch.question)
    gates = gumbel_sigmoid(logits, temperature, generator)
    expected = torch.full((len(logits),), float(cfg.expected_size), device=logits.device)
    if cfg.supervised:
        loss, metrics = phase_one_loss(logits, batch.positives, ~batch.positives, loss_cfg)
        size_of_gold = batch.positives.sum(dim=1).to(gates.dtype)
        expected = torch.where(size_of_gold > 0, size_of_gold, expected)
    else:
        loss, metrics = logits.sum() * 0.0, {}
    nce = losses.contrastive_loss(selector.pool(gates, states, batch.question), batch.question, cfg.nce_temperature)
    size = losses.size_loss(gates, expected)
    connectivity = losses.connectivity_loss(gates, pairs, expected)
    loss = loss + nce + cfg.beta_size * size + cfg.beta_connectivity * connectivity
    return loss, metrics | {"nce": nce.detach(), "size": size.detach(), "connectivity": connectivity.detach()}
