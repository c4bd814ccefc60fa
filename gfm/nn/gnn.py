"""The query-conditioned GNN: the only propagation loop of the project."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gfm.nn.conv import RelationalConv
from gfm.nn.edges import RelationalEdges
from gfm.nn.frontier import Hop, next_hop
from gfm.nn.layers import apply_to_concat, two_layer_mlp
from gfm.nn.relations import RelationStates
from gfm.nn.states import EntityStates, Seeds, SeedStates


class QueryConditionedGNN(nn.Module):
    """Scores every entity of a graph for a question by typed message passing from seed entities (Eq. 1-4).

    No parameter belongs to an entity or a relation: relations enter as text embeddings, entities only as seeds, so
    the same weights run on any graph.

    Args:
        text_dim: size of the frozen sentence encoder's embeddings.
        hidden_dim: d.
        num_layers: L, the number of hops information can travel.
        zero_preserving: bias-free layers with RMSNorm, whose unreached entities stay exactly zero and cost nothing:
            layer l computes the entities within l hops of the seeds, and no others. The other form (bias, LayerNorm)
            is the one existing public checkpoints have: 8,144,897 parameters at
            `text_dim=768, hidden_dim=512, num_layers=6`.
        swap_inverses: a message along an edge is modulated by the relation of the edge's inverse. Models that aggregate
            into an edge's head, as GFM-RAG's do, read graphs this way.

    Shapes: `V` entities, `B` questions, logits `(B, V)`.
    """

    def __init__(
        self,
        text_dim: int = 384,
        hidden_dim: int = 64,
        num_layers: int = 6,
        zero_preserving: bool = True,
        swap_inverses: bool = False,
    ) -> None:
        super().__init__()
        self.text_dim, self.hidden_dim, self.num_layers = text_dim, hidden_dim, num_layers
        self.zero_preserving, self.swap_inverses = zero_preserving, swap_inverses
        self.question_projection = nn.Linear(text_dim, hidden_dim)
        self.relation_projection = nn.Linear(text_dim, hidden_dim)
        self.layers = nn.ModuleList(RelationalConv(hidden_dim, zero_preserving) for _ in range(num_layers))
        self.score_mlp = two_layer_mlp(2 * hidden_dim, 2 * hidden_dim, 1)

    def relation_states(self, relations: Tensor, cache: bool = False) -> RelationStates:
        """Prepares a graph's relations for `propagate`; with `cache`, for all questions to come with these weights.

        Args:
            relations: text embeddings of direct, then inverse relations `(num_edge_types, text_dim)`.
            cache: project each relation once and remember it, without gradients.
        """
        if self.swap_inverses:
            relations = relations.roll(len(relations) // 2, 0)
        projections = [layer.relation_projection for layer in self.layers]
        return RelationStates(relations, self.relation_projection, projections, cache)

    def propagate(
        self,
        question: Tensor,
        relations: Tensor | RelationStates,
        seeds: Seeds,
        edges: RelationalEdges,
        frontier_budget: int | None = None,
    ) -> EntityStates:
        """Runs the L layers from the seeds (Eq. 1-3).

        Args:
            question: text embeddings `(B, text_dim)`.
            relations: text embeddings `(num_edge_types, text_dim)`, or `relation_states` of them.
            seeds: where each question starts.
            edges: the graph with inverses.
            frontier_budget: K, the number of entities that may carry a state after each layer, for all questions
                together (see `next_hop` for which); None computes all that are reached, exactly.

        Returns:
            Entity states `Z^L`.

        Raises:
            ValueError: a budget for a form whose unreached entities are not zero, or one below 1; `relation_states` of
                another model.
        """
        if frontier_budget is not None and not (self.zero_preserving and frontier_budget >= 1):
            raise ValueError(
                f"frontier_budget is {frontier_budget}, zero_preserving is {self.zero_preserving}; a budget of at "
                "least 1 works with zero_preserving models, use None for others"
            )
        if frontier_budget is not None and frontier_budget >= edges.num_nodes:
            frontier_budget = None  # it leaves nothing out
        if isinstance(relations, Tensor):
            relations = self.relation_states(relations)
        elif relations.projection is not self.relation_projection:
            raise ValueError("these relation_states belong to another model; make them with this one")
        start = self._start(question, seeds)
        states, mass = self._seeded(start, len(question), edges.num_nodes), None
        if frontier_budget is not None:
            mass = _seed_mass(seeds, states)
        for number, layer in enumerate(self.layers):
            hop = None
            if states.entities is not None:
                hop = next_hop(edges, states.entities, mass, frontier_budget)
            if hop is None:  # the whole graph from here on
                states, hop = EntityStates(states.dense(), None, edges.num_nodes), Hop(edges)
            relation, numbered_edges = relations.of_layer(number, hop.edges)
            rows = layer(states.rows, relation, _in_hop(start, hop), hop._replace(edges=numbered_edges))
            states, mass = EntityStates(rows, hop.entities, edges.num_nodes), hop.mass
        return states

    def logits(self, states: EntityStates, question: Tensor) -> Tensor:
        """Relevance logits of all entities `(B, V)` (Eq. 4 before the sigmoid).

        Args:
            states: what `propagate` left.
            question: text embeddings `(B, text_dim)`.

        Returns:
            Logits; entities that propagation never reached share one per question.
        """
        projected = self.question_projection(question.to(self.question_projection.weight.dtype))
        return states.apply(lambda rows: apply_to_concat(self.score_mlp, rows, projected).squeeze(-1))

    def logits_at(self, states: EntityStates, question: Tensor, entity: Tensor, number: Tensor) -> Tensor:
        """Relevance logits `(N,)` of `entity[i]` for question `number[i]`: `logits` where few of them are wanted.

        Args:
            states: what `propagate` left.
            question: text embeddings `(B, text_dim)`.
            entity: ids `(N,)`.
            number: which question each is for `(N,)`.
        """
        projected = self.question_projection(question.to(self.question_projection.weight.dtype))
        return apply_to_concat(self.score_mlp, states.at(entity, number), projected[number]).squeeze(-1)

    def forward(
        self,
        question: Tensor,
        relations: Tensor | RelationStates,
        seeds: Seeds,
        edges: RelationalEdges,
        frontier_budget: int | None = None,
    ) -> Tensor:
        """Logits of all entities, `(B, V)`: `propagate`, then `logits`."""
        return self.logits(self.propagate(question, relations, seeds, edges, frontier_budget), question)

    def _start(self, question: Tensor, seeds: Seeds) -> SeedStates:
        """Eq. 1: the projected question at every seed, times its weight."""
        dtype = self.question_projection.weight.dtype
        projected = self.question_projection(question.to(dtype)).to(dtype)
        weighted = projected[seeds.question] * seeds.weight.unsqueeze(1).to(dtype)
        return SeedStates(seeds.entity, seeds.question, weighted)

    def _seeded(self, start: SeedStates, batch: int, num_entities: int) -> EntityStates:
        """`Z^0`: rows for the seeds alone where the others stay zero, else for all entities."""
        entities = torch.unique(start.entity) if self.zero_preserving else None
        num_rows = num_entities if entities is None else len(entities)
        place = start.entity if entities is None else torch.searchsorted(entities, start.entity)
        zero = start.state.new_zeros(num_rows, batch, self.hidden_dim)
        return EntityStates(start._replace(entity=place).add_to(zero), entities, num_entities)


def _in_hop(start: SeedStates, hop: Hop) -> SeedStates:
    """Start states numbered by the hop's destination rows; a seed that a budget dropped has none."""
    if hop.entities is None:
        return start
    row = torch.searchsorted(hop.entities, start.entity)
    row = row.clamp_max(max(0, len(hop.entities) - 1))
    there = hop.entities[row] == start.entity
    return SeedStates(row[there], start.question[there], start.state[there])


def _seed_mass(seeds: Seeds, states: EntityStates) -> Tensor:
    """Each question's mass 1, spread over its seeds by weight and summed per seed entity."""
    assert states.entities is not None
    weight = seeds.weight.float()
    total = weight.new_zeros(states.rows.size(1)).index_add_(0, seeds.question, weight)
    share = weight / total.clamp_min(torch.finfo(weight.dtype).tiny)[seeds.question]
    row = torch.searchsorted(states.entities, seeds.entity)
    return weight.new_zeros(len(states.entities)).index_add_(0, row, share)
