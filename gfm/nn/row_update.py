"""The end of a layer: norm, activation and residual of entity states, in one pass where a compiled loop exists."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

SHARES = 64
"""Partial sums of the weight's gradient; fixed, so that the result does not depend on the number of threads."""


def update_rows(pre: Tensor, norm: nn.Module, state: Tensor, to: Tensor | None, out: Tensor | None = None) -> Tensor:
    """`relu(norm(pre)) + state` (Eq. 3), the residual at the rows `to` alone.

    RMSNorm on the CPU runs as one loop: torch's own takes six passes over memory and keeps several entity-sized
    buffers for its gradient, this one keeps `pre`. Other norms, types and devices take torch's operations.

    Args:
        pre: output of the linear, `(n, B, d)`.
        norm: over the last axis.
        state: `(k, B, d)`.
        to: `(k,)` distinct rows of `pre`; None: all, in order, and k = n.
        out: where to write the result; only without gradients.

    Returns:
        `(n, B, d)`.
    """
    if (
        isinstance(norm, nn.RMSNorm)
        and norm.eps is not None
        and pre.device.type == "cpu"
        and pre.dtype in (torch.float32, torch.float64)
    ):
        if out is not None:
            _rms_update(pre, norm.weight, state, to, norm.eps, out)
            return out
        updated: Tensor = _RMSUpdate.apply(pre, norm.weight, state, to, norm.eps)
        return updated
    active = F.relu(norm(pre))
    updated = active + state if to is None else active.index_add(0, to, state)
    return updated if out is None else out.copy_(updated)


class _RMSUpdate(torch.autograd.Function):
    """Saves `pre` alone; the backward pass computes its norm once more."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, weight: Tensor, state: Tensor, to: Tensor | None, eps: float) -> Tensor:
        ctx.save_for_backward(pre, weight, to)
        ctx.eps = eps
        out = torch.empty_like(pre, memory_format=torch.contiguous_format)
        _rms_update(pre, weight, state, to, eps, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from gfm.nn.cpu_kernels import rms_update_backward, run

        pre, weight, to = ctx.saved_tensors
        grad_pre = torch.empty_like(pre, memory_format=torch.contiguous_format)
        grad_weight = weight.new_zeros(SHARES, len(weight))
        grad = grad.contiguous()
        run(rms_update_backward, pre.contiguous(), weight, ctx.eps, grad, grad_pre, grad_weight)
        return grad_pre, grad_weight.sum(0), grad if to is None else grad.index_select(0, to), None, None


def _rms_update(pre: Tensor, weight: Tensor, state: Tensor, to: Tensor | None, eps: float, out: Tensor) -> None:
    from gfm.nn.cpu_kernels import rms_update, run

    source = torch.empty(0, dtype=torch.int64)
    if to is not None:
        source = torch.full((len(pre),), -1).index_copy_(0, to, torch.arange(len(to)))
    run(rms_update, pre.contiguous(), weight, eps, state.contiguous(), source, out)
