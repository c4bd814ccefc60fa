"""relational_spmm: its backends agree with the plain sum, forward and backward, on every shape of graph."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfm.nn import edges as edges_module
from gfm.nn import relational_spmm as spmm_module
from gfm.nn.edges import RelationalEdges
from gfm.nn.relational_spmm import relational_spmm
from tests.nn.graphs import directed, random_triples

FAST = ("chunked", "numba")


def inputs(edges: RelationalEdges, batch: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Entity states, relation states and the gradient that comes back."""
    generator = torch.Generator().manual_seed(seed)
    shape = (edges.num_nodes, batch, dim)
    x, upstream = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    return x, torch.randn(edges.num_edge_types, dim, generator=generator), upstream


def value_and_gradients(x: Tensor, rel: Tensor, upstream: Tensor, edges: RelationalEdges, backend: str):
    x, rel = x.detach().requires_grad_(), rel.detach().requires_grad_()
    out = relational_spmm(x, rel, edges, backend)
    out.backward(upstream)
    return out.detach(), x.grad, rel.grad


def assert_agrees(edges: RelationalEdges, backend: str, batch: int = 2, dim: int = 3, seed: int = 0) -> None:
    """Compares with the reference in float64, so that the tolerance covers the backend's rounding alone."""
    x, rel, upstream = inputs(edges, batch, dim, seed)
    got = value_and_gradients(x, rel, upstream, edges, backend)
    want = value_and_gradients(x.double(), rel.double(), upstream.double(), edges, "reference")
    for name, a, b in zip(("out", "grad_x", "grad_rel"), got, want, strict=True):
        assert a is not None and b is not None
        assert a.dtype == torch.float32 and a.shape == b.shape
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_reference_is_the_sum_of_modulated_source_states():
    # Two parallel edges 0 -> 1 of types 0 and 1, a self-loop of type 1 at 1:
    # out[1] = (1, 2)*(10, 1) + (1, 2)*(0, -1) + (3, 4)*(0, -1) = (10, 2) + (0, -2) + (0, -4)
    edges = directed([(0, 0, 1), (0, 1, 1), (1, 1, 1)], 2, 2)
    x = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
    rel = torch.tensor([[10.0, 1.0], [0.0, -1.0]])
    for backend in ("reference", *FAST):
        assert relational_spmm(x, rel, edges, backend).tolist() == [[[0.0, 0.0]], [[10.0, -4.0]]]


@st.composite
def masked_graphs(draw: st.DrawFn) -> RelationalEdges:
    nodes, kinds = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    edge = st.tuples(st.integers(0, nodes - 1), st.integers(0, kinds - 1), st.integers(0, nodes - 1))
    triples = draw(st.lists(edge, max_size=20))
    keep = draw(st.none() | st.lists(st.booleans(), min_size=len(triples), max_size=len(triples)))
    return directed(triples, nodes, kinds, None if keep is None else torch.tensor(keep, dtype=torch.bool))


@pytest.mark.parametrize("backend", FAST)
@settings(max_examples=40)
@given(edges=masked_graphs(), batch=st.integers(1, 4), dim=st.integers(1, 5), seed=st.integers(0, 1000))
def test_backends_agree_on_random_graphs(backend: str, edges: RelationalEdges, batch: int, dim: int, seed: int):
    assert_agrees(edges, backend, batch, dim, seed)


GRAPHS = {
    "no node": directed([], 0, 2),
    "no edge": directed([], 4, 2),
    "no edge, no type": directed([], 1, 0),
    "one node with a self-loop": directed([(0, 0, 0)], 1, 1),
    "self-loops of several types": directed([(0, 0, 0), (0, 1, 0), (2, 1, 2)], 3, 2),
    "parallel edges": directed([(0, 0, 1)] * 5 + [(0, 1, 1)] * 3, 2, 2),
    "all edges masked": directed([(0, 0, 1), (1, 0, 0)], 2, 1, torch.zeros(2, dtype=torch.bool)),
    "one of two duplicates masked": directed([(0, 0, 1), (0, 0, 1)], 2, 1, torch.tensor([True, False])),
    "types that no edge has": directed([(0, 3, 1)], 2, 6),
    "hub": directed([(1 + i % 40, i % 3, 0) for i in range(3000)], 41, 3),
    "hub as source": directed([(0, 0, 1 + i % 40) for i in range(3000)], 41, 1),
}


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("name", GRAPHS)
def test_backends_agree_on_special_graphs(name: str, backend: str):
    assert_agrees(GRAPHS[name], backend)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("batch", [0, 1, 17])
def test_backends_agree_for_any_number_of_questions(batch: int, backend: str):
    assert_agrees(directed(random_triples(0, 30, 6, 3), 6, 3), backend, batch=batch)


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_a_masked_edge_equals_an_absent_one(backend: str):
    triples = random_triples(1, 30, 6, 3)
    keep = torch.arange(30) % 3 != 0
    left = directed([t for t, k in zip(triples, keep.tolist(), strict=True) if k], 6, 3)
    x, rel, upstream = inputs(left, 2, 4)
    masked = value_and_gradients(x, rel, upstream, directed(triples, 6, 3).masked(keep), backend)
    for got, want in zip(masked, value_and_gradients(x, rel, upstream, left, backend), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_strided_states_and_gradients_are_read_correctly(backend: str):
    edges = directed(random_triples(2, 40, 7, 3), 7, 3)
    x, rel, upstream = inputs(edges, 4, 6)
    strided = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (x, upstream)]
    assert not strided[0].is_contiguous() and not strided[1].is_contiguous()
    rel_strided = rel.T.contiguous().T
    got = value_and_gradients(strided[0], rel_strided, strided[1], edges, backend)
    for a, b in zip(got, value_and_gradients(x, rel, upstream, edges, backend), strict=True):
        torch.testing.assert_close(a, b)
    # The gradient of `sum` is one number expanded without memory of its own.
    leaf = x.clone().requires_grad_()
    relational_spmm(leaf, rel, edges, backend).sum().backward()
    torch.testing.assert_close(leaf.grad, value_and_gradients(x, rel, torch.ones_like(x), edges, backend)[1])


@pytest.mark.parametrize("elements", [1, 12, 13, 36, 10**6])
def test_chunk_boundaries_lose_no_edge(monkeypatch: pytest.MonkeyPatch, elements: int):
    monkeypatch.setattr(spmm_module, "CHUNK_ELEMENTS", elements)  # 6 numbers an edge: 1, 2, 2, 6 and all edges a chunk
    assert_agrees(directed(random_triples(3, 30, 6, 3), 6, 3), "chunked", batch=2, dim=3)


@pytest.mark.parametrize("block", [1, 3, 512])
def test_relation_blocks_partition_the_edges(monkeypatch: pytest.MonkeyPatch, block: int):
    monkeypatch.setattr(edges_module, "RELATION_BLOCK", block)
    triples = random_triples(4, 40, 6, 3) + [(0, 4, 1)] * 7  # type 3 has no edge
    edges = directed(triples, 6, 5)
    order = edges.by_relation()
    assert sorted(order.edge.tolist()) == list(range(47))
    assert order.block_ptr[0] == 0 and order.block_ptr[-1] == 47
    for kind, start, stop in zip(order.block_relation, order.block_ptr, order.block_ptr[1:], strict=False):
        assert 0 < stop - start <= block
        assert {triples[e][1] for e in order.edge[start:stop]} == {kind}
    assert_agrees(edges, "numba")


def test_chunked_gradients_are_the_derivatives():
    edges = directed([*random_triples(5, 12, 4, 3), (0, 0, 0), (0, 0, 0)], 4, 3, torch.arange(14) != 3)
    x, rel, _ = (t.double().requires_grad_() for t in inputs(edges, 2, 2))
    assert torch.autograd.gradcheck(lambda x, rel: relational_spmm(x, rel, edges, "chunked"), (x, rel))


@pytest.mark.parametrize("backend", FAST)
def test_only_the_inputs_are_kept_for_the_backward_pass(backend: str):
    edges = directed(random_triples(6, 500, 5, 2), 5, 2)
    x, rel, _ = inputs(edges, 2, 3)
    saved: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        relational_spmm(x.requires_grad_(), rel.requires_grad_(), edges, backend)
    assert sorted(saved) == [rel.numel(), x.numel()]


@pytest.mark.parametrize("backend", FAST)
def test_a_gradient_that_nobody_wants_is_not_computed(backend: str):
    edges = directed(random_triples(7, 20, 5, 2), 5, 2)
    x, rel, upstream = inputs(edges, 2, 3)
    both = value_and_gradients(x, rel, upstream, edges, backend)
    rel.requires_grad_()
    relational_spmm(x, rel, edges, backend).backward(upstream)
    assert x.grad is None
    torch.testing.assert_close(rel.grad, both[2])


def test_auto_takes_numba_for_float32_and_chunked_for_the_rest(monkeypatch: pytest.MonkeyPatch):
    used: list[str] = []
    plain = spmm_module._sum_messages
    monkeypatch.setattr(spmm_module, "_sum_messages", lambda *a: used.append(a[-1]) or plain(*a))
    edges = directed([(0, 0, 1)], 2, 1)
    x, rel, _ = inputs(edges, 1, 2)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert relational_spmm(x.to(dtype), rel.to(dtype), edges).dtype == dtype
    assert used == ["numba", "chunked", "chunked"]


def test_bfloat16_agrees_within_its_precision():
    edges = directed(random_triples(8, 20, 6, 3), 6, 3)
    low = [t.bfloat16() for t in inputs(edges, 2, 3)]
    got = value_and_gradients(low[0], low[1], low[2], edges, "chunked")
    want = value_and_gradients(low[0].float(), low[1].float(), low[2].float(), edges, "reference")
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=0.05, atol=0.2)


def test_an_unknown_backend_is_refused():
    edges = directed([(0, 0, 1)], 2, 1)
    x, rel, _ = inputs(edges, 1, 2)
    with pytest.raises(ValueError, match="'cuda2' is unknown; use auto, numba, chunked or reference"):
        relational_spmm(x, rel, edges, "cuda2")
    with pytest.raises(ValueError, match=r"'numba' needs float32 on the CPU, got torch.float64"):
        relational_spmm(x.double(), rel.double(), edges, "numba")


def test_masked_copies_share_the_sorted_orders():
    edges = directed(random_triples(9, 20, 5, 2), 5, 2)
    copy = edges.masked(torch.arange(20) > 4)
    assert copy.by_endpoint(1) is edges.by_endpoint(1)
    assert copy.by_relation() is edges.by_relation()
    assert (copy.num_edges, copy.kept[1].numel(), int(copy.keep_array.sum())) == (20, 15, 15)
    assert edges.keep is None and edges.kept[1].numel() == 20


def test_edges_move_with_their_mask():
    edges = directed([(0, 0, 1), (1, 0, 0)], 2, 1, torch.tensor([True, False]))
    moved = edges.to("meta")
    assert {moved.edge_index.device.type, moved.edge_type.device.type, moved.keep.device.type} == {"meta"}
    assert directed([(0, 0, 1)], 2, 1).to("cpu").keep is None
