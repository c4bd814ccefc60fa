"""The losses against numbers computed by hand, and their limits."""

from __future__ import annotations

import math
from math import log

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfm.training.losses import (
    bce_loss,
    connectivity_loss,
    contrastive_loss,
    rank_loss,
    size_loss,
    undirected_pairs,
)

# One question, four entities, P = σ(logit) = 1/2, 3/4, 1/4, 1/2.
LOGITS = torch.tensor([[0.0, log(3), -log(3), 0.0]])


def mask(*rows: str) -> Tensor:
    """A boolean matrix from rows such as `"1100"`."""
    return torch.tensor([[c == "1" for c in row] for row in rows])


def test_bce_normalises_each_side_by_its_own_count():
    # Positives 0, 1: -(ln 1/2 + ln 3/4) / 2. Negatives 2, 3: 1 - P = 3/4, 1/2: the same again.
    side = -(log(1 / 2) + log(3 / 4)) / 2
    assert bce_loss(LOGITS, mask("1100"), mask("0011")).item() == pytest.approx(2 * side, rel=1e-6)
    # Negative 2 alone: -ln 3/4. Entity 3 is neither and does not count.
    assert bce_loss(LOGITS, mask("1100"), mask("0010")).item() == pytest.approx(side - log(3 / 4), rel=1e-6)


@pytest.mark.parametrize(
    ("temperature", "weights"),
    # Negatives 2 and 3 have logits -ln 3 and 0: exp(logit / T) is 1/3 : 1 at T = 1 and 1/9 : 1 at T = 1/2.
    [(1.0, (1 / 4, 3 / 4)), (0.5, (1 / 10, 9 / 10))],
)
def test_bce_weighs_hard_negatives_by_their_softmax(temperature: float, weights: tuple[float, float]):
    negative = -(weights[0] * log(3 / 4) + weights[1] * log(1 / 2))
    got = bce_loss(LOGITS, mask("0100"), mask("0011"), temperature)
    assert got.item() == pytest.approx(-log(3 / 4) + negative, rel=1e-6)


def test_bce_tends_to_uniform_weights_at_high_temperature():
    hot, uniform = (bce_loss(LOGITS, mask("0100"), mask("0011"), t) for t in (1e6, 0.0))
    assert hot.item() == pytest.approx(uniform.item(), rel=1e-5)


def test_no_gradient_flows_through_the_adversarial_weights():
    # d/dlogit of w·(-ln(1 - P)) with w constant is w·P.
    logits = LOGITS.clone().requires_grad_()
    bce_loss(logits, mask("0100"), mask("0011"), 1.0).backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, -1 / 4, 1 / 4 * 1 / 4, 3 / 4 * 1 / 2]]))


def test_rank_loss_is_the_share_of_the_positives_among_all_probabilities():
    # Σ P = 2. Positive 1 alone: -ln(3/8); positives 0 and 1: -(ln 1/4 + ln 3/8) / 2.
    assert rank_loss(LOGITS, mask("0100")).item() == pytest.approx(-log(3 / 8), rel=1e-6)
    assert rank_loss(LOGITS, mask("1100")).item() == pytest.approx(-(log(1 / 4) + log(3 / 8)) / 2, rel=1e-6)


def test_rank_loss_sums_over_the_candidates_and_the_positives_alone():
    # Positive 1 (3/4), candidate 2 (1/4): the sum is 1 whether or not the candidates name the positive.
    for candidates in ("0110", "0010"):
        assert rank_loss(LOGITS, mask("0100"), mask(candidates)).item() == pytest.approx(-log(3 / 4), rel=1e-6)


def test_rank_loss_ignores_what_is_no_candidate_in_its_gradient_too():
    logits = LOGITS.clone().requires_grad_()
    rank_loss(logits, mask("0100"), mask("0010")).backward()
    assert logits.grad is not None and logits.grad[0, [0, 3]].tolist() == [0.0, 0.0]
    assert logits.grad[0, 1] < 0 < logits.grad[0, 2]


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_losses_without_positives_are_zero_with_zero_gradients(temperature: float):
    for positives, negatives in (("0000", "1111"), ("0000", "0000")):
        logits = LOGITS.clone().requires_grad_()
        pos, neg = mask(positives), mask(negatives)
        loss = bce_loss(logits, pos, neg, temperature) + rank_loss(logits, pos, pos | neg) + rank_loss(logits, pos)
        loss.backward()
        assert loss.item() == 0.0
        assert logits.grad is not None and logits.grad.tolist() == [[0.0] * 4]


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_losses_with_positives_alone_are_finite(temperature: float):
    logits = LOGITS.clone().requires_grad_()
    loss = bce_loss(logits, mask("1111"), mask("0000"), temperature) + rank_loss(logits, mask("1111"), mask("1111"))
    loss.backward()
    assert loss.isfinite() and logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_questions_without_positives_do_not_dilute_the_others(temperature: float):
    two = torch.cat([torch.tensor([[5.0, -2.0, 1.0, 9.0]]), LOGITS])
    positives, negatives = mask("0000", "0100"), mask("1111", "0011")
    for got, want in (
        (bce_loss(two, positives, negatives, temperature), bce_loss(LOGITS, mask("0100"), mask("0011"), temperature)),
        (rank_loss(two, positives), rank_loss(LOGITS, mask("0100"))),
    ):
        torch.testing.assert_close(got, want)


def test_losses_average_over_the_labelled_questions():
    two, positives = torch.cat([LOGITS, LOGITS]), mask("0100", "1000")
    singles = [rank_loss(LOGITS, mask(row)) for row in ("0100", "1000")]
    torch.testing.assert_close(rank_loss(two, positives), sum(singles) / 2)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_extreme_logits_give_finite_losses_and_gradients(temperature: float):
    logits = torch.tensor([[1e4, -1e4, 1e4, -1e4], [-1e4, -1e4, -1e4, -1e4], [1e4] * 4], requires_grad=True)
    positives, negatives = mask("1100", "1000", "1000"), mask("0011", "0111", "0111")
    loss = bce_loss(logits, positives, negatives, temperature) + rank_loss(logits, positives, negatives)
    loss.backward()
    assert loss.isfinite() and logits.grad is not None and logits.grad.isfinite().all()
    # Question 0, positive 1: -ln σ(-1e4) = 1e4 enters with weight 1/2, negative 2: -ln σ(-1e4) = 1e4 with 1/2 or all.
    assert loss > 1e3


def test_contrastive_loss_of_one_question_is_zero():
    assert contrastive_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[-3.0, 1.0]])).item() == 0.0


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_contrastive_loss_of_two_questions_by_hand(temperature: float):
    # Cosines: q_0 with G_0 is 1, with G_1 is 0; q_1 = (1, 1)/√2 lies between both.
    # Row 0: -ln(e^(1/τ) / (e^(1/τ) + 1)) = ln(1 + e^(-1/τ)); row 1: ln 2. Lengths do not matter.
    pooled, question = torch.tensor([[3.0, 0.0], [0.0, 0.5]]), torch.tensor([[7.0, 0.0], [2.0, 2.0]])
    want = (log(1 + math.exp(-1 / temperature)) + log(2)) / 2
    assert contrastive_loss(pooled, question, temperature).item() == pytest.approx(want, rel=1e-6)


def test_contrastive_loss_compares_a_question_with_the_subgraphs_not_with_the_questions():
    # q_0 ∥ q_1 ∥ G_0 and G_1 orthogonal: rows ln(1 + e^-1) and ln(1 + e). The other direction would give 2 ln 2 / 2.
    pooled, question = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    want = (log(1 + math.exp(-1)) + log(1 + math.e)) / 2
    assert contrastive_loss(pooled, question, 1.0).item() == pytest.approx(want, rel=1e-6)


@settings(max_examples=50)
@given(batch=st.integers(1, 8), seed=st.integers(0, 10_000), temperature=st.floats(0.05, 5.0), worst=st.booleans())
def test_contrastive_loss_is_bounded(batch: int, seed: int, temperature: float, worst: bool):
    generator = torch.Generator().manual_seed(seed)
    pooled, question = torch.randn(batch, 3, generator=generator), torch.randn(batch, 3, generator=generator)
    if worst:  # every subgraph is the opposite of its question
        pooled, question = -question, question[:1].expand(batch, 3) * torch.ones(batch, 1)
    loss = contrastive_loss(pooled, question, temperature).item()
    assert 0 <= loss <= log(batch) + 2 / temperature + 1e-3


def test_contrastive_loss_of_an_empty_subgraph_is_finite():
    pooled = torch.zeros(2, 3, requires_grad=True)
    loss = contrastive_loss(pooled, torch.eye(3)[:2])
    loss.backward()
    assert loss.item() == pytest.approx(log(2), rel=1e-6)
    assert pooled.grad is not None and pooled.grad.isfinite().all()


def test_size_is_the_open_share_of_what_is_expected():
    # (0.5 + 0.25) / 3 = 0.25 and 3 / 1 = 3; an expected size of 0 counts as 1.
    gates = torch.tensor([[0.5, 0.25, 0.0], [1.0, 1.0, 1.0]])
    assert size_loss(gates, torch.tensor([3.0, 1.0])).item() == pytest.approx(1.625)
    assert size_loss(gates, torch.tensor([3.0, 0.0])).item() == pytest.approx(1.625)
    assert size_loss(torch.zeros(2, 3), torch.tensor([3.0, 1.0])).item() == 0.0


def test_pairs_drop_loops_duplicates_and_direction():
    pairs = undirected_pairs(torch.tensor([[3, 0, 0, 2, 1, 0], [1, 2, 2, 0, 1, 0]]))
    assert pairs.T.tolist() == [[0, 2], [1, 3]]
    assert undirected_pairs(torch.empty(2, 0, dtype=torch.int64)).shape == (2, 0)
    assert undirected_pairs(torch.tensor([[1, 2], [1, 2]])).shape == (2, 0)


@settings(max_examples=40)
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14),
    seed=st.integers(0, 10_000),
    expected=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_connectivity_is_the_quadratic_form_of_the_normalised_laplacian(
    edges: list[tuple[int, int]], seed: int, expected: tuple[int, int]
):
    graph = nx.Graph()
    graph.add_nodes_from(range(7))  # entity 6 is always alone
    graph.add_edges_from(edge for edge in edges if edge[0] != edge[1])
    laplacian = torch.from_numpy(nx.normalized_laplacian_matrix(graph, nodelist=range(7)).toarray())
    gates = torch.rand(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    energy = torch.einsum("bu,uv,bv->b", gates, laplacian, gates)
    size = torch.tensor(expected, dtype=torch.float64)
    pairs = undirected_pairs(torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T)
    torch.testing.assert_close(connectivity_loss(gates, pairs, size), (energy / size.clamp(min=1)).mean())


def test_connectivity_by_hand():
    # A path 0 - 1 - 2 and an isolated 3, degrees 1, 2, 1; gates 1, 0, 0 on the path:
    # (1/√1 - 0)² + (0 - 0)² = 1, over an expected size of 2.
    pairs = torch.tensor([[0, 1], [1, 2]])
    gates = torch.tensor([[1.0, 0.0, 0.0, 0.7]])
    assert connectivity_loss(gates, pairs, torch.tensor([2.0])).item() == pytest.approx(0.5)
    # All gates 1: (1 - 1/√2)² twice.
    ones = torch.ones(1, 4)
    assert connectivity_loss(ones, pairs, torch.tensor([1.0])).item() == pytest.approx(2 * (1 - 2**-0.5) ** 2)


def test_connectivity_is_zero_for_gates_at_the_root_of_the_degree_in_each_component():
    # Components: a star 0 - 1, 0 - 2, 0 - 3 (degrees 3, 1, 1, 1), a pair 4 - 5, an isolated 6.
    pairs = torch.tensor([[0, 0, 0, 4], [1, 2, 3, 5]])
    root = torch.tensor([3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).sqrt()
    per_component = torch.tensor([0.3, 0.3, 0.3, 0.3, 0.9, 0.9, 0.1])
    loss = connectivity_loss((per_component * root).unsqueeze(0), pairs, torch.ones(1))
    assert loss.item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("pairs", [torch.empty(2, 0, dtype=torch.int64), torch.tensor([[0], [1]])])
def test_bottleneck_terms_of_closed_gates_are_zero_and_differentiable(pairs: Tensor):
    gates = torch.zeros(2, 3, requires_grad=True)
    expected = torch.zeros(2)
    loss = size_loss(gates, expected) + connectivity_loss(gates, pairs, expected)
    loss.backward()
    assert loss.item() == 0.0
    # The size pulls every gate with 1 / (questions · expected size); the connectivity is at its minimum.
    assert gates.grad is not None and gates.grad.tolist() == [[0.5] * 3] * 2


def test_connectivity_without_pairs_is_zero_for_any_gates():
    gates = torch.rand(2, 3, requires_grad=True)
    loss = connectivity_loss(gates, torch.empty(2, 0, dtype=torch.int64), torch.ones(2))
    loss.backward()
    assert loss.item() == 0.0 and gates.grad is not None and not gates.grad.any()
