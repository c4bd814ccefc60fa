"""One layer: values by hand, and the fused form against torch-geometric's propagation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gfm.nn.conv import RelationalConv, SeedStates
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


def run_hand_layer(zero_preserving: bool, fused: bool) -> Tensor:
    x = torch.tensor([[[1.0, 2.0]], [[3.0, -1.0]], [[0.0, -1.0]]])
    relation_state = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    seeds = SeedStates(torch.tensor([0]), torch.tensor([0]), torch.tensor([[1.0, 1.0]]))
    edges = directed([(0, 0, 1), (2, 1, 1)], 3, 2)
    return hand_layer(zero_preserving, fused)(x, relation_state, seeds, edges)[:, 0]


# Messages: 0 -> 1 is (1, 2)*(2, 1) = (2, 2), 2 -> 1 is (0, -1)*(1, 3) = (0, -3).
# A_0 = (1, 1) (its start state), A_1 = (2, -1), A_2 = (0, 0); Z + A: (2, 3), (5, -2), (0, -1).


@pytest.mark.parametrize("fused", [True, False])
def test_zero_preserving_layer_gives_the_values_computed_by_hand(fused: bool):
    # RMS of Z + A: sqrt(6.5) = 2.549510, sqrt(14.5) = 3.807887, sqrt(0.5) = 0.707107. After norm and ReLU:
    # (0.784465, 1.176697), (1.313064, 0), (0, 0); then + Z.
    want = torch.tensor([[1.784465, 3.176697], [4.313064, -1.0], [0.0, -1.0]])
    torch.testing.assert_close(run_hand_layer(True, fused), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_layer_norm_form_gives_the_values_computed_by_hand(fused: bool):
    # The bias (4, 0) makes Z + A + b: (6, 3), (9, -2), (4, -1). LayerNorm of two numbers is +1 for the larger and
    # -1 for the smaller: (1, -1) for all three, (1, 0) after ReLU; then + Z.
    want = torch.tensor([[2.0, 2.0], [4.0, -1.0], [1.0, -1.0]])
    torch.testing.assert_close(run_hand_layer(False, fused), want, rtol=0, atol=1e-4)


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
        out = conv(x, relation_state, seeds, edges)
        out.backward(upstream)
        results.append([out.detach(), x.grad, *(p.grad for p in conv.parameters())])
    assert all(grad is not None for grad in results[0])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_propagation_reaches_every_node_even_where_the_last_ones_have_no_edge():
    seeds = SeedStates(torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64), torch.zeros(0, 2))
    edges = directed([(0, 0, 1)], 5, 1)
    for fused in (True, False):
        assert hand_layer(True, fused)(torch.ones(5, 1, 2), torch.ones(1, 2), seeds, edges).shape == (5, 1, 2)
