"""Conversions: nothing is lost on the way to PyG or networkx and back."""

from __future__ import annotations

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from gfm.errors import InputError
from gfm.kg.convert import from_data, from_hetero, from_networkx, to_data, to_hetero, to_networkx
from gfm.kg.graph import KnowledgeGraph

HOSTILE = ["NA", "", "1984", "知", "🦉", "a b", "a__b", "to", "*", "names", "relation_names", "_global_store", "type",
           "\n", "\u2028", "x_dict", "class", "entity", "document"]  # fmt: skip
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4))


@st.composite
def graphs(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    relations = draw(st.lists(NAMES, min_size=1, max_size=3))
    end = st.sampled_from(names)
    triples = draw(st.lists(st.tuples(end, st.sampled_from(relations), end), max_size=8))
    types = draw(
        st.none() | st.dictionaries(end, st.sampled_from(["entity", "x", "a__b", "names", "to", relations[0]]))
    )
    return KnowledgeGraph.from_triples(triples, names, relations, types)


@settings(max_examples=60)
@given(graphs())
def test_data_round_trip_keeps_ids_and_order(graph):
    back = from_data(to_data(graph))
    assert back.entity_names == graph.entity_names and back.relation_names == graph.relation_names
    assert back.edge_index.equal(graph.edge_index) and back.edge_type.equal(graph.edge_type)
    assert back.entity_types == graph.entity_types


@settings(max_examples=60)
@given(graphs())
def test_hetero_round_trip_keeps_everything_but_order(graph):
    assert from_hetero(to_hetero(graph)).same_as(graph)


@settings(max_examples=60)
@given(graphs())
def test_networkx_round_trip_keeps_everything_but_order(graph):
    back = from_networkx(to_networkx(graph))
    assert back.same_as(graph)
    assert (list(back.entity_names), list(back.relation_names)) == (graph.entity_names, graph.relation_names)


GRAPH = KnowledgeGraph.from_triples(
    [("ann", "born in", "ulm"), ("bob", "born in", "ulm"), ("ann", "knows", "bob"), ("bob", "born in", "ulm")],
    entities=["ulm", "rome"],
    relations=["unused"],
    entity_types={"ann": "person", "bob": "person", "ulm": "city", "rome": "city"},
)


def test_data_holds_direct_triples_and_names():
    data = to_data(GRAPH)
    assert data.num_nodes == 4 and data.edge_index.tolist() == [[2, 3, 2, 3], [0, 0, 3, 0]]
    assert data.edge_type.tolist() == [1, 1, 2, 1]
    assert data.entity_names == ["ulm", "rome", "ann", "bob"] and data.entity_types == ["city", "city"] + ["person"] * 2


def test_hetero_has_a_type_per_entity_type_and_typed_relation():
    data = to_hetero(GRAPH)
    assert data.node_types == ["city", "person"] and data["city"].names == ["ulm", "rome"]
    assert sorted(data.edge_types) == [("person", "born in", "city"), ("person", "knows", "person")]
    assert data["person", "born in", "city"].edge_index.tolist() == [[0, 1, 1], [0, 0, 0]]
    assert data["person", "knows", "person"].edge_index.tolist() == [[0], [1]]
    assert data.validate()


def test_networkx_keeps_parallel_and_duplicate_edges_apart():
    result = to_networkx(GRAPH)
    assert result.number_of_edges("bob", "ulm") == 2 and result.number_of_nodes() == 4
    assert [d["relation"] for d in result.get_edge_data("ann", "bob").values()] == ["knows"]
    assert result.nodes["rome"] == {"type": "city"}


def test_a_networkx_edge_key_or_a_simple_digraph_will_do():
    keyed = networkx.MultiDiGraph()
    keyed.add_edge("a", "b", key="likes")
    keyed.add_edge("a", "b", key="knows")
    assert from_networkx(keyed).same_as(KnowledgeGraph.from_triples([("a", "likes", "b"), ("a", "knows", "b")]))
    simple = networkx.DiGraph()
    simple.add_edge("a", "b", relation="likes")
    assert from_networkx(simple).same_as(KnowledgeGraph.from_triples([("a", "likes", "b")]))


def networkx_graph(kind=networkx.MultiDiGraph, ends=("a", "b"), node=None, **attributes):
    graph = kind()
    graph.add_node(ends[0], **(node or {}))
    graph.add_edge(*ends, **attributes)
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (networkx_graph(networkx.MultiGraph, relation="r"), "undirected"),
        (networkx_graph(), "'a' -> 'b' has the relation 0"),
        (networkx_graph(networkx.DiGraph), "'a' -> 'b' has the relation None"),
        (networkx_graph(relation=3), "has the relation 3"),
        (networkx_graph(ends=(1, 2), relation="r"), "node 1 .* relabel"),
        (networkx_graph(node={"type": 5}, relation="r"), "of type 5"),
    ],
)
def test_a_networkx_graph_that_is_no_knowledge_graph_is_refused(graph, message):
    with pytest.raises(InputError, match=message):
        from_networkx(graph)


def test_data_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="has no 'edge_type'"):
        from_data(Data(edge_index=torch.tensor([[0], [1]])))
    for field, value, message in [
        ("entity_names", ["a", "b"], "4 entity types for 2 entities"),
        ("entity_names", ["ulm", "ulm", "ann", "bob"], "'ulm' occurs twice"),
        ("num_nodes", 5, "5 nodes but 4 entity_names"),
        ("relation_names", None, "has no 'relation_names'"),
    ]:
        data = to_data(GRAPH)
        data[field] = value
        with pytest.raises(InputError, match=message):
            from_data(data)


def hetero(names_a=("a",), names_b=("b",), edge=((0,), (0,)), target="B"):
    data = HeteroData()
    for kind, names in (("A", names_a), ("B", names_b)):
        data[kind].num_nodes = 1
        data[kind].names = names and list(names)
    data["A", "r", target].edge_index = torch.tensor(edge)
    return data


def test_foreign_hetero_data_needs_names_that_fit():
    assert list(from_hetero(hetero()).triples()) == [("a", "r", "b")]
    for change, message in [
        ({"names_a": None}, "node type 'A' has 1 nodes and none 'names'"),
        ({"names_a": ("a", "c")}, "1 nodes and 2 'names'"),
        ({"names_b": ("a",)}, "entity name 'a' occurs twice"),
        ({"edge": ((1,), (0,))}, "head ids reach 1 of 1 nodes"),
        ({"edge": ((0,), (-1,))}, "tail ids"),
        ({"target": "C"}, "needs an edge_index and both its node types"),
    ]:
        with pytest.raises(InputError, match=message):
            from_hetero(hetero(**change))
