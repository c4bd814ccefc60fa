"""One layer of query-conditioned relational message passing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

from gfm.nn.frontier import Hop
from gfm.nn.layers import rows_per_chunk, two_layer_mlp
from gfm.nn.relational_spmm import relational_spmm
from gfm.nn.row_update import update_rows
from gfm.nn.states import SeedStates


class RelationalConv(MessagePassing):
    r"""Updates entity states from their typed neighbours (Eq. 2, 3).

    .. math::
        m_{uv} = Z_u \odot g(R_r), \qquad A_v = \sum_{(u, r, v)} m_{uv} + Z_v^0, \qquad
        Z_v' = \mathrm{ReLU}(\mathrm{norm}(W [Z_v \,\|\, A_v])) + Z_v

    :meth:`message`, :meth:`aggregate` and :meth:`update` are the equations as torch-geometric reads them and serve
    as the reference (`fused=False`); by default the first two run as one operation that never writes the
    `E x B x d` messages.

    Args:
        hidden_dim: d, the size of entity and relation states.
        zero_preserving: a bias-free linear and RMSNorm, so that an entity that nothing reached stays exactly zero;
            otherwise bias and LayerNorm.
        fused: whether message and aggregation run as one operation.

    Shapes: entity states in `(n, B, d)` and out `(n', B, d)`, relation states `(R, d)`.
    """

    def __init__(self, hidden_dim: int, zero_preserving: bool = True, fused: bool = True) -> None:
        super().__init__(aggr="sum", node_dim=0)
        self.fused = fused
        self.relation_projection = two_layer_mlp(hidden_dim, hidden_dim, hidden_dim)
        self.linear = nn.Linear(2 * hidden_dim, hidden_dim, bias=not zero_preserving)
        self.norm: nn.Module = nn.RMSNorm(hidden_dim, eps=1e-6) if zero_preserving else nn.LayerNorm(hidden_dim)

    def forward(self, x: Tensor, relation: Tensor, seeds: SeedStates, hop: Hop) -> Tensor:
        """Returns the next states of the hop's destinations.

        Args:
            x: states of the hop's sources `(n, B, d)`.
            relation: projected relation states `g(R)`, numbered as the hop's edges are.
            seeds: start states, numbered as the hop's destinations are.
            hop: which rows and edges the layer touches.
        """
        if self.fused:
            return self.update(seeds.add_to(relational_spmm(x, relation, hop.edges)), x, hop)
        edge_index, edge_type = hop.edges.kept
        size = (len(x), hop.edges.num_nodes)
        out: Tensor = self.propagate(
            edge_index, x=(x, None), relation=relation, edge_type=edge_type, state=x, seeds=seeds, hop=hop, size=size
        )
        return out

    def message(self, x_j: Tensor, relation: Tensor, edge_type: Tensor) -> Tensor:
        """Eq. 2: the source's state modulated by the relation, `(E, B, d)`."""
        return x_j * relation[edge_type].unsqueeze(1)

    def aggregate(self, inputs: Tensor, index: Tensor, seeds: SeedStates, dim_size: int | None = None) -> Tensor:
        """Sums messages and the start state into their destinations, `(n', B, d)`."""
        return seeds.add_to(scatter(inputs, index.long(), dim=0, dim_size=dim_size, reduce="sum"))

    def update(self, aggregated: Tensor, state: Tensor, hop: Hop) -> Tensor:
        """Eq. 3: linear, norm, activation and residual. Without gradients `aggregated` is overwritten, in chunks."""
        if hop.carried is not None:
            state = state.index_select(0, hop.carried)
        to = hop.carried_to
        if torch.is_grad_enabled():
            return update_rows(self._linear(aggregated, state, to), self.norm, state, to)
        size = rows_per_chunk(aggregated)
        starts = range(0, len(aggregated), size)
        cuts = [*starts, len(aggregated)]
        if to is not None:
            cuts = torch.searchsorted(to, torch.tensor(cuts, device=to.device)).tolist()
        for start, first, last in zip(starts, cuts, cuts[1:], strict=False):
            rows, own = aggregated[start : start + size], state[first:last]
            places = None if to is None else to[first:last] - start
            update_rows(self._linear(rows, own, places), self.norm, own, places, out=rows)
        return aggregated

    def _linear(self, aggregated: Tensor, state: Tensor, to: Tensor | None) -> Tensor:
        """`W [Z ‖ A] = W_A A + W_Z Z`, where `Z` is `state` at the rows `to`, elsewhere zero and not multiplied."""
        for_state, for_sum = self.linear.weight.split(state.size(-1), dim=1)
        out, own = F.linear(aggregated, for_sum, self.linear.bias), F.linear(state, for_state)
        # In place: no gradient reads the value before.
        return (out.add_(own) if to is None else out.index_add_(0, to, own)).to(state.dtype)
