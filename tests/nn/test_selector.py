"""The selector: its gates, their limits, and the start at the GNN's own ranking."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector, gumbel_sigmoid, noiseless_gate
from gfm.nn.states import EntityStates
from tests.nn.graphs import random_triples, seeds_of, with_inverses

V, B, D, TEXT = 9, 3, 6, 8


def selector_of() -> SubgraphSelector:
    torch.manual_seed(0)
    return SubgraphSelector(TEXT, D)


REACHED = torch.tensor([1, 2, 5, 8])


def states_and_question(entities: Tensor | None = None) -> tuple[EntityStates, Tensor]:
    """States of all entities, or rows of the given ones alone."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(V if entities is None else len(entities), B, D, generator=generator)
    return EntityStates(rows, entities, V), torch.randn(B, TEXT, generator=generator)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def full_states(selector: SubgraphSelector, states: EntityStates, question: Tensor) -> Tensor:
    """`Z̃ = [Z ‖ W_1 p ‖ W_2 q]` written out for every entity, `(V, B, 3d)`."""
    prompt = selector.prompt_projection(selector.prompt_mlp(question))
    shared = torch.cat([prompt, selector.question_projection(question)], dim=-1)
    return torch.cat([states.dense(), shared.expand(V, B, 2 * D)], dim=-1)


ROWS = pytest.mark.parametrize("entities", [None, REACHED, REACHED[:0]], ids=["all", "reached", "none"])


@ROWS
def test_shapes(entities: Tensor | None):
    selector, (states, question) = selector_of(), states_and_question(entities)
    assert selector.context(question).shape == (B, 2 * D)
    assert selector(states, question).shape == (B, V)
    assert selector.pool(torch.rand(B, V), states, question).shape == (B, TEXT)


@ROWS
def test_gate_logits_are_the_mlp_of_state_prompt_and_question(entities: Tensor | None):
    selector, (states, question) = selector_of(), states_and_question(entities)
    want = selector.gate_mlp(full_states(selector, states, question)).squeeze(-1).T
    torch.testing.assert_close(selector(states, question), want)


@ROWS
def test_the_pool_is_the_gate_weighted_mean_over_all_entities(entities: Tensor | None):
    selector, (states, question) = selector_of(), states_and_question(entities)
    gates = torch.rand(B, V, generator=generator())
    weight = (gates / gates.sum(dim=1, keepdim=True)).T.unsqueeze(-1)
    mean = (weight * full_states(selector, states, question)).sum(dim=0)
    torch.testing.assert_close(selector.pool(gates, states, question), selector.pool_projection(mean))


def test_the_pool_of_closed_gates_is_finite_and_keeps_the_question():
    selector, (states, question) = selector_of(), states_and_question()
    pooled = selector.pool(torch.zeros(B, V), states, question)
    empty = torch.cat([torch.zeros(B, D), selector.context(question)], dim=-1)
    torch.testing.assert_close(pooled, selector.pool_projection(empty))


@pytest.mark.parametrize("logit", [-1e4, -110.0, -30.0])
def test_the_gradient_of_closed_gates_is_finite(logit: float):
    selector, (states, question) = selector_of(), states_and_question()
    logits = torch.full((B, V), logit, requires_grad=True)
    far = EntityStates(100 * states.rows, None, V)
    selector.pool(gumbel_sigmoid(logits, 0.3, generator()), far, question).square().sum().backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in selector.parameters())


@pytest.mark.parametrize("zero_preserving", [True, False])
def test_from_gnn_starts_at_the_gnns_own_logits(zero_preserving: bool):
    torch.manual_seed(0)
    gnn = QueryConditionedGNN(TEXT, D, 2, zero_preserving)
    edges, question, relations = (
        with_inverses(random_triples(0, 15, V, 2), V, 2),
        torch.randn(B, TEXT),
        torch.randn(4, TEXT),
    )
    seeds = seeds_of({0: 1.0}, {1: 0.5, 2: 1.0}, {})
    with torch.no_grad():
        states = gnn.propagate(question, relations, seeds, edges)
        logits = gnn(question, relations, seeds, edges)
        torch.testing.assert_close(SubgraphSelector.from_gnn(gnn)(states, question), logits)


def test_from_gnn_copies_and_shares_no_weight():
    torch.manual_seed(0)
    gnn = QueryConditionedGNN(TEXT, D, 2)
    before = {name: tensor.clone() for name, tensor in gnn.state_dict().items()}
    selector = SubgraphSelector.from_gnn(gnn)
    with torch.no_grad():
        for parameter in selector.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(before[name], tensor) for name, tensor in gnn.state_dict().items())
    assert all(parameter.requires_grad for parameter in selector.parameters())


def test_the_prompt_can_learn_although_it_starts_at_zero():
    torch.manual_seed(0)
    selector, (states, question) = SubgraphSelector.from_gnn(QueryConditionedGNN(TEXT, D, 2)), states_and_question()
    selector(states, question).square().sum().backward()
    grad = selector.gate_mlp[0].weight.grad
    assert isinstance(grad, Tensor) and grad[:, D : 2 * D].any()


def test_gates_tend_to_one_half_at_high_temperature():
    logit = torch.linspace(-8, 8, 1000)
    assert (gumbel_sigmoid(logit, 1e5, generator()) - 0.5).abs().max() < 1e-3


def test_gates_at_low_temperature_are_bernoulli_draws():
    for value in (-2.0, 0.0, 1.0):
        gates = gumbel_sigmoid(torch.full((40_000,), value), 1e-3, generator())
        assert ((gates < 1e-3) | (gates > 1 - 1e-3)).float().mean() > 0.99
        # Standard error of the mean is at most 0.0025.
        assert abs(float(gates.mean()) - float(torch.sigmoid(torch.tensor(value)))) < 0.01


def test_a_gate_exceeds_one_half_with_the_probability_of_its_logit_at_every_temperature():
    for temperature in (0.1, 1.0, 10.0):
        gates = gumbel_sigmoid(torch.full((40_000,), 1.0), temperature, generator())
        assert abs(float((gates > 0.5).float().mean()) - 0.7310586) < 0.01


def test_gates_stay_in_the_unit_interval_and_finite_with_finite_gradients():
    logit = torch.tensor([-1e4, -50.0, 0.0, 50.0, 1e4]).repeat(2000).requires_grad_()
    gates = gumbel_sigmoid(logit, 0.1, generator())
    gates.sum().backward()
    assert gates.isfinite().all() and gates.min() >= 0 and gates.max() <= 1
    assert logit.grad is not None and logit.grad.isfinite().all()


@pytest.mark.parametrize("drawn", [0.0, 1.0])
def test_the_noise_of_an_extreme_draw_is_bounded(monkeypatch: pytest.MonkeyPatch, drawn: float):
    monkeypatch.setattr(torch, "rand", lambda shape, **options: torch.full(shape, drawn))
    assert gumbel_sigmoid(torch.tensor([-1e4, 1e4]), 1.0).tolist() == [0.0, 1.0]


def test_gates_are_reproducible_with_a_generator():
    logit = torch.linspace(-3, 3, 50).reshape(5, 10)
    first, again, other = (gumbel_sigmoid(logit, 0.5, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.shape == (5, 10)


@pytest.mark.parametrize("temperature", [0.1, 0.3, 1.0, 7.0])
def test_what_the_noiseless_gate_selects_does_not_depend_on_temperature(temperature: float):
    logit = torch.tensor([-5.0, -0.01, 0.0, 0.01, 5.0])
    assert (noiseless_gate(logit, temperature) >= 0.5).tolist() == [False, False, True, True, True]
    torch.testing.assert_close(noiseless_gate(logit, temperature), torch.sigmoid(logit / temperature))
