"""One layer: values by hand, and the fused form against torch-geometric's propagation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gfm.nn.conv import RelationalConv
from gfm.nn.edges import RelationalEdges
from gfm.nn.frontier import Hop
from gfm.nn.row_update import update_rows
from gfm.nn.states import SeedStates
from tests.nn.graphs import directed, random_triples


def hand_layer(zero_preserving: bool, fused: bool) -> RelationalConv:
    """d = 2, g(R) = ReLU(R), W = [I | I], so that the linear gives Z + A."""
    conv = RelationalConv(2, zero_preserving, fused)
    with torch.no_grad():
        for linear in (conv.relation_projection[0], conv.relation_projection[2]):
            assert isinstance(linear, nn.Linear)
            linear.weight.copy_(torch.eye(2))
            linear.bias.zero_()
        conv.linear.weight.copy_(torch.eye(2).repeat(1, 2))
        if not zero_preserving:
            conv.linear.bias.copy_(torch.tensor([4.0, 0.0]))
    return conv


def run_hand_layer(zero_preserving: bool, fused: bool, grad: bool = True) -> Tensor:
    x = torch.tensor([[[1.0, 2.0]], [[3.0, -1.0]], [[0.0, -1.0]]])
    relation_state = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    seeds = SeedStates(torch.tensor([0]), torch.tensor([0]), torch.tensor([[1.0, 1.0]]))
    edges = directed([(0, 0, 1), (2, 1, 1)], 3, 2)
    conv = hand_layer(zero_preserving, fused)
    with torch.set_grad_enabled(grad):
        return conv(x, conv.relation_projection(relation_state), seeds, Hop(edges))[:, 0]


# Messages: 0 -> 1 is (1, 2)*(2, 1) = (2, 2), 2 -> 1 is (0, -1)*(1, 3) = (0, -3).
# A_0 = (1, 1) (its start state), A_1 = (2, -1), A_2 = (0, 0); Z + A: (2, 3), (5, -2), (0, -1).


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_zero_preserving_layer_gives_the_values_computed_by_hand(fused: bool, grad: bool):
    # RMS of Z + A: sqrt(6.5) = 2.549510, sqrt(14.5) = 3.807887, sqrt(0.5) = 0.707107. After norm and ReLU:
    # (0.784465, 1.176697), (1.313064, 0), (0, 0); then + Z.
    want = torch.tensor([[1.784465, 3.176697], [4.313064, -1.0], [0.0, -1.0]])
    torch.testing.assert_close(run_hand_layer(True, fused, grad), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_layer_norm_form_gives_the_values_computed_by_hand(fused: bool, grad: bool):
    # The bias (4, 0) makes Z + A + b: (6, 3), (9, -2), (4, -1). LayerNorm of two numbers is +1 for the larger and
    # -1 for the smaller: (1, -1) for all three, (1, 0) after ReLU; then + Z.
    want = torch.tensor([[2.0, 2.0], [4.0, -1.0], [1.0, -1.0]])
    torch.testing.assert_close(run_hand_layer(False, fused, grad), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("zero_preserving", [True, False])
def test_fused_and_torch_geometric_propagation_agree_in_values_and_gradients(zero_preserving: bool):
    torch.manual_seed(0)
    edges = directed(random_triples(0, 60, 8, 3), 8, 3, torch.arange(60) % 5 != 0)
    plain = RelationalConv(6, zero_preserving, fused=False)
    fused = RelationalConv(6, zero_preserving, fused=True)
    fused.load_state_dict(plain.state_dict())
    seeds = SeedStates(torch.tensor([0, 3, 3]), torch.tensor([0, 0, 1]), torch.randn(3, 6))
    relation_state, start, upstream = torch.randn(3, 6), torch.randn(8, 2, 6), torch.randn(8, 2, 6)
    results = []
    for conv in (plain, fused):
        x = start.clone().requires_grad_()
        out = conv(x, conv.relation_projection(relation_state), seeds, Hop(edges))
        out.backward(upstream)
        results.append([out.detach(), x.grad, *(p.grad for p in conv.parameters())])
    assert all(grad is not None for grad in results[0])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_propagation_reaches_every_node_even_where_the_last_ones_have_no_edge():
    seeds = SeedStates(torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64), torch.zeros(0, 2))
    edges = directed([(0, 0, 1)], 5, 1)
    for fused in (True, False):
        assert hand_layer(True, fused)(torch.ones(5, 1, 2), torch.ones(1, 2), seeds, Hop(edges)).shape == (5, 1, 2)


# The hand layer again on a part of the graph: sources 0 and 2 are rows 0 and 1, destinations 1 and 2 are rows 0 and 1,
# and of the sources only entity 2 has a row among the destinations. Entity 1 carries no state yet: A_1 = (2, -1) alone,
# whose RMS is sqrt(2.5) = 1.581139.
PART = Hop(
    RelationalEdges(torch.tensor([[0, 1], [0, 0]]), torch.tensor([0, 1]), 2, 2, None, 2),
    torch.tensor([1, 2]),
    torch.tensor([1]),
    torch.tensor([1]),
)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_hop_gives_the_destinations_the_values_computed_by_hand(fused: bool, grad: bool):
    x, relation_state = torch.tensor([[[1.0, 2.0]], [[0.0, -1.0]]]), torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    seeds = SeedStates(torch.tensor([1]), torch.tensor([0]), torch.tensor([[0.0, 3.0]]))
    with torch.set_grad_enabled(grad):
        out = hand_layer(True, fused)(x, relation_state, seeds, PART)[:, 0]
    # Entity 2: Z + A = (0, -1) + (0, 3) = (0, 2), RMS sqrt(2): (0, 1.414214), then + Z = (0, -1).
    torch.testing.assert_close(out, torch.tensor([[1.264911, 0.0], [0.0, 0.414214]]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("elements", [1, 5, 8, 12, 17])
def test_without_gradients_chunks_of_any_size_give_the_values_with_gradients(
    monkeypatch: pytest.MonkeyPatch, fused: bool, elements: int
):
    torch.manual_seed(1)
    conv, rel = RelationalConv(4, fused=fused), torch.randn(3, 4)
    edges = RelationalEdges(torch.randint(0, 6, (2, 30)), torch.randint(0, 3, (30,)), 9, 3, None, 6)
    seeds = SeedStates(torch.tensor([2, 7]), torch.tensor([0, 0]), torch.randn(2, 4))
    hop = Hop(edges, torch.arange(9) * 2, torch.tensor([0, 1, 2, 4]), torch.tensor([0, 3, 4, 8]))
    x = torch.randn(6, 1, 4)
    before, want = x.clone(), conv(x, rel, seeds, hop)
    monkeypatch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", elements)
    with torch.no_grad():
        got = conv(x, rel, seeds, hop)
    torch.testing.assert_close(got, want.detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(x, before)


def row_inputs(rows: int, dtype: torch.dtype, part: bool) -> tuple[nn.RMSNorm, Tensor, Tensor, Tensor | None]:
    """A norm with weights of both signs, rows of which one is zero and one tiny, and last states of all or of some."""
    torch.manual_seed(rows)
    norm, pre = nn.RMSNorm(5, eps=1e-6, dtype=dtype), torch.randn(rows, 2, 5, dtype=dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 0.5, -1.5, 0.0, 2.0]))
        pre[:1] = 0
        pre[1:2] *= 1e-4
    to = torch.arange(0, rows, 3) if part else None
    return norm, pre, torch.randn(rows if to is None else len(to), 2, 5, dtype=dtype), to


@pytest.mark.parametrize("part", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 200])  # fewer and more than the shares of the weight's gradient
def test_the_end_of_a_layer_is_norm_activation_and_residual_in_values_and_gradients(
    rows: int, dtype: torch.dtype, part: bool
):
    norm, pre, state, to = row_inputs(rows, dtype, part)
    upstream, results = torch.randn(rows, 2, 5, dtype=dtype), []
    for compiled in (True, False):
        leaves = [pre.clone().requires_grad_(), state.clone().requires_grad_(), norm.weight]
        norm.weight.grad = None
        active = torch.relu(norm(leaves[0]))
        want = active + leaves[1] if to is None else active.index_add(0, to, leaves[1])
        out = update_rows(leaves[0], norm, leaves[1], to) if compiled else want
        out.backward(upstream)
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("zero_preserving", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_state_that_is_no_number_stays_visible(zero_preserving: bool, grad: bool, bad: float):
    x, edges = torch.ones(3, 1, 4), directed([(0, 0, 1)], 3, 1)
    x[0, 0, 2] = bad
    none = SeedStates(torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64), torch.zeros(0, 4))
    torch.manual_seed(0)
    conv = RelationalConv(4, zero_preserving)
    with torch.set_grad_enabled(grad):
        out = conv(x, torch.ones(1, 4), none, Hop(edges))
    # Entity 1 receives it in a message: its norm has no value, whatever sign the activation looks for.
    assert out.isfinite().all(dim=2).squeeze(1).tolist() == [False, False, True]
