"""Training steps as plain functions: batch in, loss and metrics out. No engine, no logging, no optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfm.config import LossConfig, PrototypeConfig, SelectorConfig
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.relations import RelationStates
from gfm.nn.selector import SubgraphSelector, gumbel_sigmoid
from gfm.nn.states import EntityStates, Seeds
from gfm.training import losses
from gfm.training.graphs import CompletionGraph, Queries, both_directions
from gfm.training.prototypes import DomainPrototypes, cosine_to_each, cosines_of_all
from gfm.training.sampling import draw_rows, sample_negatives

Metrics = dict[str, Tensor]


def phase_one_loss(logits: Tensor, positives: Tensor, negatives: Tensor, cfg: LossConfig) -> tuple[Tensor, Metrics]:
    """`L_I = α₁ L_BCE + (1 − α₁) L_rank` over the candidates `positives | negatives`."""
    bce = losses.bce_loss(logits, positives, negatives, cfg.adversarial_temperature)
    rank = losses.rank_loss(logits, positives, positives | negatives)
    loss = cfg.alpha_bce * bce + (1 - cfg.alpha_bce) * rank
    return loss, {"bce": bce.detach(), "rank": rank.detach()}


def phase_two_loss(
    states: EntityStates,
    logits: Tensor,
    queries: Queries,
    entity_domain: Tensor,
    prototypes: DomainPrototypes,
    cfg: PrototypeConfig,
    generators: Sequence[torch.Generator] | None = None,
) -> tuple[Tensor, Metrics]:
    """`α₂ L_proto + α₃ L_IGC` (Eq. 7, 8); a query's domain is that of the entity it starts at, in both terms."""
    direction, domain = prototypes(), entity_domain[queries.entity]
    at_answers = states.at(queries.answer, torch.arange(len(logits), device=logits.device))
    similarity = cosine_to_each(at_answers.to(direction.dtype), direction)
    proto = losses.prototype_loss(similarity, domain, cfg.temperature)
    random = draw_rows(lambda g: torch.randn(direction.size(1), generator=g), len(logits), generators)
    pair = torch.stack([direction[domain], random.to(direction)])
    to_prototype, to_random = cosines_of_all(states, pair)
    gain, kl_proto, kl_random = losses.information_gain_loss(logits, to_prototype, to_random, cfg.temperature)
    metrics = {"proto": proto.detach(), "igc": gain.detach(), "kl_proto": kl_proto, "kl_random": kl_random}
    return cfg.alpha_proto * proto + cfg.alpha_igc * gain, metrics


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
    generators: Sequence[torch.Generator] | None = None,
    *,
    own: slice | None = None,
    phase_two: tuple[DomainPrototypes, PrototypeConfig] | None = None,
) -> tuple[Tensor, Metrics]:
    """Pretraining on one batch: predicts the tail and the head of its triples with all of their edges hidden.

    Args:
        gnn: what learns.
        graph: the batch's graph.
        triples: the whole batch `(N, 3)`.
        cfg: of `L_I`.
        generators: one for each triple that is asked about; see `query_generators`.
        own: the triples to ask about, where other ranks ask about the others; all by default. Edges are hidden for the
            whole batch on every rank, so that many ranks compute what one would.
        phase_two: the prototypes and weights of Phase II; Phase I without.
    """
    edges = graph.edges_without(triples)
    queries = both_directions(triples if own is None else triples[own], graph.num_relations)
    question = graph.relation_embeddings[queries.edge_type]
    states = gnn.propagate(question, graph.relation_embeddings, queries.seeds(), edges)
    known = graph.known_answers(queries)
    positives = torch.zeros_like(known).scatter_(1, queries.answer.unsqueeze(1), True)
    negatives = sample_negatives(~known, cfg.num_negatives, generators)
    wanted = positives | negatives if phase_two is None and cfg.num_negatives else None
    # Under mixed precision the score is of half width: sums over all entities need more.
    logits = _logits_where(gnn, states, question, wanted).float()
    loss, metrics = phase_one_loss(logits, positives, negatives, cfg)
    if phase_two is not None:
        assert graph.entity_domain is not None, "Phase II needs the domain of every entity"
        more, terms = phase_two_loss(states, logits, queries, graph.entity_domain, *phase_two, generators)
        loss, metrics = loss + more, metrics | terms
    return loss, metrics


def _logits_where(gnn: QueryConditionedGNN, states: EntityStates, question: Tensor, wanted: Tensor | None) -> Tensor:
    """Logits `(Q, V)`; zero where they are not wanted, and not computed there."""
    if wanted is None:
        return gnn.logits(states, question)
    number, entity = wanted.nonzero(as_tuple=True)
    values = gnn.logits_at(states, question, entity, number)
    return values.new_zeros(wanted.shape).index_put((number, entity), values)


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
