"""Completion never sees the edge it is asked for: the answer's own edge is gone in both directions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfm.config import LossConfig
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.relations import RelationStates
from gfm.nn.states import EntityStates, Seeds
from gfm.training.graphs import both_directions
from gfm.training.steps import completion_logits, completion_step
from tests.training.graphs import TEXT, Triple, completion_graph, edge_set

A, B, ALONE = 0, 1, 2
FORMS = pytest.mark.parametrize("zero_preserving", [True, False])


class RecordingGNN(QueryConditionedGNN):
    """Notes the edges that every forward pass runs on, and the logits of what it leaves."""

    def propagate(
        self,
        question: Tensor,
        relations: Tensor | RelationStates,
        seeds: Seeds,
        edges: RelationalEdges,
        frontier_budget: int | None = None,
    ) -> EntityStates:
        self.seen = edges
        states = super().propagate(question, relations, seeds, edges, frontier_budget)
        self.given = self.logits(states, question)
        return states


def gnn_of(zero_preserving: bool = True) -> RecordingGNN:
    torch.manual_seed(0)
    return RecordingGNN(TEXT, 16, 4, zero_preserving)


def answer_states(gnn: QueryConditionedGNN, hide: bool) -> tuple[Tensor, Tensor]:
    """States of answer and isolated entity for the tail and the head query of a graph of one triple, `(2, d)` each."""
    graph = completion_graph([(A, 0, B)], 3, 1)
    queries = both_directions(graph.train, 1)
    edges = graph.edges_without(graph.train) if hide else graph.edges
    question = graph.relation_embeddings[queries.edge_type]
    with torch.no_grad():
        states = gnn.propagate(question, graph.relation_embeddings, queries.seeds(), edges).dense()
    return states[queries.answer, torch.arange(2)], states[ALONE]


def test_the_answer_of_a_graph_of_one_edge_is_unreachable_from_both_ends():
    answers, alone = answer_states(gnn_of(), hide=True)
    assert not answers.any() and not alone.any()


@FORMS
def test_the_hidden_answer_is_indistinguishable_from_an_isolated_entity(zero_preserving: bool):
    answers, alone = answer_states(gnn_of(zero_preserving), hide=True)
    assert torch.equal(answers, alone)


@FORMS
def test_without_hiding_the_answer_would_be_reached_from_both_ends(zero_preserving: bool):
    answers, alone = answer_states(gnn_of(zero_preserving), hide=False)
    assert ((answers - alone).abs().max(dim=1).values > 1e-3).all()


@FORMS
def test_the_training_step_scores_the_answer_like_an_isolated_entity(zero_preserving: bool):
    gnn, graph = gnn_of(zero_preserving), completion_graph([(A, 0, B)], 3, 1)
    completion_step(gnn, graph, graph.train, LossConfig())
    assert edge_set(gnn.seen) == []
    assert gnn.given.shape == (2, 3)
    # The states are bit for bit the same; the last matrix product may round each row differently.
    torch.testing.assert_close(gnn.given[0, B], gnn.given[0, ALONE])  # (a, r, ?)
    torch.testing.assert_close(gnn.given[1, A], gnn.given[1, ALONE])  # (b, r⁻¹, ?)


def test_duplicates_go_and_every_other_edge_stays():
    # The reverse edge, another relation between the same ends and a neighbour are facts of their own.
    others = [(B, 0, A), (A, 1, B), (A, 0, ALONE)]
    gnn, graph = gnn_of(), completion_graph([(A, 0, B), *others, (A, 0, B)], 3, 2)
    completion_step(gnn, graph, graph.train[:1], LossConfig())
    assert edge_set(gnn.seen) == sorted(others + [(t, r + 2, h) for h, r, t in others])


def test_a_self_loop_is_hidden_in_both_directions():
    graph = completion_graph([(A, 0, A), (A, 0, B)], 2, 1)
    assert edge_set(graph.edges_without(graph.train[:1])) == [(A, 0, B), (B, 1, A)]


def test_hiding_leaves_the_graph_itself_as_it_was():
    graph = completion_graph([(A, 0, B), (B, 0, ALONE)], 3, 1)
    before = edge_set(graph.edges)
    graph.edges_without(graph.train)
    assert edge_set(graph.edges) == before and len(before) == 4


def test_outside_training_the_held_out_edge_is_no_part_of_the_graph():
    graph = completion_graph([(B, 0, ALONE)], 3, 1, extra=[(A, 0, B)])
    gnn = gnn_of()
    completion_logits(gnn, graph, both_directions(graph.held_out, 1), graph.edges)
    assert edge_set(gnn.seen) == [(B, 0, ALONE), (ALONE, 1, B)]


TRIPLES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), max_size=20)


@settings(max_examples=50)
@given(train=TRIPLES, batch=TRIPLES)
def test_exactly_the_batchs_triples_and_their_inverses_are_hidden(train: list[Triple], batch: list[Triple]):
    left = [triple for triple in train if triple not in batch]
    graph = completion_graph(train, 5, 3)
    got = edge_set(graph.edges_without(torch.tensor(batch, dtype=torch.int64).reshape(-1, 3)))
    assert got == sorted(left + [(t, r + 3, h) for h, r, t in left])
