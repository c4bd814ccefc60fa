"""The yardstick computes the same numbers as the model that it is compared with."""

from __future__ import annotations

import pytest
import torch

from benchmarks.graphs import random_graph
from benchmarks.reference import reference_logits
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.states import Seeds


@pytest.mark.parametrize("zero_preserving", [False, True])
def test_reference_and_model_agree_in_logits_and_gradients(zero_preserving: bool) -> None:
    torch.manual_seed(0)
    graph = random_graph(60, 150, 7, text_dim=12)
    edges = graph.edges_without(graph.train[:3])
    gnn = QueryConditionedGNN(12, 16, 4, zero_preserving)
    seeds = Seeds(torch.tensor([3, 8, 8, 40]), torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 0.5, 1.0, 0.25]))
    question = torch.randn(2, 12)
    expected = gnn(question, graph.relation_embeddings, seeds, edges)
    expected.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in gnn.named_parameters()}
    gnn.zero_grad()
    logits = reference_logits(gnn, question, graph.relation_embeddings, seeds, edges)
    logits.square().sum().backward()
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    assert logits.std() > 1e-2
    for name, parameter in gnn.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-3, atol=1e-3)
