"""One question and one training step on a random graph: the cases that several benchmarks time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.graphs import random_graph, random_question
from benchmarks.measure import Step, Stopwatch, measure
from benchmarks.reference import reference_logits
from gfm.config import LossConfig
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.states import Seeds
from gfm.training.graphs import CompletionGraph, Queries, both_directions
from gfm.training.sampling import generator_for, sample_negatives
from gfm.training.steps import phase_one_loss

SMALL = {"entities": 60, "triples": 200, "relations": 10}
FORMS = ("reference", "layernorm", "ours")
"""Plain code over all edges; our code on the same form of model; our code on the zero-preserving form."""


def random_model(form: str, text_dim: int, hidden_dim: int, layers: int, seed: int) -> QueryConditionedGNN:
    """A model of the given form with random weights."""
    torch.manual_seed(seed)
    return QueryConditionedGNN(text_dim, hidden_dim, layers, zero_preserving=form == "ours")


def prepare_question(
    *,
    form: str,
    entities: int,
    triples: int,
    relations: int,
    text_dim: int,
    hidden_dim: int,
    layers: int,
    seeds: int,
    budget: int | None,
    dtype: str,
    seed: int,
) -> Step:
    """A graph, and a step that propagates question `number` and scores every entity; relations are kept."""
    graph = random_graph(entities, triples, relations, text_dim, seed)
    edges, embeddings = graph.edges, graph.relation_embeddings
    gnn = random_model(form, text_dim, hidden_dim, layers, seed).to(getattr(torch, dtype)).eval()
    states = gnn.relation_states(embeddings, cache=True)

    @torch.no_grad()
    def step(number: int) -> dict[str, float]:
        question, start = random_question(entities, text_dim, seeds, seed + number)
        watch = Stopwatch()
        if form == "reference":
            reference_logits(gnn, question, embeddings, start, edges)
            return {"seconds": watch.lap(), "entities": float(entities)}
        reached = gnn.propagate(question, states, start, edges, budget)
        propagated = watch.lap()
        gnn.logits(reached, question)
        return {
            "seconds": propagated + watch.lap(),
            "propagate_seconds": propagated,
            "entities": float(len(reached.rows)),
        }

    return step


def question_case(repeats: int, warmups: int, **arguments: Any) -> dict[str, Any]:
    """Seconds of a question. With as many warm-ups as repeats every measured question was asked once before."""
    return measure(prepare_question, arguments, SMALL, repeats, warmups)


@dataclass(frozen=True)
class CompletionTask:
    """One completion query with its answer and its own edges hidden."""

    question: Tensor
    seeds: Seeds
    positives: Tensor
    negatives: Tensor
    edges: RelationalEdges


def completion_task(graph: CompletionGraph, number: int, cfg: LossConfig) -> CompletionTask:
    """Asks for the tail of a random triple: one positive, strict negatives, the triple and its inverse masked."""
    generator = generator_for(number)
    triple = graph.train[torch.randint(len(graph.train), (1,), generator=generator)]
    query = Queries(*(column[:1] for column in both_directions(triple, graph.num_relations)))
    positives = torch.zeros(1, graph.num_entities, dtype=torch.bool).index_fill_(1, query.answer, True)
    negatives = sample_negatives(~graph.known_answers(query), cfg.num_negatives, [generator])
    question = graph.relation_embeddings[query.edge_type]
    return CompletionTask(question, query.seeds(), positives, negatives, graph.edges_without(triple))


def prepare_training(
    *,
    form: str,
    entities: int,
    triples: int,
    relations: int,
    text_dim: int,
    hidden_dim: int,
    layers: int,
    seed: int,
) -> Step:
    """A graph, and a step that runs forward, loss and backward for one query, without an optimizer."""
    graph = random_graph(entities, triples, relations, text_dim, seed)
    gnn, cfg = random_model(form, text_dim, hidden_dim, layers, seed), LossConfig()
    completion_task(graph, seed, cfg)  # makes the graph's own look-up tables, which belong to its inputs

    def step(number: int) -> dict[str, float]:
        task = completion_task(graph, seed + number, cfg)
        if form == "reference":
            _ = task.edges.kept  # the mask is applied before the clock starts
        gnn.zero_grad()
        logits_of = reference_logits if form == "reference" else _logits
        watch = Stopwatch()
        logits = logits_of(gnn, task.question, graph.relation_embeddings, task.seeds, task.edges)
        loss = phase_one_loss(logits, task.positives, task.negatives, cfg)[0]
        forward = watch.lap()
        loss.backward()
        backward = watch.lap()
        return {"seconds": forward + backward, "forward_seconds": forward, "backward_seconds": backward}

    return step


def training_case(repeats: int, warmups: int = 1, **arguments: Any) -> dict[str, Any]:
    """Seconds and memory of a training step on one query."""
    return measure(prepare_training, arguments, SMALL, repeats, warmups)


def _logits(
    gnn: QueryConditionedGNN, question: Tensor, relations: Tensor, seeds: Seeds, edges: RelationalEdges
) -> Tensor:
    logits: Tensor = gnn(question, relations, seeds, edges)
    return logits
