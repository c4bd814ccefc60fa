"""Domain prototypes and the cosines to them: what Phase II aligns entity states with (Eq. 7, 8)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gfm.nn.states import EntityStates

NORM_FLOOR = 1e-3
"""Added to a state's norm in quadrature: a zero state has cosine 0, and the gradient at it stays bounded."""


class DomainPrototypes(nn.Module):
    r"""One direction in state space per domain, :math:`c_d = W_c \cdot mean(TextEmb(names of d's entities))`.

    Only `W_c` is learnt. It serves training alone: nothing at inference reads it.

    Args:
        names: of the domains; a domain's number is its place here.
        means: mean text embedding of each domain's entity names `(D, text_dim)`.
        hidden_dim: d.
    """

    means: Tensor

    def __init__(self, names: Sequence[str], means: Tensor, hidden_dim: int) -> None:
        super().__init__()
        assert len(names) == len(means)
        self.names = tuple(names)
        self.projection = nn.Linear(means.size(1), hidden_dim, bias=False)
        self.register_buffer("means", means, persistent=False)

    def forward(self) -> Tensor:
        """The prototypes `(D, d)`."""
        out: Tensor = self.projection(self.means)
        return out


def cosine_to_each(states: Tensor, directions: Tensor) -> Tensor:
    """Cosines `(N, K)` of states `(N, d)` with directions `(K, d)`; 0 for a zero state."""
    unit = directions / _norm(directions).unsqueeze(-1)
    return (states @ unit.T) / _norm(states).unsqueeze(-1)


def cosines_of_all(states: EntityStates, directions: Tensor) -> Tensor:
    """Cosines `(K, B, V)` of every entity's state with K directions of each question, `(K, B, d)`.

    Norms are taken once for all directions, and nothing of the states' size is written.
    """
    kinds, batch, _ = directions.shape
    unit = directions / _norm(directions).unsqueeze(-1)

    def of_rows(rows: Tensor) -> Tensor:
        dots = torch.einsum("nbd,kbd->nkb", rows, unit)
        return (dots / _norm(rows).unsqueeze(1)).flatten(1)

    return states.apply(of_rows).view(kinds, batch, -1)


def _norm(vectors: Tensor) -> Tensor:
    return (torch.linalg.vector_norm(vectors, dim=-1).square() + NORM_FLOOR**2).sqrt()
