"""Relation states: only what a layer meets is projected, and at inference once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gfm.nn.edges import RelationalEdges
from gfm.nn.layers import two_layer_mlp
from gfm.nn.relations import RelationStates

R, TEXT, D, LAYERS = 7, 5, 4, 2


def projections(dtype: torch.dtype = torch.float32) -> tuple[nn.Linear, list[nn.Sequential]]:
    torch.manual_seed(0)
    return nn.Linear(TEXT, D).to(dtype), [two_layer_mlp(D, D, D).to(dtype) for _ in range(LAYERS)]


def texts() -> Tensor:
    return torch.randn(R, TEXT, generator=torch.Generator().manual_seed(1))


def part(*types: int) -> RelationalEdges:
    """A hop whose edges have these types: one edge each, from row 0 to row `i`."""
    kind = torch.tensor(types, dtype=torch.int64)
    target = torch.arange(len(types))
    return RelationalEdges(torch.stack([torch.zeros_like(target), target]), kind, len(types), R, None, 1)


WHOLE = RelationalEdges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([3, 1]), 2, R)


class Counting:
    """Notes how many rows every layer's projection gets."""

    def __init__(self, layers: list[nn.Sequential]) -> None:
        self.rows: list[list[int]] = [[] for _ in layers]
        for number, layer in enumerate(layers):
            layer.register_forward_hook(lambda _, inputs, __, number=number: self.rows[number].append(len(inputs[0])))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("edges", [WHOLE, part(5, 2, 5, 0), part(6), part()], ids=["whole", "four", "one", "none"])
def test_every_edge_gets_the_state_of_its_relation(edges: RelationalEdges, keep: bool):
    projection, layers = projections()
    states = RelationStates(texts(), projection, layers, keep)
    for number, layer in enumerate(layers):
        table, numbered = states.of_layer(number, edges)
        want = layer(projection(texts()))[edges.edge_type]
        torch.testing.assert_close(table[numbered.edge_type.long()], want, rtol=1e-5, atol=1e-6)
        assert torch.equal(numbered.edge_index, edges.edge_index)
        assert (numbered.num_nodes, numbered.num_sources) == (edges.num_nodes, edges.num_sources)


def test_only_the_relations_on_the_edges_are_projected():
    projection, layers = projections()
    counting, states = Counting(layers), RelationStates(texts(), projection, layers)
    table, numbered = states.of_layer(1, part(5, 2, 5, 0))
    assert counting.rows == [[], [3]] and table.shape == (3, D)
    assert numbered.num_edge_types == 3 and sorted(set(numbered.edge_type.tolist())) == [0, 1, 2]


def test_renumbered_edges_are_grouped_by_their_new_numbers():
    edges = part(5, 2, 5, 0)
    assert edges.by_relation.num_keys == R  # made before, by the old numbers
    projection, layers = projections()
    _, numbered = RelationStates(texts(), projection, layers).of_layer(0, edges)
    assert numbered.by_relation.indptr.tolist() == [0, 1, 2, 4]
    assert edges.by_relation.num_keys == R


def test_without_keeping_gradients_reach_all_projections():
    projection, layers = projections()
    states = RelationStates(texts(), projection, layers)
    sum(states.of_layer(number, part(5, 2))[0].square().sum() for number in range(LAYERS)).backward()
    for parameter in (*projection.parameters(), *(p for layer in layers for p in layer.parameters())):
        assert parameter.grad is not None and parameter.grad.any()


def test_kept_states_are_projected_once_and_carry_no_gradient():
    projection, layers = projections()
    counting, states = Counting(layers), RelationStates(texts(), projection, layers, cache=True)
    assert counting.rows == [[], []]  # nothing before it is met
    for edges in (part(5, 2, 5), part(2), part(5, 5), part(2, 0), part(0, 2, 5)):
        table, numbered = states.of_layer(0, edges)
        assert numbered is edges and not table.requires_grad
    assert counting.rows == [[2, 1], []]  # 5 and 2, then 0
    states.of_layer(0, WHOLE)
    states.of_layer(0, WHOLE)
    assert counting.rows == [[2, 1, R - 3], []]
    states.of_layer(1, part(0))
    assert counting.rows[1] == [1]


def test_kept_states_stay_what_they_were_when_others_are_added():
    projection, layers = projections()
    states = RelationStates(texts(), projection, layers, cache=True)
    first = states.of_layer(0, part(4, 1))[0][[4, 1]].clone()
    for relation in range(R):
        states.of_layer(0, part(relation))
    table, _ = states.of_layer(0, part(4, 1))
    assert torch.equal(table[[4, 1]], first)
    torch.testing.assert_close(table, layers[0](projection(texts())).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("elements", [1, 11, 10_000])
def test_kept_states_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch, elements: int):
    projection, layers = projections()
    want = layers[0](projection(texts())).detach()
    monkeypatch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", elements)
    table, _ = RelationStates(texts(), projection, layers, cache=True).of_layer(0, WHOLE)
    torch.testing.assert_close(table, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keep", [True, False])
def test_states_have_the_type_of_the_weights(keep: bool):
    projection, layers = projections(torch.bfloat16)
    table, _ = RelationStates(texts(), projection, layers, keep).of_layer(0, part(1, 3))
    assert table.dtype == torch.bfloat16


def test_states_kept_in_autocast_serve_questions_outside_it():
    projection, layers = projections()
    states = RelationStates(texts(), projection, layers, cache=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states.of_layer(0, part(1, 3))
    table, _ = states.of_layer(0, part(1, 3, 4))
    want = layers[0](projection(texts()))[[1, 3, 4]].detach()
    torch.testing.assert_close(table[[1, 3, 4]], want, rtol=0.05, atol=0.05)


def test_states_kept_in_inference_mode_serve_questions_outside_it():
    projection, layers = projections()
    states = RelationStates(texts(), projection, layers, cache=True)
    with torch.inference_mode():
        states.of_layer(0, part(1, 3))
    table, _ = states.of_layer(0, part(1, 3, 4))
    want = layers[0](projection(texts()))[[1, 3, 4]].detach()
    torch.testing.assert_close(table[[1, 3, 4]], want, rtol=1e-5, atol=1e-6)
