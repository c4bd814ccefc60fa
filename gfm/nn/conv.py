"""One layer of query-conditioned relational message passing."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

from gfm.nn.edges import RelationalEdges
from gfm.nn.layers import linear_of_concat, two_layer_mlp
from gfm.nn.relational_spmm import relational_spmm


class SeedStates(NamedTuple):
    """The start state `Z^0` (Eq. 1) in sparse form: row `s` belongs to `entity[s]` of `question[s]`."""

    entity: Tensor
    question: Tensor
    state: Tensor


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

    Shapes: entity states `(V, B, d)`, relation states `(num_edge_types, d)`.
    """

    def __init__(self, hidden_dim: int, zero_preserving: bool = True, fused: bool = True) -> None:
        super().__init__(aggr="sum", node_dim=0)
        self.fused = fused
        self.relation_projection = two_layer_mlp(hidden_dim, hidden_dim, hidden_dim)
        self.linear = nn.Linear(2 * hidden_dim, hidden_dim, bias=not zero_preserving)
        self.norm: nn.Module = nn.RMSNorm(hidden_dim, eps=1e-6) if zero_preserving else nn.LayerNorm(hidden_dim)

    def forward(self, x: Tensor, relation_state: Tensor, seeds: SeedStates, edges: RelationalEdges) -> Tensor:
        """Returns the next entity states `(V, B, d)`."""
        relation = self.relation_projection(relation_state).to(x.dtype)
        if self.fused:
            return self.update(relational_spmm(x, relation, edges), x, seeds)
        edge_index, edge_type = edges.kept
        size = (edges.num_nodes, edges.num_nodes)
        out: Tensor = self.propagate(
            edge_index, x=x, relation=relation, edge_type=edge_type, state=x, seeds=seeds, size=size
        )
        return out

    def message(self, x_j: Tensor, relation: Tensor, edge_type: Tensor) -> Tensor:
        """Eq. 2: the source's state modulated by the relation, `(E, B, d)`."""
        return x_j * relation[edge_type].unsqueeze(1)

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int | None = None) -> Tensor:
        """Sums messages into their destinations, `(V, B, d)`."""
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce="sum")

    def update(self, aggregated: Tensor, state: Tensor, seeds: SeedStates) -> Tensor:
        """Eq. 3: adds the start state, then linear, norm, activation and residual."""
        aggregated = aggregated.index_put((seeds.entity, seeds.question), seeds.state, accumulate=True)
        return F.relu(self.norm(linear_of_concat(self.linear, state, aggregated).to(state.dtype))) + state
