"""Queries, known answers, strict negatives and the stream of batches."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm.training.graphs import both_directions
from gfm.training.sampling import CompletionSampler, generator_for, query_generators, sample_negatives
from tests.training.graphs import Triple, completion_graph, edge_set

V, R = 6, 3
TRIPLES = st.lists(st.tuples(st.integers(0, V - 1), st.integers(0, R - 1), st.integers(0, V - 1)), max_size=20)


def test_each_triple_becomes_a_tail_and_a_head_query():
    queries = both_directions(torch.tensor([[4, 1, 5], [0, 2, 0]]), num_relations=3)
    assert queries.entity.tolist() == [4, 0, 5, 0]
    assert queries.edge_type.tolist() == [1, 2, 4, 5]
    assert queries.answer.tolist() == [5, 0, 4, 0]


def test_each_query_starts_at_its_entity_with_weight_one():
    seeds = both_directions(torch.tensor([[4, 1, 5], [0, 2, 0]]), num_relations=3).seeds()
    assert seeds.entity.tolist() == [4, 0, 5, 0]
    assert seeds.question.tolist() == [0, 1, 2, 3]
    assert seeds.weight.tolist() == [1.0] * 4


def test_edges_are_the_train_triples_and_their_inverses():
    graph = completion_graph([(0, 1, 2), (3, 0, 3)], V, R, extra=[(5, 0, 4)])
    assert edge_set(graph.edges) == [(0, 1, 2), (2, 4, 0), (3, 0, 3), (3, 3, 3)]
    assert (graph.edges.num_nodes, graph.edges.num_edge_types) == (V, 2 * R)


@settings(max_examples=60)
@given(train=TRIPLES, extra=TRIPLES, asked=TRIPLES)
def test_known_answers_are_those_of_a_search_through_all_true_triples(
    train: list[Triple], extra: list[Triple], asked: list[Triple]
):
    graph = completion_graph(train, V, R, extra)
    queries = both_directions(torch.tensor(asked, dtype=torch.int64).reshape(-1, 3), R)
    true = {*train, *extra}
    rows = zip(queries.entity.tolist(), queries.edge_type.tolist(), strict=True)
    want = [[((e, r, a) if r < R else (a, r - R, e)) in true for a in range(V)] for e, r in rows]
    assert graph.known_answers(queries).tolist() == want


def test_a_querys_own_answer_is_known_although_it_is_held_out():
    graph = completion_graph([(0, 0, 1)], V, R, extra=[(0, 0, 2)])
    queries = both_directions(graph.held_out, R)
    assert graph.known_answers(queries)[0].nonzero().flatten().tolist() == [1, 2]
    assert graph.known_answers(queries)[1].nonzero().flatten().tolist() == [0]


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(st.booleans(), min_size=8, max_size=8), max_size=5),
    count=st.integers(-1, 12),
    seed=st.integers(0, 1000),
)
def test_sampled_negatives_are_allowed_and_as_many_as_wanted(rows: list[list[bool]], count: int, seed: int):
    allowed = torch.tensor(rows, dtype=torch.bool).reshape(-1, 8)
    kept = sample_negatives(allowed, count, [generator_for(seed)])
    assert not (kept & ~allowed).any()
    available = allowed.sum(dim=1)
    assert kept.sum(dim=1).tolist() == (available if count <= 0 else available.clamp(max=count)).tolist()


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_known_answer_is_never_a_negative(count: int):
    graph = completion_graph([(0, 0, 1), (0, 0, 2), (3, 0, 1)], V, R, extra=[(0, 0, 4)])
    queries = both_directions(graph.train, R)
    known = graph.known_answers(queries)
    for seed in range(20):
        assert not (sample_negatives(~known, count, [generator_for(seed)]) & known).any()


def test_negatives_are_uniform_and_reproducible():
    allowed = torch.tensor([[True, True, False, True, True]]).expand(4000, 5)
    kept = sample_negatives(allowed, 2, [generator_for(0)])
    # Each of the four is kept with probability 1/2; the standard error is 0.008.
    torch.testing.assert_close(kept.float().mean(dim=0), torch.tensor([0.5, 0.5, 0, 0.5, 0.5]), rtol=0, atol=0.04)
    assert torch.equal(kept, sample_negatives(allowed, 2, [generator_for(0)]))


@pytest.mark.parametrize(("size", "batch_size"), [(12, 4), (7, 1), (5, 5), (3, 8), (7, 3)])
def test_every_triple_is_seen_once_before_any_is_seen_again(size: int, batch_size: int):
    batches = CompletionSampler([size], [1.0], batch_size, 1.0, seed=0).batches()
    drawn = [i for batch in islice(batches, 4 * size) for i in batch.chosen.tolist()]
    for start in range(0, 3 * size, size):
        assert sorted(drawn[start : start + size]) == list(range(size))
    assert drawn[:size] != drawn[size : 2 * size] or size < 4


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_every_batch_has_the_size_asked_for(size: int):
    batches = CompletionSampler([size], [1.0], 4, 1.0, seed=0).batches()
    assert {len(batch.chosen) for batch in islice(batches, 10)} == {4}


def stream(seed: int, start: int = 0, stop: int = 2500) -> list[tuple[int, int, list[int]]]:
    sampler = CompletionSampler([9, 6], [1.0, 2.0], 2, 1.0, seed)
    return [(b.step, b.graph, b.chosen.tolist()) for b in islice(sampler.batches(start), stop - start)]


def test_batches_are_reproducible_and_differ_between_seeds():
    assert stream(3, stop=20) == stream(3, stop=20)
    assert stream(3, stop=20) != stream(4, stop=20)


@pytest.mark.parametrize("start", [1, 7, 1023, 1024, 2400])
def test_a_stream_that_starts_late_goes_on_as_if_it_had_not(start: int):
    assert stream(3, start) == stream(3)[start:]


def test_negatives_of_a_triple_do_not_depend_on_the_triples_beside_it():
    allowed = torch.ones(6, 50, dtype=torch.bool)  # tail queries of triples 0..2, then head queries
    whole = sample_negatives(allowed, 5, query_generators(1, 8, range(3)))
    second = sample_negatives(allowed[:4], 5, query_generators(1, 8, range(1, 3)))
    assert torch.equal(whole[[1, 2, 4, 5]], second)
    assert not torch.equal(whole[0], whole[1]) and not torch.equal(whole[0], whole[3])
    assert not torch.equal(whole, sample_negatives(allowed, 5, query_generators(1, 9, range(3))))


@pytest.mark.parametrize(
    ("weights", "temperature", "share"),
    # Sizes 40 and 10: shares follow weight · size^(1 / T). At T = 2: √4 : 1. At T = 0.01 the powers overflow.
    [
        ((1, 1), 1.0, 0.8),
        ((1, 1), 2.0, 2 / 3),
        ((1, 1), 1e9, 0.5),
        ((1, 4), 1.0, 0.5),
        ((1, 0), 1.0, 1.0),
        ((1, 1), 0.01, 1.0),
    ],
)
def test_graphs_are_drawn_by_weight_and_tempered_size(weights: tuple[float, float], temperature: float, share: float):
    batches = CompletionSampler([40, 10], weights, 4, temperature, seed=0).batches()
    drawn = [batch.graph for batch in islice(batches, 2000)]
    # Standard error at most 0.011.
    assert drawn.count(0) / 2000 == pytest.approx(share, abs=0.045)
