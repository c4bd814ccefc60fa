"""The forward pass as it is usually written: the yardstick that all ratios are against."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gfm.nn.conv import RelationalConv
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.states import Seeds


def reference_logits(
    gnn: QueryConditionedGNN, question: Tensor, relations: Tensor, seeds: Seeds, edges: RelationalEdges
) -> Tensor:
    """Logits `(B, V)` from the parameters of `gnn` by gather, multiply and scatter over all edges and entities.

    The way peers compute Eq. 1-4: every layer projects every relation, writes one message per edge, concatenates state
    and sum for every entity, and the head takes state and question side by side for every entity. Nothing is cached.
    Meant for the form with LayerNorm and bias; equal to `gnn(...)` for both forms, gradients included.
    """
    (source, target), edge_type = edges.kept
    query = gnn.question_projection(question)
    start = query.new_zeros(edges.num_nodes, len(question), gnn.hidden_dim)
    start = start.index_put(
        (seeds.entity, seeds.question), query[seeds.question] * seeds.weight.unsqueeze(1), accumulate=True
    )
    states, base = start, gnn.relation_projection(relations)
    for layer in gnn.layers:
        assert isinstance(layer, RelationalConv)
        relation = layer.relation_projection(base)
        messages = states[source] * relation[edge_type].unsqueeze(1)
        summed = torch.zeros_like(states).index_add(0, target, messages) + start
        states = F.relu(layer.norm(layer.linear(torch.cat([states, summed], dim=-1)))) + states
    beside = query.expand(edges.num_nodes, *query.shape)
    logits: Tensor = gnn.score_mlp(torch.cat([states, beside], dim=-1)).squeeze(-1).T
    return logits
