"""KnowledgeGraph: numbering, inverses, checks and equality."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph

TRIPLES = [("a", "likes", "b"), ("b", "likes", "a"), ("a", "knows", "a"), ("a", "likes", "b")]


def test_names_are_numbered_by_first_appearance_after_the_given_ones():
    graph = KnowledgeGraph.from_triples(TRIPLES, entities=["z", "b"], relations=["unused"])
    assert graph.entity_names == ["z", "b", "a"]
    assert graph.relation_names == ["unused", "likes", "knows"]
    assert graph.edge_index.tolist() == [[2, 1, 2, 2], [1, 2, 2, 1]]
    assert graph.edge_type.tolist() == [1, 1, 2, 1]
    assert (graph.num_entities, graph.num_relations, graph.num_edge_types, graph.num_edges) == (3, 3, 6, 4)
    assert graph.entity_ids == {"z": 0, "b": 1, "a": 2}
    assert graph.relation_ids == {"unused": 0, "likes": 1, "knows": 2}
    assert repr(graph) == "KnowledgeGraph(3 entities, 3 relations, 4 triples)"


def test_triples_come_back_in_order_with_duplicates_and_self_loops():
    assert list(KnowledgeGraph.from_triples(TRIPLES).triples()) == TRIPLES


def test_inverses_follow_the_direct_edges_in_the_same_order():
    graph = KnowledgeGraph.from_triples(TRIPLES)
    edge_index, edge_type = graph.with_inverses()
    assert edge_index.tolist() == [[0, 1, 0, 0, 1, 0, 0, 1], [1, 0, 0, 1, 0, 1, 0, 0]]
    assert edge_type.tolist() == [0, 0, 1, 0, 2, 2, 3, 2]
    assert edge_index.dtype == edge_type.dtype == torch.int64


def test_relation_texts_line_up_with_the_edge_types_of_propagation():
    graph = KnowledgeGraph.from_triples(TRIPLES)
    assert graph.relation_texts() == ["likes", "knows", "inverse of likes", "inverse of knows"]
    assert len(graph.relation_texts()) == graph.num_edge_types


def test_an_empty_graph_has_all_shapes():
    graph = KnowledgeGraph.from_triples([], entities=["alone"])
    assert graph.edge_index.shape == (2, 0)
    assert [tuple(t.shape) for t in graph.with_inverses()] == [(2, 0), (0,)]
    assert list(graph.triples()) == []
    assert KnowledgeGraph.from_triples([]).num_entities == 0


def test_entities_without_a_type_are_of_type_entity():
    plain = KnowledgeGraph.from_triples(TRIPLES)
    assert plain.entity_types is None and plain.type_of(0) == "entity"
    typed = KnowledgeGraph.from_triples(TRIPLES, entity_types={"b": "person"})
    assert [typed.type_of(i) for i in range(2)] == ["entity", "person"]


def graph_of(heads=(0,), tails=(1,), types=(0,), entities=("a", "b"), relations=("r",), entity_types=None):
    return KnowledgeGraph(entities, relations, torch.tensor([heads, tails]), torch.tensor(types), entity_types)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tails": (2,)}, "entity ids run from 0 to 2 but there are 2 entity names"),
        ({"heads": (-1,)}, "entity ids run from -1 to 1"),
        ({"types": (1,)}, "relation ids run from 1 to 1 but there are 1 relation names"),
        ({"types": (0, 0)}, r"edge_type has shape \(2,\) for 1 edges"),
        ({"entity_types": ("person",)}, "1 entity types for 2 entities"),
    ],
)
def test_ids_and_shapes_that_do_not_fit_are_refused(change, message):
    assert graph_of().num_edges == 1
    with pytest.raises(InputError, match=message):
        graph_of(**change)


def test_an_edge_index_of_the_wrong_shape_is_refused():
    with pytest.raises(InputError, match=r"edge_index has shape \(1, 2\)"):
        KnowledgeGraph(["a", "b"], ["r"], torch.tensor([[0, 1]]), torch.tensor([0, 0]))


def test_a_repeated_name_is_refused_and_shown():
    with pytest.raises(InputError, match="entity name 'a' occurs twice"):
        _ = graph_of(entities=("a", "a")).entity_ids
    with pytest.raises(InputError, match="relation name 'r' occurs twice"):
        _ = graph_of(relations=("r", "r")).relation_ids


def test_same_as_ignores_numbering():
    graph = KnowledgeGraph.from_triples(TRIPLES)
    other = KnowledgeGraph.from_triples(reversed(TRIPLES), entities=["b"], relations=["knows"])
    assert graph.entity_names != other.entity_names
    assert graph.same_as(other) and other.same_as(graph)


@pytest.mark.parametrize(
    "other",
    [
        KnowledgeGraph.from_triples(TRIPLES[:3]),
        KnowledgeGraph.from_triples([*TRIPLES[:3], ("b", "knows", "b")]),
        KnowledgeGraph.from_triples([(t, r, h) for h, r, t in TRIPLES]),
        KnowledgeGraph.from_triples(TRIPLES, entities=["alone"]),
        KnowledgeGraph.from_triples(TRIPLES, relations=["unused"]),
        KnowledgeGraph.from_triples(TRIPLES, entity_types={"a": "person"}),
    ],
    ids=["multiplicity", "triple", "direction", "isolated", "relation", "type"],
)
def test_same_as_sees_every_difference(other):
    graph = KnowledgeGraph.from_triples(TRIPLES)
    assert not graph.same_as(other) and not other.same_as(graph)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), max_size=20),
    st.sets(st.integers(0, 5)),
)
def test_edges_by_head_and_by_tail_are_those_that_a_scan_finds(triples: list[tuple[int, int, int]], wanted: set[int]):
    ids = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)
    graph = KnowledgeGraph([f"e{i}" for i in range(6)], ["r", "s"], ids[:, [0, 2]].T, ids[:, 1])
    entities = torch.tensor(sorted(wanted), dtype=torch.int64)
    for row, edges in ((0, graph.edges_from(entities)), (1, graph.edges_into(entities))):
        scanned = [i for i, triple in enumerate(triples) if triple[2 * row] in wanted]
        assert sorted(edges.tolist()) == scanned
