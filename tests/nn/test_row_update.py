"""The end of a layer: the compiled loop against torch's operations, values by hand, and what is kept for gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gfm.nn.row_update import update_rows

N, B, D = 9, 2, 5
PLACES = pytest.mark.parametrize("to", [None, torch.tensor([0, 3, 8]), torch.tensor([], dtype=torch.int64)])


def norm_of(dtype: torch.dtype = torch.float32) -> nn.RMSNorm:
    norm = nn.RMSNorm(D, eps=1e-6, dtype=dtype)
    norm.weight.data = torch.tensor([1.0, -0.5, 2.0, 0.0, 0.3], dtype=dtype)
    return norm


def rows(count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(count, B, D, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def plain(pre: Tensor, norm: nn.Module, state: Tensor, to: Tensor | None) -> Tensor:
    active = F.relu(norm(pre))
    return active + state if to is None else active.index_add(0, to, state)


def test_the_values_are_those_computed_by_hand():
    norm = nn.RMSNorm(2, eps=0.0)
    norm.weight.data = torch.tensor([1.0, -2.0])
    pre, state = torch.tensor([[[3.0, -4.0]], [[-3.0, 4.0]]]), torch.tensor([[[10.0, 20.0]]])
    # rms of (3, -4) is sqrt(12.5); the second row has no state of its own.
    root = 12.5**0.5
    want = torch.tensor([[[10 + 3 / root, 20 + 8 / root]], [[0.0, 0.0]]])
    torch.testing.assert_close(update_rows(pre, norm, state, torch.tensor([0])), want)


@PLACES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_torch(to: Tensor | None, dtype: torch.dtype):
    results = []
    for function in (update_rows, plain):
        norm, pre = norm_of(dtype), rows(N, dtype).requires_grad_()
        state = rows(N if to is None else len(to), dtype, seed=1).requires_grad_()
        out = function(pre, norm, state, to)
        out.backward(rows(N, dtype, seed=2))
        results.append((out, pre.grad, norm.weight.grad, state.grad))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


@PLACES
def test_gradients_are_the_derivatives(to: Tensor | None):
    norm = norm_of(torch.float64)
    pre, state = rows(N, torch.float64), rows(N if to is None else len(to), torch.float64, seed=1)

    def function(pre: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        norm = nn.RMSNorm(D, eps=1e-6)
        del norm.weight
        norm.weight = weight
        return update_rows(pre, norm, state, to)

    # Away from the kink of the activation: a weight of exactly zero has no derivative there.
    weight = norm.weight.detach().clone().masked_fill(norm.weight == 0, 0.7)
    inputs = [tensor.requires_grad_() for tensor in (pre, state, weight)]
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("norm", [norm_of(), nn.LayerNorm(D), norm_of(torch.bfloat16)], ids=["rms", "layer", "bf16"])
def test_an_output_that_is_given_is_filled(norm: nn.Module):
    dtype = next(norm.parameters()).dtype
    pre, state, out = rows(N, dtype), rows(N, dtype, seed=1), torch.full((N, B, D), torch.nan, dtype=dtype)
    with torch.no_grad():
        want = plain(pre.clone(), norm, state, None)
        assert update_rows(pre, norm, state, None, out=out) is out
    torch.testing.assert_close(out, want)


def test_rows_without_memory_in_order_are_read_correctly():
    pre = rows(N).transpose(0, 1).contiguous().transpose(0, 1)
    state, norm = rows(N, seed=1).flip(0), norm_of()
    grad = rows(N, seed=2).transpose(0, 1).contiguous().transpose(0, 1)
    assert not pre.is_contiguous() and not grad.is_contiguous()
    a, b = pre.clone().requires_grad_(), pre.clone().requires_grad_()
    update_rows(a, norm, state, None).backward(grad)
    plain(b, norm, state, None).backward(grad)
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(update_rows(pre, norm, state, None), plain(pre, norm, state, None))


def test_a_row_of_zeros_stays_zero_and_has_finite_gradients():
    pre = torch.zeros(2, 1, D, requires_grad=True)
    norm = norm_of()
    out = update_rows(pre, norm, torch.zeros(2, 1, D), None)
    out.sum().backward()
    assert not out.any() and pre.grad is not None and pre.grad.isfinite().all()
    assert norm.weight.grad is not None and norm.weight.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 1, D), (3, 0, D)])
def test_no_rows_and_no_questions_give_empty_results(shape: tuple[int, ...]):
    pre = torch.zeros(shape, requires_grad=True)
    out = update_rows(pre, norm_of(), torch.zeros(shape), None)
    out.sum().backward()
    assert out.shape == shape and pre.grad is not None


def test_one_entity_sized_tensor_is_kept_for_the_gradient():
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        update_rows(rows(N).requires_grad_(), norm_of(), rows(N, seed=1).requires_grad_(), None)
    assert sorted(kept) == [D, N * B * D]
