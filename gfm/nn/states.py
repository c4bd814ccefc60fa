"""Where propagation starts and what it leaves: seeds, and the states of the entities that were reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gfm.nn.layers import in_row_chunks


class Seeds(NamedTuple):
    """Where propagation starts: `entity[s]` is a seed of question `question[s]` with weight `weight[s]`.

    All three have shape `(S,)`; a pair occurs at most once. The weight is `w_e` of Eq. 1.
    """

    entity: Tensor
    question: Tensor
    weight: Tensor


class SeedStates(NamedTuple):
    """The start state `Z^0` (Eq. 1) in sparse form: row `s` belongs to `entity[s]` of `question[s]`."""

    entity: Tensor
    question: Tensor
    state: Tensor

    def add_to(self, rows: Tensor) -> Tensor:
        """Adds every start state, in place, to its entity's row of `rows (n, B, d)`; returns `rows`."""
        return rows.index_put_((self.entity, self.question), self.state.to(rows.dtype), accumulate=True)


@dataclass(frozen=True, eq=False)
class EntityStates:
    """States of the entities that propagation reached; every other state is exactly zero.

    Attributes:
        rows: `(n, B, d)`.
        entities: `(n,)` rising ids that the rows belong to; None: all entities in order.
        num_entities: V.
    """

    rows: Tensor
    entities: Tensor | None
    num_entities: int

    def dense(self) -> Tensor:
        """The states of all entities `(V, B, d)`, zeros included."""
        if self.entities is None:
            return self.rows
        everywhere = self.rows.new_zeros(self.num_entities, *self.rows.shape[1:])
        everywhere[self.entities] = self.rows
        return everywhere

    def at(self, entity: Tensor, question: Tensor) -> Tensor:
        """States `(N, d)` of `entity[i]` for `question[i]`; zero for an entity without a row."""
        if self.entities is None:
            return self.rows[entity, question]
        if len(self.entities) == 0:
            return self.rows.new_zeros(len(entity), self.rows.size(2))
        row = torch.searchsorted(self.entities, entity).clamp_max(len(self.entities) - 1)
        there = (self.entities[row] == entity).unsqueeze(1)
        return self.rows[row, question].masked_fill(~there, 0.0)

    def select(self, values: Tensor) -> Tensor:
        """The columns of `values (B, V)` that have a row."""
        return values if self.entities is None else values[:, self.entities]

    def apply(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Values `(B, V)` of a function that takes rows `(n, B, d)` to `(n, B)`, or to more columns than B.

        It runs on the rows there are and once on a zero state, whose value every entity without a row has.
        """
        values = in_row_chunks(function, self.rows)
        if self.entities is None:
            return values.transpose(0, 1)
        elsewhere = function(self.rows.new_zeros(1, *self.rows.shape[1:])).transpose(0, 1)
        return elsewhere.repeat(1, self.num_entities).index_copy(1, self.entities, values.transpose(0, 1))
