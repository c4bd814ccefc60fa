"""Training steps: what they compute, what they read, and that they learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from finetune.module import GNNModule, SelectorModule
from gfm.config import FinetuneConfig, LossConfig, SelectorConfig
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector, gumbel_sigmoid
from gfm.nn.states import EntityStates, Seeds
from gfm.training import losses
from gfm.training.graphs import both_directions
from gfm.training.sampling import query_generators, sample_negatives
from gfm.training.steps import (
    QuestionBatch,
    completion_logits,
    completion_step,
    phase_one_loss,
    question_step,
    selector_step,
)
from tests.training.graphs import TEXT, completion_graph

V = 8
GRAPH = completion_graph([(i, i % 2, (i + 1) % V) for i in range(V)] + [(0, 1, 4), (2, 0, 6)], V, 2)


def gnn_of() -> QueryConditionedGNN:
    torch.manual_seed(0)
    return QueryConditionedGNN(TEXT, 16, 3)


def question_batch(positives: Tensor | None = None) -> QuestionBatch:
    """Two questions; the first starts at 0, the second at 3 and 5."""
    question = torch.randn(2, TEXT, generator=torch.Generator().manual_seed(2))
    seeds = Seeds(torch.tensor([0, 3, 5]), torch.tensor([0, 1, 1]), torch.tensor([1.0, 0.5, 1.0]))
    if positives is None:
        positives = torch.zeros(2, V, dtype=torch.bool)
        positives[0, [1, 2]] = positives[1, 4] = True
    return QuestionBatch(question, seeds, positives)


def selector_inputs() -> tuple[SubgraphSelector, EntityStates, Tensor]:
    """A selector, frozen states and the graph's pairs."""
    gnn, batch = gnn_of(), question_batch()
    with torch.no_grad():
        states = gnn.propagate(batch.question, GRAPH.relation_embeddings, batch.seeds, GRAPH.edges)
    return SubgraphSelector.from_gnn(gnn), states, losses.undirected_pairs(GRAPH.edges.edge_index)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_phase_one_mixes_both_losses_over_the_candidates(alpha: float):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, V, generator=generator)
    positives = torch.arange(V).expand(2, V) < 2
    negatives = torch.arange(V).expand(2, V) > 4  # 2, 3 and 4 are neither
    loss, metrics = phase_one_loss(logits, positives, negatives, LossConfig(alpha, 0.5))
    bce = losses.bce_loss(logits, positives, negatives, 0.5)
    rank = losses.rank_loss(logits, positives, positives | negatives)
    torch.testing.assert_close(loss, alpha * bce + (1 - alpha) * rank)
    torch.testing.assert_close(metrics, {"bce": bce, "rank": rank})


def test_completion_asks_with_the_text_of_the_relation_or_its_inverse():
    gnn = gnn_of().eval()
    triple = torch.tensor([[0, 1, 4]])
    queries = both_directions(triple, 2)
    with torch.no_grad():
        logits = completion_logits(gnn, GRAPH, queries, GRAPH.edges)
        for row, (entity, edge_type) in enumerate([(0, 1), (4, 3)]):
            start = Seeds(torch.tensor([entity]), torch.tensor([0]), torch.ones(1))
            text = GRAPH.relation_embeddings[edge_type].unsqueeze(0)
            torch.testing.assert_close(logits[row], gnn(text, GRAPH.relation_embeddings, start, GRAPH.edges)[0])


@pytest.mark.parametrize("num_negatives", [0, 3])
def test_completion_loss_counts_the_answer_and_strict_negatives_alone(num_negatives: int):
    gnn, triples = gnn_of(), GRAPH.train[[0, 8]]  # (0, 0, 1) and (0, 1, 4)
    loss, metrics = completion_step(
        gnn, GRAPH, triples, LossConfig(num_negatives=num_negatives), [torch.Generator().manual_seed(0)]
    )
    assert set(metrics) == {"bce", "rank"} and not any(value.requires_grad for value in metrics.values())
    if num_negatives:
        return
    queries = both_directions(triples, 2)
    logits = completion_logits(gnn, GRAPH, queries, GRAPH.edges_without(triples))
    positives = torch.nn.functional.one_hot(queries.answer, V).bool()
    want, _ = phase_one_loss(logits, positives, ~GRAPH.known_answers(queries), LossConfig())
    torch.testing.assert_close(loss, want)


def test_scoring_the_candidates_alone_gives_the_loss_and_gradients_of_scoring_all():
    cfg, triples = LossConfig(num_negatives=2), GRAPH.train[[0, 8]]
    gnn, other = gnn_of(), gnn_of()
    loss, _ = completion_step(gnn, GRAPH, triples, cfg, query_generators(0, 0, range(2)))
    queries = both_directions(triples, 2)
    logits = completion_logits(other, GRAPH, queries, GRAPH.edges_without(triples))
    negatives = sample_negatives(~GRAPH.known_answers(queries), 2, query_generators(0, 0, range(2)))
    assert negatives.sum(dim=1).tolist() == [2, 2, 2, 2]
    want, _ = phase_one_loss(logits, torch.nn.functional.one_hot(queries.answer, V).bool(), negatives, cfg)
    torch.testing.assert_close(loss, want)
    loss.backward()
    want.backward()
    for mine, theirs in zip(gnn.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_completion_steps_are_reproducible_with_a_generator():
    cfg = LossConfig(num_negatives=2)
    values = [
        completion_step(gnn_of(), GRAPH, GRAPH.train, cfg, [torch.Generator().manual_seed(seed)])[0]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])


def test_another_true_answer_of_the_query_does_not_enter_the_loss():
    # (0, 0, ?) has the answers 1 and 2: asked for 1, a change of the logit of 2 must not matter.
    graph = completion_graph([(0, 0, 1), (0, 0, 2), (3, 0, 4)], 5, 1)
    queries = both_directions(graph.train[:1], 1)
    positives = torch.nn.functional.one_hot(queries.answer, 5).bool()
    logits = torch.zeros(2, 5, requires_grad=True)
    phase_one_loss(logits, positives, ~graph.known_answers(queries), LossConfig())[0].backward()
    assert logits.grad is not None
    assert logits.grad[0].ne(0).tolist() == [True, True, False, True, True]


def test_completion_learns():
    gnn, generator = gnn_of(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=1e-2)
    history = []
    for _ in range(25):
        loss, _ = completion_step(gnn, GRAPH, GRAPH.train[:2], LossConfig(), [generator])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < 0.5 * history[0]


def test_question_fine_tuning_learns_and_treats_all_others_as_negative():
    gnn, batch = gnn_of(), question_batch()
    first, _ = question_step(gnn, GRAPH.relation_embeddings, GRAPH.edges, batch, LossConfig())
    logits = gnn(batch.question, GRAPH.relation_embeddings, batch.seeds, GRAPH.edges)
    torch.testing.assert_close(first, phase_one_loss(logits, batch.positives, ~batch.positives, LossConfig())[0])
    optimizer = torch.optim.Adam(gnn.parameters(), lr=1e-2)
    for _ in range(25):
        optimizer.zero_grad()
        loss, _ = question_step(gnn, GRAPH.relation_embeddings, GRAPH.edges, batch, LossConfig())
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * first


def test_a_question_batch_without_positives_gives_zero_loss_and_zero_gradients():
    gnn = gnn_of()
    batch = question_batch(torch.zeros(2, V, dtype=torch.bool))
    loss, _ = question_step(gnn, GRAPH.relation_embeddings, GRAPH.edges, batch, LossConfig())
    loss.backward()
    assert loss.item() == 0.0
    assert all(p.grad is None or not p.grad.any() for p in gnn.parameters())


@pytest.mark.parametrize("supervised", [True, False])
def test_the_selector_loss_is_the_weighted_sum_of_its_terms(supervised: bool):
    selector, states, pairs = selector_inputs()
    batch, loss_cfg = question_batch(), LossConfig()
    cfg = SelectorConfig(beta_size=0.2, beta_connectivity=0.7, supervised=supervised, expected_size=5.0)
    loss, metrics = selector_step(selector, states, pairs, batch, cfg, loss_cfg, 0.5, torch.Generator().manual_seed(0))
    logits = selector(states, batch.question)
    gates = gumbel_sigmoid(logits, 0.5, torch.Generator().manual_seed(0))
    expected = torch.tensor([2.0, 1.0]) if supervised else torch.tensor([5.0, 5.0])
    nce = losses.contrastive_loss(selector.pool(gates, states, batch.question), batch.question, cfg.nce_temperature)
    size, connectivity = losses.size_loss(gates, expected), losses.connectivity_loss(gates, pairs, expected)
    want = nce + 0.2 * size + 0.7 * connectivity
    if supervised:
        want = want + phase_one_loss(logits, batch.positives, ~batch.positives, loss_cfg)[0]
    torch.testing.assert_close(loss, want)
    assert set(metrics) == {"nce", "size", "connectivity"} | ({"bce", "rank"} if supervised else set())
    torch.testing.assert_close(metrics["connectivity"], connectivity.detach())


def test_without_supervision_no_label_is_read():
    selector, states, pairs = selector_inputs()
    none = torch.zeros(2, V, dtype=torch.bool)
    values = {
        selector_step(
            selector,
            states,
            pairs,
            question_batch(positives),
            SelectorConfig(supervised=False),
            LossConfig(),
            0.5,
            torch.Generator().manual_seed(0),
        )[0].item()
        for positives in (none, ~none, question_batch().positives)
    }
    assert len(values) == 1


@pytest.mark.parametrize("supervised", [True, False])
def test_the_selector_step_without_positives_stays_finite(supervised: bool):
    selector, states, pairs = selector_inputs()
    batch, cfg = question_batch(torch.zeros(2, V, dtype=torch.bool)), SelectorConfig(supervised=supervised)
    loss, _ = selector_step(selector, states, pairs, batch, cfg, LossConfig(), 0.5, torch.Generator().manual_seed(0))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in selector.parameters())


def test_the_selector_learns_to_keep_the_positives():
    selector, states, pairs = selector_inputs()
    batch, generator = question_batch(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(selector.parameters(), lr=1e-2)
    for _ in range(60):
        loss, _ = selector_step(selector, states, pairs, batch, SelectorConfig(), LossConfig(), 0.5, generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    logits = selector(states, batch.question)
    assert logits[batch.positives].min() > logits[~batch.positives].max()


class TinyCorpus:
    """What the fine-tuning modules read of a corpus: one batch, always the same."""

    relations, edges = GRAPH.relation_embeddings, GRAPH.edges
    pairs = losses.undirected_pairs(GRAPH.edges.edge_index)

    def batch(self, ids: Tensor) -> QuestionBatch:
        return question_batch()

    def to(self, device: torch.device | str) -> TinyCorpus:
        return self


def silent(module):
    """The module without a trainer: what it logs goes nowhere."""
    module.log = module.log_dict = lambda *args, **kwargs: None
    return module


def test_the_frozen_gnn_gets_no_gradient_and_keeps_its_weights():
    gnn = gnn_of()
    before = {name: tensor.clone() for name, tensor in gnn.state_dict().items()}
    module = silent(SelectorModule(gnn, SubgraphSelector.from_gnn(gnn), [TinyCorpus()], FinetuneConfig()))
    module.on_fit_start()
    optimizer = module.configure_optimizers()["optimizer"]
    for _ in range(3):
        optimizer.zero_grad()
        module.training_step((0, torch.arange(2)), 0).backward()
        optimizer.step()
    assert all(p.grad is None and not p.requires_grad for p in gnn.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in gnn.state_dict().items())
    assert all(p.grad is not None and p.grad.any() for p in module.selector.parameters() if p.numel() > 1)


def test_question_fine_tuning_trains_the_gnn_itself():
    gnn = gnn_of()
    module = silent(GNNModule(gnn, [TinyCorpus()], FinetuneConfig()))
    module.training_step((0, torch.arange(2)), 0).backward()
    assert all(p.grad is not None for p in gnn.parameters())


def test_the_gate_temperature_falls_geometrically_from_start_to_end(monkeypatch: pytest.MonkeyPatch):
    cfg = FinetuneConfig()
    cfg.selector = replace(cfg.selector, temperature_start=1.0, temperature_end=0.25, max_steps=3)
    module = SelectorModule(gnn_of(), SubgraphSelector(TEXT, 16), [], cfg)
    seen = []
    for step in (0, 1, 2, 50):
        monkeypatch.setattr(SelectorModule, "global_step", step)
        seen.append(module.temperature)
    assert seen == pytest.approx([1.0, 0.5, 0.25, 0.25])
