"""A hop: which entities and edges one layer has to touch, and which ones a budget keeps."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfm.nn import frontier
from gfm.nn.edges import RelationalEdges
from gfm.nn.frontier import Hop, next_hop, numbered
from tests.nn.graphs import Triple, directed

ALWAYS = 2.0  # a share of the edges that no hop exceeds


class Case(NamedTuple):
    """A multigraph with self-loops, parallel edges, isolated entities and a mask, and where to start in it."""

    num_nodes: int
    triples: list[Triple]
    keep: list[bool] | None
    active: list[int]

    def edges(self) -> RelationalEdges:
        return directed(self.triples, self.num_nodes, 3, None if self.keep is None else torch.tensor(self.keep))

    def kept(self) -> list[Triple]:
        """The edges that carry messages."""
        return [t for i, t in enumerate(self.triples) if self.keep is None or self.keep[i]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_nodes = draw(st.integers(1, 8))
    entity = st.integers(0, num_nodes - 1)
    triples = draw(st.lists(st.tuples(entity, st.integers(0, 2), entity), min_size=1, max_size=20))
    keep = draw(st.none() | st.lists(st.booleans(), min_size=len(triples), max_size=len(triples)))
    return Case(num_nodes, triples, keep, sorted(draw(st.sets(entity))))


def ids(*entities: int) -> Tensor:
    return torch.tensor(entities, dtype=torch.int64)


def hop_of(
    edges: RelationalEdges, active: Tensor, mass: Tensor | None = None, budget: int | None = None, share: float = ALWAYS
) -> Hop:
    """The hop, computed for the active entities alone whatever their share of the edges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "FULL_SHARE", share)
        hop = next_hop(edges, active, mass, budget)
    assert hop is not None and hop.entities is not None
    return hop


def edges_by_id(hop: Hop, active: Tensor) -> Counter[Triple]:
    """The hop's edges, `(source, type, destination)` in entity ids."""
    source, target = hop.edges.edge_index.long()
    assert hop.edges.keep is None
    columns = (active[source], hop.edges.edge_type, hop.entities[target])
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=60)
@given(cases())
def test_entities_after_l_hops_are_those_that_networkx_finds_within_l_hops(case: Case):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(case.num_nodes))
    graph.add_edges_from((source, target) for source, _, target in case.kept())
    edges, active = case.edges(), ids(*case.active)
    length = nx.multi_source_dijkstra_path_length(graph, set(case.active)) if case.active else {}
    for hops in range(1, 5):
        active = hop_of(edges, active).entities
        assert active.tolist() == sorted(entity for entity, far in length.items() if far <= hops)


@settings(max_examples=60)
@given(cases())
def test_the_hop_has_every_message_of_an_active_entity_exactly_once(case: Case):
    active = ids(*case.active)
    hop = hop_of(case.edges(), active)
    assert edges_by_id(hop, active) == Counter(t for t in case.kept() if t[0] in case.active)
    assert (hop.edges.num_sources, hop.edges.num_nodes) == (len(active), len(hop.entities))
    assert hop.edges.num_edge_types == 3
    assert hop.mass is None


@settings(max_examples=60)
@given(cases())
def test_every_active_entity_is_carried_to_its_own_row(case: Case):
    active = ids(*case.active)
    hop = hop_of(case.edges(), active)
    assert hop.carried is None
    assert torch.equal(hop.entities[hop.carried_to], active)


# Entity 0 has two edges out, 1 has one, 2 has none; 4 edges in all.
SHARES = directed([(0, 0, 1), (0, 0, 2), (1, 0, 2), (3, 0, 0)], 4, 1)


@pytest.mark.parametrize(
    ("active", "share", "full"),
    [((0,), 0.5, True), ((0,), 0.51, False), ((1,), 0.5, False), ((1, 3), 0.5, True), ((2,), 0.01, False)],
)
def test_above_the_share_of_edges_the_whole_graph_is_cheaper(
    monkeypatch: pytest.MonkeyPatch, active: tuple[int, ...], share: float, full: bool
):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    assert (next_hop(SHARES, ids(*active)) is None) == full


def test_with_a_budget_the_hop_stays_a_part_whatever_its_share(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frontier, "FULL_SHARE", 0.0)
    assert next_hop(SHARES, ids(0, 1, 2, 3)) is None
    assert next_hop(SHARES, ids(0, 1, 2, 3), torch.ones(4), 4) is not None


# One step of the lazy walk by hand. Masses 1, 1/2, 1/2 of the active 0, 1, 2; 3 gets 1/2 from 1 and half of 1/2 from
# 2, whose other half goes to 4; 1 and 2 get half of 1 each.
DIAMOND = directed([(0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 0, 3), (2, 1, 4), (5, 0, 0)], 6, 3)
DIAMOND_MASS = {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.75, 4: 0.25}


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6, 100])
def test_a_budget_keeps_the_entities_of_highest_mass_and_the_lower_id_of_equals(budget: int):
    active = ids(0, 1, 2)
    hop = hop_of(DIAMOND, active, torch.tensor([1.0, 0.5, 0.5]), budget)
    want = list(DIAMOND_MASS)[:budget]
    assert hop.entities.tolist() == want
    assert hop.mass.tolist() == [DIAMOND_MASS[entity] for entity in want]
    into = [(0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 0, 3), (2, 1, 4)]
    assert edges_by_id(hop, active) == Counter(t for t in into if t[2] in want)
    assert hop.carried.tolist() == [row for row, entity in enumerate([0, 1, 2]) if entity in want]
    assert torch.equal(hop.entities[hop.carried_to], active[hop.carried])


def test_a_budget_may_drop_what_is_active():
    # 3 gets all of three masses, 1 + 1 + 1; the sources keep 1 each.
    edges = directed([(0, 0, 3), (1, 1, 3), (2, 2, 3)], 4, 3)
    hop = hop_of(edges, ids(0, 1, 2), torch.ones(3), 1)
    assert hop.entities.tolist() == [3] and hop.mass.tolist() == [3.0]
    assert hop.carried.tolist() == [] and hop.carried_to.tolist() == []
    assert edges_by_id(hop, ids(0, 1, 2)) == Counter([(0, 0, 3), (1, 1, 3), (2, 2, 3)])


def test_parallel_edges_carry_a_share_each():
    hop = hop_of(directed([(0, 0, 1), (0, 1, 1), (0, 0, 2)], 3, 2), ids(0), torch.tensor([3.0]), 9)
    assert hop.mass.tolist() == [3.0, 2.0, 1.0]


def test_a_self_loop_returns_its_share():
    hop = hop_of(directed([(0, 0, 0), (0, 0, 1)], 2, 1), ids(0), torch.tensor([2.0]), 9)
    assert hop.mass.tolist() == [3.0, 1.0]


def test_a_masked_edge_carries_no_mass_and_counts_for_no_degree():
    edges = directed([(0, 0, 1), (0, 0, 2), (0, 0, 3)], 4, 1, torch.tensor([True, False, True]))
    hop = hop_of(edges, ids(0), torch.tensor([1.0]), 9)
    assert hop.entities.tolist() == [0, 1, 3] and hop.mass.tolist() == [1.0, 0.5, 0.5]


@settings(max_examples=60)
@given(cases(), st.data())
def test_without_a_cut_mass_grows_by_what_flows_and_doubles_where_all_have_edges_out(case: Case, data: st.DataObject):
    if data.draw(st.booleans()):  # an edge out of every entity, and no mask
        case = case._replace(triples=case.triples + [(e, 0, 0) for e in range(case.num_nodes)], keep=None)
    size = len(case.active)
    mass = torch.tensor(data.draw(st.lists(st.integers(0, 8), min_size=size, max_size=size)), dtype=torch.float32)
    hop = hop_of(case.edges(), ids(*case.active), mass, case.num_nodes)
    sources = {source for source, _, _ in case.kept()}
    flows = sum(float(m) for m, entity in zip(mass, case.active, strict=True) if entity in sources)
    assert float(hop.mass.sum()) == pytest.approx(float(mass.sum()) + flows, rel=1e-5)
    exact = hop_of(case.edges(), ids(*case.active))
    assert torch.equal(hop.entities, exact.entities)
    assert edges_by_id(hop, ids(*case.active)) == edges_by_id(exact, ids(*case.active))


@settings(max_examples=60)
@given(cases(), st.data())
def test_a_cut_keeps_the_best_of_all_masses_with_their_edges(case: Case, data: st.DataObject):
    active, size = ids(*case.active), len(case.active)
    # Few different masses: many ties.
    mass = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)), dtype=torch.float32)
    budget = data.draw(st.integers(1, case.num_nodes))
    everything = hop_of(case.edges(), active, mass, case.num_nodes)
    value = dict(zip(everything.entities.tolist(), everything.mass.tolist(), strict=True))
    want = sorted(sorted(value, key=lambda entity: (-value[entity], entity))[:budget])
    for _ in range(2):
        hop = hop_of(case.edges(), active, mass, budget)
        assert hop.entities.tolist() == want
        assert hop.mass.tolist() == [value[entity] for entity in want]
    into = Counter({t: n for t, n in edges_by_id(everything, active).items() if t[2] in want})
    assert edges_by_id(hop, active) == into
    assert torch.equal(hop.entities[hop.carried_to], active[hop.carried])
    assert hop.carried.tolist() == [row for row, entity in enumerate(case.active) if entity in want]


def test_what_a_hub_leads_to_shares_the_hubs_mass():
    # 0 is a hub of 100 neighbours, 1 has the single neighbour 200.
    edges = directed([(0, 0, n) for n in range(50, 150)] + [(1, 0, 200)], 201, 1)
    hop = hop_of(edges, ids(0, 1), torch.ones(2), 3)
    assert hop.entities.tolist() == [0, 1, 200]
    whole = hop_of(edges, ids(0, 1), torch.ones(2), 201)
    assert whole.mass[2:102].tolist() == pytest.approx([0.01] * 100)


def test_among_many_equals_the_lowest_ids_stay():
    edges = directed([(499, 0, n) for n in reversed(range(499))], 500, 1)
    assert hop_of(edges, ids(499), torch.ones(1), 40).entities.tolist() == [*range(39), 499]


def test_a_budget_without_priorities_is_an_error_of_the_caller():
    with pytest.raises(AssertionError, match="a budget needs priorities"):
        next_hop(DIAMOND, ids(0), budget=2)


@given(st.lists(st.booleans(), max_size=12))
def test_numbers_count_the_chosen_places(mask: list[bool]):
    chosen, number = numbered(torch.tensor(mask, dtype=torch.bool))
    assert chosen.tolist() == [i for i, m in enumerate(mask) if m]
    assert number[chosen].tolist() == list(range(sum(mask)))
