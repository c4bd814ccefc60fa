"""The query-conditioned GNN: the only propagation loop of the project."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from gfm.nn.conv import RelationalConv, SeedStates
from gfm.nn.edges import RelationalEdges
from gfm.nn.layers import apply_to_concat, two_layer_mlp


class Seeds(NamedTuple):
    """Where propagation starts: `entity[s]` is a seed of question `question[s]` with weight `weight[s]`.

    All three have shape `(S,)`; a pair occurs at most once. The weight is `w_e` of Eq. 1.
    """

    entity: Tensor
    question: Tensor
    weight: Tensor


class QueryConditionedGNN(nn.Module):
    """Scores every entity of a graph for a question by typed message passing from seed entities (Eq. 1-4).

    No parameter belongs to an entity or a relation: relations enter as text embeddings, entities only as seeds, so
    the same weights run on any graph.

    Args:
        text_dim: size of the frozen sentence encoder's embeddings.
        hidden_dim: d.
        num_layers: L, the number of hops information can travel.
        zero_preserving: bias-free layers with RMSNorm, whose unreached entities stay exactly zero. The other form
            (bias, LayerNorm) is the one existing public checkpoints have: 8,144,897 parameters at
            `text_dim=768, hidden_dim=512, num_layers=6`.

    Shapes: `V` entities, `B` questions, entity states `(V, B, d)`, logits `(B, V)`.
    """

    def __init__(
        self, text_dim: int = 384, hidden_dim: int = 64, num_layers: int = 6, zero_preserving: bool = True
    ) -> None:
        super().__init__()
        self.text_dim, self.hidden_dim, self.num_layers = text_dim, hidden_dim, num_layers
        self.zero_preserving = zero_preserving
        self.question_projection = nn.Linear(text_dim, hidden_dim)
        self.relation_projection = nn.Linear(text_dim, hidden_dim)
        self.layers = nn.ModuleList(RelationalConv(hidden_dim, zero_preserving) for _ in range(num_layers))
        self.score_mlp = two_layer_mlp(2 * hidden_dim, 2 * hidden_dim, 1)

    def propagate(self, question: Tensor, relations: Tensor, seeds: Seeds, edges: RelationalEdges) -> Tensor:
        """Runs the L layers from the seeds (Eq. 1-3).

        Args:
            question: text embeddings `(B, text_dim)`.
            relations: text embeddings of direct, then inverse relations `(num_edge_types, text_dim)`.
            seeds: where each question starts.
            edges: the graph with inverses.

        Returns:
            Entity states `Z^L`, `(V, B, d)`.
        """
        projected = self.question_projection(question).to(self.question_projection.weight.dtype)
        relation_state = self.relation_projection(relations)
        start = SeedStates(
            seeds.entity, seeds.question, projected[seeds.question] * seeds.weight.unsqueeze(1).to(projected.dtype)
        )
        state = projected.new_zeros(edges.num_nodes, len(question), self.hidden_dim)
        state = state.index_put((start.entity, start.question), start.state, accumulate=True)
        for layer in self.layers:
            state = layer(state, relation_state, start, edges)
        return state

    def score(self, states: Tensor, question: Tensor) -> Tensor:
        """Relevance logits of entity states (Eq. 4 before the sigmoid).

        Args:
            states: `(..., B, d)`.
            question: text embeddings `(B, text_dim)`.

        Returns:
            `(..., B)`; entities that propagation never reached share one logit per question.
        """
        return apply_to_concat(self.score_mlp, states, self.question_projection(question)).squeeze(-1)

    def forward(self, question: Tensor, relations: Tensor, seeds: Seeds, edges: RelationalEdges) -> Tensor:
        """Logits of all entities, `(B, V)`: `propagate`, then `score`."""
        return self.score(self.propagate(question, relations, seeds, edges), question).transpose(0, 1)
