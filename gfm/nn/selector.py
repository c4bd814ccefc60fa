"""The subgraph selector: a prompt-conditioned gate per entity on top of frozen GNN states (Eq. 10, 11)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.layers import apply_to_concat, two_layer_mlp
from gfm.nn.states import EntityStates


class SubgraphSelector(nn.Module):
    r"""Decides per entity whether it belongs to the question's minimal sufficient subgraph.

    .. math::
        p = \mathrm{MLP}(q), \quad \tilde Z_e = [Z_e^L \,\|\, W_1 p \,\|\, W_2 q], \quad s_e = \mathrm{MLP}(\tilde Z_e)

    Args:
        text_dim: size of question embeddings.
        hidden_dim: d of the GNN whose states come in.

    Shapes: questions `(B, text_dim)`, gate logits `(B, V)`.
    """

    def __init__(self, text_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.text_dim, self.hidden_dim = text_dim, hidden_dim
        self.prompt_mlp = two_layer_mlp(text_dim, hidden_dim, hidden_dim)
        self.prompt_projection = nn.Linear(hidden_dim, hidden_dim)
        self.question_projection = nn.Linear(text_dim, hidden_dim)
        self.gate_mlp = two_layer_mlp(3 * hidden_dim, 2 * hidden_dim, 1)
        self.pool_projection = nn.Linear(3 * hidden_dim, text_dim)

    @classmethod
    def from_gnn(cls, gnn: QueryConditionedGNN) -> SubgraphSelector:
        """A selector whose gate logits equal the GNN's own logits until it is trained.

        Eq. 10 contains Eq. 4: with `W_2 = W_q`, the gate MLP set to the score MLP and the prompt's columns at zero,
        `s_e` is `logit_e`. Starting there keeps what the GNN has learnt to rank; a random gate would have to learn
        it again from a few questions.
        """
        selector = cls(gnn.text_dim, gnn.hidden_dim)
        with torch.no_grad():
            selector.question_projection.load_state_dict(gnn.question_projection.state_dict())
            weights = gnn.score_mlp.state_dict()
            state_part, question_part = weights["0.weight"].split(gnn.hidden_dim, dim=1)
            prompt_part = torch.zeros_like(question_part)
            weights["0.weight"] = torch.cat([state_part, prompt_part, question_part], dim=1)
            selector.gate_mlp.load_state_dict(weights)
        return selector

    def context(self, question: Tensor) -> Tensor:
        """The part of `Z̃_e` that all entities of a question share: `[W_1 p ‖ W_2 q]`, `(B, 2d)`."""
        question = question.to(self.question_projection.weight.dtype)
        prompt = self.prompt_projection(self.prompt_mlp(question))
        return torch.cat([prompt, self.question_projection(question)], dim=-1)

    def forward(self, states: EntityStates, question: Tensor) -> Tensor:
        """Gate logits `s_e` of all entities, `(B, V)` (Eq. 10); those that propagation never reached share one."""
        context = self.context(question)
        return states.apply(lambda rows: apply_to_concat(self.gate_mlp, rows, context).squeeze(-1))

    def pool(self, gates: Tensor, states: EntityStates, question: Tensor) -> Tensor:
        """The subgraph's representation in the space of questions, `W_g G_q`, `(B, text_dim)`.

        `G_q = Σ S_e Z̃_e / Σ S_e` (Eq. 15); since `[W_1 p ‖ W_2 q]` is the same for all entities, its weighted mean
        is itself. A question whose gates are all zero pools to the mean of zero states, not to NaN.
        """
        mass = gates.sum(dim=1, keepdim=True).clamp_min(1e-6)
        pooled = torch.einsum("bv,vbd->bd", states.select(gates), states.rows) / mass
        return self.pool_projection(torch.cat([pooled, self.context(question)], dim=-1))


def gumbel_sigmoid(logit: Tensor, temperature: float, generator: torch.Generator | None = None) -> Tensor:
    r"""Samples relaxed Bernoulli gates (Eq. 11): :math:`S = \sigma((s + g)/\tau)`, `g` logistic noise.

    `g` is the difference of two Gumbel variables, hence logistic. At high temperature every gate tends to 1/2, at
    low temperature to a Bernoulli draw of probability :math:`\sigma(s)`.

    Args:
        logit: gate logits of any shape.
        temperature: τ > 0.
        generator: makes the draw reproducible.
    """
    # Bounded away from 0 and 1, where the logit of a uniform draw is infinite.
    eps = torch.finfo(logit.dtype).eps
    device = logit.device if generator is None else generator.device
    uniform = torch.rand(logit.shape, generator=generator, dtype=logit.dtype, device=device).to(logit.device)
    return torch.sigmoid((logit + torch.logit(uniform.clamp(eps, 1 - eps))) / temperature)


def noiseless_gate(logit: Tensor, temperature: float = 1.0) -> Tensor:
    """Gates outside training: Eq. 11 without noise, `σ(s/τ)`; the threshold 0.5 does not depend on τ."""
    return torch.sigmoid(logit / temperature)
