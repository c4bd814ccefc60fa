"""Phase II: prototypes, cosines and their losses, against numbers by hand and the stated bounds."""

from __future__ import annotations

from math import e, exp, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm.config import LossConfig, PrototypeConfig
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.states import EntityStates
from gfm.training.graphs import Queries
from gfm.training.losses import information_gain_loss, prototype_loss
from gfm.training.prototypes import DomainPrototypes, cosine_to_each, cosines_of_all
from gfm.training.sampling import query_generators
from gfm.training.steps import completion_step, phase_two_loss
from tests.training.graphs import TEXT, completion_graph


def test_a_prototype_is_the_projected_mean():
    prototypes = DomainPrototypes(["a", "b"], torch.tensor([[1.0, 2.0], [0.0, 1.0]]), 3)
    with torch.no_grad():
        prototypes.projection.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    assert prototypes().tolist() == [[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]]
    assert list(prototypes.state_dict()) == ["projection.weight"]


def test_cosines_are_those_of_the_angle_and_zero_for_a_zero_state():
    states = torch.tensor([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0]])
    got = cosine_to_each(states, torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
    torch.testing.assert_close(got, torch.tensor([[0.6, 0.8], [0.0, -1.0], [0.0, 0.0]]), rtol=0, atol=1e-5)


def test_the_gradient_at_a_zero_state_is_finite():
    states = torch.zeros(1, 2, requires_grad=True)
    cosine_to_each(states, torch.tensor([[1.0, 0.0]])).sum().backward()
    assert states.grad is not None and states.grad.abs().max() <= 1001


def test_cosines_of_all_are_those_of_the_dense_states():
    torch.manual_seed(0)
    rows, directions = torch.randn(3, 2, 4), torch.randn(5, 2, 4)
    states = EntityStates(rows, torch.tensor([1, 4, 5]), 7)
    dense = states.dense()
    want = torch.stack(
        [torch.stack([cosine_to_each(dense[:, b], k[b : b + 1])[:, 0] for b in range(2)]) for k in directions]
    )
    got = cosines_of_all(states, directions)
    assert got.shape == (5, 2, 7)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(cosines_of_all(EntityStates(dense, None, 7), directions), want)


def test_states_are_looked_up_by_entity_and_question():
    rows = torch.arange(12.0).view(3, 2, 2)
    states = EntityStates(rows, torch.tensor([1, 4, 5]), 7)
    entity, question = torch.tensor([4, 6, 0, 1]), torch.tensor([1, 0, 1, 0])
    assert states.at(entity, question).tolist() == [[6.0, 7.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    torch.testing.assert_close(EntityStates(states.dense(), None, 7).at(entity, question), states.at(entity, question))
    none = EntityStates(rows[:0], torch.tensor([], dtype=torch.int64), 7)
    assert none.at(entity, question).tolist() == [[0.0, 0.0]] * 4


def test_prototype_loss_by_hand():
    # Cosines 1 and 0 at τ = 1/2: softmax(2, 0)[0] = e² / (e² + 1). The second positive belongs to domain 1: 1 / 2.
    similarity = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    want = (log(1 + exp(-2)) + log(2)) / 2
    assert prototype_loss(similarity, torch.tensor([0, 1]), 0.5).item() == pytest.approx(want, rel=1e-6)


def test_prototype_loss_is_zero_for_one_domain_and_for_no_positive():
    assert prototype_loss(torch.tensor([[0.3], [-1.0]]), torch.tensor([0, 0]), 0.1).item() == 0
    empty = prototype_loss(torch.empty(0, 3, requires_grad=True), torch.empty(0, dtype=torch.int64), 0.1)
    assert empty.item() == 0 and empty.requires_grad


def test_information_gain_by_hand():
    # P = 1/2, 1/4 gives P̂ = 2/3, 1/3. Cosines (1, 0) and (0, 0) at τ = 1.
    logits = torch.tensor([[0.0, -log(3)]])
    loss, to_proto, to_rand = information_gain_loss(logits, torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), 1.0)
    proto = [e / (e + 1), 1 / (e + 1)]
    kl = [2 / 3 * log(2 / 3 / p) + 1 / 3 * log(1 / 3 / r) for p, r in (proto, (0.5, 0.5))]
    assert (to_proto.item(), to_rand.item()) == pytest.approx(tuple(kl), rel=1e-5)
    assert loss.item() == pytest.approx(kl[0] - kl[1], rel=1e-5)


def test_information_gain_is_zero_between_equal_directions():
    torch.manual_seed(0)
    cosine = torch.rand(2, 9)
    assert information_gain_loss(torch.randn(2, 9), cosine, cosine, 0.1)[0].item() == 0


@settings(max_examples=60)
@given(size=st.integers(1, 40), temperature=st.floats(0.01, 2), scale=st.floats(0, 60), seed=st.integers(0, 999))
def test_both_divergences_keep_the_stated_bound(size: int, temperature: float, scale: float, seed: int):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(2, size, generator=generator)
    proto, random = (2 * torch.rand(2, size, generator=generator).round() - 1 for _ in range(2))
    loss, to_proto, to_rand = information_gain_loss(logits, proto, random, temperature)
    bound = log(size) + 2 / temperature
    slack = 1e-4 * (1 + bound)
    assert -slack <= to_rand.item() <= bound + slack and -slack <= to_proto.item() <= bound + slack
    assert loss.item() >= -bound - slack


def test_phase_two_adds_its_weighted_terms_and_teaches_the_projection():
    torch.manual_seed(0)
    graph = completion_graph([(i, 0, (i + 1) % 6) for i in range(6)], 6, 1, domain=[0, 0, 0, 1, 1, 1])
    gnn, prototypes = QueryConditionedGNN(TEXT, 8, 2), DomainPrototypes(["a", "b"], torch.randn(2, TEXT), 8)
    cfg = PrototypeConfig(alpha_proto=0.5, alpha_igc=0.25)
    plain, _ = completion_step(gnn, graph, graph.train[:2], LossConfig(), query_generators(0, 0, range(2)))
    loss, terms = completion_step(
        gnn, graph, graph.train[:2], LossConfig(), query_generators(0, 0, range(2)), phase_two=(prototypes, cfg)
    )
    assert set(terms) == {"bce", "rank", "proto", "igc", "kl_proto", "kl_random"}
    torch.testing.assert_close(loss, plain + 0.5 * terms["proto"] + 0.25 * terms["igc"])
    loss.backward()
    assert prototypes.projection.weight.grad is not None and prototypes.projection.weight.grad.abs().sum() > 0


def test_a_querys_domain_is_that_of_the_entity_it_starts_at_in_both_terms():
    # States along the axes, prototypes likewise: cosines are 1 or 0.
    states = EntityStates(torch.eye(2).unsqueeze(1).repeat(1, 2, 1), None, 2)
    queries = Queries(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([1, 0]))  # each answers with the other
    cfg = PrototypeConfig(alpha_proto=1.0, alpha_igc=1.0, temperature=1.0)
    _, metrics = phase_two_loss(
        states, torch.tensor([[-30.0, 30.0], [30.0, -30.0]]), queries, torch.tensor([0, 1]), lambda: torch.eye(2), cfg
    )
    # The answer's state is the other domain's prototype: -log softmax(0, 1)[0].
    assert metrics["proto"] == pytest.approx(log(1 + e), rel=1e-5)
    # All mass lies on the answer, whose cosine with the start's prototype is 0: -log of e^0 / (e^0 + e^1).
    assert metrics["kl_proto"] == pytest.approx(log(1 + e), rel=1e-4)
