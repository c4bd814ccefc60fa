"""Random graphs have the shape that their description promises."""

from __future__ import annotations

import torch

from benchmarks.bandwidth import bound_seconds
from benchmarks.graphs import random_graph, random_question, random_triples
from benchmarks.large import names


def test_a_random_graph_has_its_sizes_and_every_inverse() -> None:
    graph = random_graph(500, 2000, 30, text_dim=8, seed=3)
    edges = graph.edges
    assert (edges.num_nodes, edges.num_edges, edges.num_edge_types) == (500, 4000, 60)
    assert torch.equal(edges.edge_index[:, :2000], edges.edge_index[:, 2000:].flip(0))
    assert torch.equal(edges.edge_type[:2000] + 30, edges.edge_type[2000:])
    assert int(graph.train[:, [0, 2]].max()) < 500
    assert int(graph.train[:, 1].max()) < 30
    torch.testing.assert_close(graph.relation_embeddings.norm(dim=1), torch.ones(60))


def test_degrees_are_heavy_tailed_unless_uniform_and_hubs_have_any_id() -> None:
    heavy, uniform = (
        torch.bincount(random_graph(5000, 20_000, 50, 4, uniform=flag).train[:, [0, 2]].flatten(), minlength=5000)
        for flag in (False, True)
    )
    assert uniform.max() < 30 < 60 < heavy.max()
    hubs = heavy.topk(20).indices
    assert 1000 < hubs.float().mean() < 4000


def test_the_same_seed_gives_the_same_triples_and_another_one_others() -> None:
    first, again, other = (random_triples(100, 300, 9, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_question_has_different_seeds_that_its_number_decides() -> None:
    embedding, seeds = random_question(50, 8, seeds=20, number=4)
    assert len(torch.unique(seeds.entity)) == 20
    assert torch.equal(random_question(50, 8, 20, 4)[1].entity, seeds.entity)
    assert not torch.equal(random_question(50, 8, 20, 5)[0], embedding)


def test_names_of_a_large_graph_are_all_different() -> None:
    assert len(set(names(5000, 2))) == 5000


def test_the_bound_counts_every_gathered_and_written_byte() -> None:
    bound = bound_seconds(entities=10, edges=100, edge_types=5, dim=8, rate=1e-9, batch=2)  # one byte a second
    assert bound["forward_bound_seconds"] == 100 * (64 + 32) + 10 * 64
    assert bound["backward_bound_seconds"] == (100 * (64 + 32) + 10 * 64) + (100 * (64 + 64) + 5 * 32)
