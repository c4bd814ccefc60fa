"""RelationalEdges: its orders hold every edge once, in blocks of one key, dealt out in shares of about equal work."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm.nn import edges as edges_module
from gfm.nn.edges import EdgeGroups, RelationalEdges, sort_by_key
from tests.nn.graphs import Triple, directed, random_triples

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
ORDERS = {"by_destination": (2, 0, 1), "by_source": (0, 2, 1), "by_relation": (1, 0, 2)}
"""Which columns of a triple are an order's key, first and second factor."""


def spread(group: EdgeGroups) -> list[int]:
    """The key of every edge in sorted order, read from `indptr`."""
    return torch.repeat_interleave(torch.arange(group.num_keys), group.indptr.diff()).tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@settings(max_examples=50)
@given(keys=st.lists(st.integers(0, 5), max_size=40), spare=st.integers(0, 3))
def test_sort_by_key_is_the_stable_sort(device: str, dtype: torch.dtype, keys: list[int], spare: int):
    num_keys = max(keys, default=-1) + 1 + spare
    indptr, order = sort_by_key(torch.tensor(keys, dtype=dtype, device=device), num_keys)
    assert (indptr.dtype, order.dtype) == (torch.int32, torch.int32)
    assert order.tolist() == np.argsort(np.array(keys, dtype=np.int64), kind="stable").tolist()
    assert indptr.tolist() == np.concatenate([[0], np.bincount(keys, minlength=num_keys).cumsum()]).astype(int).tolist()


def test_sort_by_key_reads_a_strided_column():
    columns = torch.tensor([[2, 9], [0, 9], [2, 9], [1, 9]])
    indptr, order = sort_by_key(columns[:, 0], 3)
    assert (indptr.tolist(), order.tolist()) == ([0, 1, 2, 4], [1, 3, 0, 2])


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_holds_every_edge_once_under_its_key(name: str):
    triples = random_triples(0, 60, 7, 3)
    group = getattr(directed(triples, 9, 4), name)
    assert group.num_keys == (4 if name == "by_relation" else 9)
    assert sorted(group.edge.tolist()) == list(range(60))
    columns = (spread(group), group.first.tolist(), group.second.tolist())
    for number, *got in zip(group.edge.tolist(), *columns, strict=True):
        assert got == [triples[number][column] for column in ORDERS[name]]


def test_bipartite_orders_count_sources_and_destinations_apart():
    edges = directed([(4, 0, 1), (0, 1, 0)], 2, 2, num_sources=6)
    assert [getattr(edges, name).num_keys for name in ORDERS] == [2, 6, 2]


@st.composite
def triples_of_few_keys(draw: st.DrawFn) -> list[Triple]:
    return draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=30))


@pytest.mark.parametrize("block", [1, 3, 512])
@settings(max_examples=40)
@given(triples=triples_of_few_keys(), spare=st.integers(0, 2))
def test_blocks_partition_the_edges_and_every_sum_has_one_place(block: int, triples: list[Triple], spare: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edges_module, "BLOCK", block)
        group = directed(triples, 4 + spare, 3).by_destination
    pointers, keys = group.block_ptr.tolist(), spread(group)
    assert pointers[0] == 0 and pointers[-1] == len(triples)
    whole, pieces = [], Counter()
    for row, (start, stop) in zip(group.block_row.tolist(), pairwise(pointers), strict=True):
        assert 0 <= stop - start <= block
        key = row if row >= 0 else int(group.shared_key[group.partial_owner[-1 - row]])
        assert set(keys[start:stop]) <= {key}
        if row >= 0:
            whole.append(key)
        else:
            pieces[key] += 1
    rows = [row for row in group.block_row.tolist() if row < 0]
    assert sorted(-1 - row for row in rows) == list(range(len(group.partial_owner)))
    assert sorted([*whole, *pieces]) == list(range(group.num_keys))
    assert sorted(pieces) == group.shared_key.tolist()
    assert all(count == -(-Counter(keys)[key] // block) > 1 for key, count in pieces.items())


def test_a_graph_without_nodes_has_no_block():
    group = directed([], 0, 1).by_destination
    assert (len(group.block_row), group.block_ptr.tolist(), len(group.partial_owner)) == (0, [0], 0)
    assert set(group.chunk_ptr.tolist()) == {0}


@pytest.mark.parametrize("hub_edges", [0, 50_000])
@pytest.mark.parametrize("num_nodes", [1, 40, 5000])
def test_shares_cover_every_block_once_and_weigh_about_the_same(hub_edges: int, num_nodes: int):
    triples = random_triples(1, 2000, num_nodes, 1) + [(0, 0, 0)] * hub_edges
    group = directed(triples, num_nodes, 1).by_destination
    pointers = group.chunk_ptr.tolist()
    assert len(pointers) == edges_module.CHUNKS + 1
    assert pointers == sorted(pointers) and (pointers[0], pointers[-1]) == (0, len(group.block_row))
    cost = (group.block_ptr.diff() + 2).tolist()  # a row written costs as much as two edges
    shares = [sum(cost[start:stop]) for start, stop in pairwise(pointers)]
    assert sum(shares) == sum(cost)
    # A share ends where the next block would begin: it misses its target by less than one block.
    assert max(shares) <= sum(cost) / edges_module.CHUNKS + edges_module.BLOCK + 2


def test_masked_copies_share_the_orders_and_leave_the_original_alone():
    edges = directed(random_triples(2, 20, 5, 2), 5, 2)
    copy = edges.masked(torch.arange(20) > 4)
    for name in ORDERS:
        assert getattr(copy, name) is getattr(edges, name)
    assert (copy.num_edges, len(copy.kept[1]), edges.keep, len(edges.kept[1])) == (20, 15, None, 20)
    assert torch.equal(copy.kept[0], edges.edge_index[:, 5:])


def test_edges_move_with_their_mask_and_sizes_but_without_their_orders():
    edges = directed([(0, 0, 1), (4, 0, 0)], 2, 1, torch.tensor([True, False]), num_sources=5)
    order = edges.by_destination
    moved = edges.to("meta")
    assert {moved.edge_index.device.type, moved.edge_type.device.type, moved.keep.device.type} == {"meta"}
    assert (moved.num_nodes, moved.num_edge_types, moved.num_sources) == (2, 1, 5)
    assert not moved._groups and edges.by_destination is order


def test_edges_that_are_there_already_are_not_copied():
    edges = directed([(0, 0, 1)], 2, 1)
    assert edges.to("cpu") is edges and edges.to(torch.device("cpu")) is edges


@needs_gpu
def test_orders_made_on_a_gpu_equal_those_of_the_cpu():
    edges: RelationalEdges = directed(random_triples(3, 3000, 7, 3), 9, 4)
    moved = edges.to("cuda")
    assert moved.to("cuda") is moved
    for name in ORDERS:
        for here, there in zip(getattr(edges, name), getattr(moved, name), strict=True):
            assert there.is_cuda and torch.equal(here, there.cpu())


@pytest.mark.parametrize(
    ("edge_index", "edge_type", "fragment"),
    [([[0], [5]], [0], "entity ids of edges run from 0 to 5"), ([[-1], [1]], [0], "-1"), ([[0], [1]], [3], "type ids")],
)
def test_ids_out_of_range_are_refused_before_a_compiled_loop_reads_them(
    edge_index: list[list[int]], edge_type: list[int], fragment: str
):
    edges = RelationalEdges(torch.tensor(edge_index), torch.tensor(edge_type), 3, 2)
    with pytest.raises(ValueError, match=fragment):
        _ = edges.by_source


def test_a_mask_that_is_not_one_bool_an_edge_is_refused():
    edges = RelationalEdges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0]), 3, 1)
    for keep in (torch.ones(3, dtype=torch.bool), torch.ones(2, dtype=torch.int64)):
        with pytest.raises(ValueError, match="give one bool each"):
            edges.masked(keep)
