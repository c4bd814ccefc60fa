"""Paths: complete without a beam, bounded with one, scored by Eq. 21, in one fixed order."""

from __future__ import annotations

import itertools
import math

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.retrieval.paths import extract_paths, induced_edges
from gfm.types import Path

EVERYTHING = {"beam": None, "max_paths": None}


def graph_of(triples: list[tuple[int, int, int]], num_entities: int, num_relations: int) -> KnowledgeGraph:
    heads, relations, tails = (list(column) for column in zip(*triples, strict=True)) if triples else ([], [], [])
    return KnowledgeGraph(
        [f"e{i}" for i in range(num_entities)],
        [f"r{i}" for i in range(num_relations)],
        torch.tensor([heads, tails], dtype=torch.int64).reshape(2, -1),
        torch.tensor(relations, dtype=torch.int64),
    )


def identity(path: Path) -> tuple[object, ...]:
    return path.entity_ids, path.relations, path.forward


def reverse(path: tuple[object, ...]) -> tuple[object, ...]:
    entities, relations, forward = path
    return entities[::-1], relations[::-1], tuple(not f for f in reversed(forward))


@st.composite
def small_problems(draw: st.DrawFn) -> dict[str, object]:
    num_entities, num_relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    entity = st.integers(0, num_entities - 1)
    triples = draw(st.lists(st.tuples(entity, st.integers(0, num_relations - 1), entity), max_size=9))
    # Few distinct values, so that ties are the rule.
    value = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0])
    return {
        "graph": graph_of(triples, num_entities, num_relations),
        "triples": triples,
        "seeds": draw(st.lists(entity, max_size=3)),
        "selected": draw(st.sets(entity)),
        "gates": draw(st.lists(value, min_size=num_entities, max_size=num_entities)),
        "relation_scores": draw(st.lists(value, min_size=num_relations, max_size=num_relations)),
    }


def call(problem: dict[str, object], **options: object) -> list[Path]:
    return extract_paths(**{k: v for k, v in problem.items() if k != "triples"}, **options)


def networkx_paths(problem: dict[str, object], seed: int, max_hops: int) -> set[tuple[object, ...]]:
    """All simple paths of networkx from one seed; an edge key is the triple it stands for."""
    allowed = set(problem["selected"]) | {seed}
    multigraph = networkx.MultiGraph()
    multigraph.add_nodes_from(allowed)
    for head, relation, tail in set(problem["triples"]):
        if head in allowed and tail in allowed:
            multigraph.add_edge(head, tail, key=(head, relation, tail))
    targets = allowed - {seed}
    found = set()
    for edges in networkx.all_simple_edge_paths(multigraph, seed, targets, cutoff=max_hops):
        entities = (seed, *(v for _, v, _ in edges))
        forward = tuple(key[0] == u for u, _, key in edges)
        found.add((entities, tuple(f"r{key[1]}" for _, _, key in edges), forward))
    return found


@given(small_problems(), st.integers(1, 4))
def test_without_a_beam_every_simple_path_of_networkx_is_found_once(problem, max_hops):
    paths = [identity(path) for path in call(problem, max_hops=max_hops, **EVERYTHING)]
    expected = set().union(*(networkx_paths(problem, seed, max_hops) for seed in problem["seeds"]), set())
    assert len(paths) == len(set(paths))
    assert set(paths) <= expected
    assert expected - set(paths) == {reverse(path) for path in paths} & expected
    assert not {reverse(path) for path in paths} & set(paths)


@given(small_problems(), st.integers(1, 6))
def test_a_beam_keeps_the_best_partial_paths_of_each_length(problem, beam):
    """Against the definition itself: extend, sort, cut, hop after hop, over the paths of networkx."""
    seeds = sorted(set(problem["seeds"]))[:1]
    problem = {**problem, "seeds": seeds}
    every = call(problem, **EVERYTHING)
    expected, prefixes = [], {((s,), (), ()) for s in seeds}
    for hops in (1, 2, 3):
        level = [p for p in every if len(p.relations) == hops]
        level = [p for p in level if (p.entity_ids[:-1], p.relations[:-1], p.forward[:-1]) in prefixes][:beam]
        expected += level
        prefixes = {identity(p) for p in level}
    found = call(problem, beam=beam, max_paths=None)
    assert sorted(map(identity, found)) == sorted(map(identity, expected))


@given(small_problems())
def test_the_order_is_total_and_independent_of_how_the_input_is_listed(problem):
    found = call(problem, **EVERYTHING)
    keys = [(-p.score, len(p.relations), p.entity_ids, p.relations, [not f for f in p.forward]) for p in found]
    assert keys == sorted(keys)
    shuffled = graph_of(problem["triples"][::-1], problem["graph"].num_entities, problem["graph"].num_relations)
    again = {**problem, "graph": shuffled, "seeds": problem["seeds"][::-1]}
    assert call(again, **EVERYTHING) == found
    assert call(again, beam=2) == call(problem, beam=2)


def test_the_score_sums_gates_and_relation_scores():
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "s", "b")], entity_types={"c": "town"})
    best, short = extract_paths(graph, [0], [1, 2], [0.5, 0.75, 1.0], torch.tensor([0.25, -0.125]))
    assert best.score == 0.5 + 0.75 + 1.0 + 0.25 - 0.125
    assert (best.entities, best.relations, best.forward) == (("a", "b", "c"), ("r", "s"), (True, False))
    assert (best.entity_ids, best.entity_types) == ((0, 1, 2), ("entity", "entity", "town"))
    assert (short.entities, short.score) == (("a", "b"), 1.5)


def test_parallel_relations_and_both_directions_are_distinct_paths_and_duplicates_are_not():
    graph = graph_of([(0, 0, 1), (0, 1, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0)], 2, 2)
    found = extract_paths(graph, [0], [0, 1], [1, 1], [0, 0])
    assert [(p.relations, p.forward) for p in found] == [
        (("r0",), (True,)),
        (("r0",), (False,)),
        (("r1",), (True,)),
    ]


def test_a_seed_outside_the_selection_starts_paths_but_never_lies_on_one():
    graph = graph_of([(0, 0, 1), (1, 0, 2), (2, 0, 3)], 4, 1)
    found = extract_paths(graph, [1], {0, 2, 3}, {0: 0.5, 2: 0.5, 3: 0.5}, [0.0])
    assert [p.entity_ids for p in found] == [(1, 2, 3), (1, 0), (1, 2)]
    assert [p.score for p in found] == [1.0, 0.5, 0.5]


def test_a_path_between_two_seeds_is_reported_in_one_direction():
    graph = graph_of([(0, 0, 1), (1, 1, 2)], 3, 2)
    # Summed in floating point from left to right, 0.1 + 0.2 + 0.3 exceeds 0.3 + 0.2 + 0.1.
    found = extract_paths(graph, [2, 0], [0, 1, 2], [0.3, 0.2, 0.1], [0.0, 0.0])
    assert [p.entity_ids for p in found] == [(0, 1, 2), (0, 1), (2, 1)]


def test_the_beam_weighs_gate_and_relation_together():
    graph = graph_of([(0, 0, 1), (0, 1, 2), (0, 2, 3)], 4, 3)
    found = extract_paths(graph, [0], [1, 2, 3], [0.0, 0.9, 0.5, 0.7], [0.0, 0.6, 0.3], beam=1)
    assert [(p.entity_ids, p.score) for p in found] == [((0, 2), 1.1)]


def test_hops_and_paths_are_limited():
    chain = graph_of([(i, 0, i + 1) for i in range(5)], 6, 1)

    def lengths(**limits):
        return [len(p.relations) for p in extract_paths(chain, [0], range(6), np.ones(6), [0.0], **limits)]

    assert lengths() == [3, 2, 1]
    assert lengths(max_hops=5) == [5, 4, 3, 2, 1]
    assert lengths(max_hops=1) == [1]
    assert lengths(max_paths=2) == [3, 2]


def test_no_seeds_no_selection_and_no_edges_give_no_paths():
    graph = graph_of([(0, 0, 1)], 2, 1)
    assert extract_paths(graph, [], [0, 1], [1, 1], [0]) == []
    assert extract_paths(graph, [0], [], [1, 1], [0]) == []
    assert extract_paths(graph_of([], 2, 1), [0], [0, 1], [1, 1], [0]) == []


def test_a_hub_with_thousands_of_selected_neighbours_stays_bounded(monkeypatch):
    n, beam = 4000, 20
    hub = [(0, 0, i) for i in range(1, n)]
    ring = [(i, 1, i % (n - 1) + 1) for i in range(1, n)]
    graph = graph_of(hub + ring, n, 2)
    scored = []

    def counted(parts: tuple[float, ...]) -> float:
        scored.append(parts)
        return sum(parts)

    monkeypatch.setattr(math, "fsum", counted)
    found = extract_paths(graph, [0, 1, 2], range(n), np.linspace(1.0, 0.5, n), [0.0, 0.0], beam=beam)
    assert len(found) == 50
    assert found[0].entity_ids == (0, 1, 2, 3)
    assert len(scored) <= 3 * (beam + 2 * beam**2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_hops": 0}, "max_hops is 0"),
        ({"beam": 0}, "beam is 0"),
        ({"max_paths": -1}, "max_paths is -1"),
        ({"seeds": [7]}, "seed entity id 7"),
        ({"selected": [-1]}, "selected entity id -1"),
        ({"gates": [1.0]}, r"gates have shape \(1,\)"),
        ({"gates": {9: 1.0}}, "gate entity id 9"),
        ({"gates": [float("nan"), 1.0]}, "gate of id 0 is nan"),
        ({"relation_scores": [0.0, 0.0]}, r"relation scores have shape \(2,\)"),
    ],
)
def test_wrong_input_is_named_with_its_value(change, message):
    arguments = {"seeds": [0], "selected": [0, 1], "gates": [1, 1], "relation_scores": [0.0], **change}
    with pytest.raises(InputError, match=message):
        extract_paths(graph_of([(0, 0, 1)], 2, 1), **arguments)


@given(small_problems())
def test_induced_edges_are_the_triples_with_both_ends_selected(problem):
    expected = [
        i for i, (h, _, t) in enumerate(problem["triples"]) if h in problem["selected"] and t in problem["selected"]
    ]
    assert induced_edges(problem["graph"], problem["selected"]).tolist() == expected


def test_selection_may_be_a_set_a_list_an_array_or_a_tensor():
    graph = graph_of([(0, 0, 1), (1, 0, 2)], 3, 1)
    kinds = [{0, 1}, [0, 1], np.array([0, 1]), torch.tensor([0, 1])]
    results = [(extract_paths(graph, [0], s, [1, 1, 1], [0]), induced_edges(graph, s).tolist()) for s in kinds]
    assert all(a == b for a, b in itertools.pairwise(results))
    assert results[0][1] == [0]
