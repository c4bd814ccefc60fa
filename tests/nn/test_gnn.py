"""The GNN: size, reach, symmetries and the independence of questions."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from torch import Tensor

from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN, Seeds
from tests.nn.graphs import random_triples, seeds_of, with_inverses

V, R, TEXT = 14, 3, 8
TRIPLES = [t for t in random_triples(3, 13, V - 2, R) if t[0] != t[2]]  # sparse; the last two entities stay alone
FORMS = pytest.mark.parametrize("zero_preserving", [True, False])


def gnn_of(num_layers: int = 3, zero_preserving: bool = True, hidden_dim: int = 16) -> QueryConditionedGNN:
    torch.manual_seed(0)
    return QueryConditionedGNN(TEXT, hidden_dim, num_layers, zero_preserving).eval()


def texts(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, TEXT, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("hidden_dim", "count"), [(512, 8_144_897), (256, 2_237_441), (128, 659_969), (64, 215_297), (32, 78_977)]
)
def test_parameter_count_of_the_published_form(hidden_dim: int, count: int):
    with torch.device("meta"):
        gnn = QueryConditionedGNN(text_dim=768, hidden_dim=hidden_dim, num_layers=6, zero_preserving=False)
    assert sum(p.numel() for p in gnn.parameters()) == count


def test_the_zero_preserving_form_lacks_exactly_the_biases_of_its_layers():
    names = [{name for name, _ in gnn_of(2, form).named_parameters()} for form in (False, True)]
    assert names[0] - names[1] == {f"layers.{i}.{part}.bias" for i in range(2) for part in ("linear", "norm")}
    assert names[1] < names[0]


def distances(seeds: Seeds, question: int) -> dict[int, int]:
    """Hops from the question's nearest seed, by networkx."""
    graph = nx.Graph((h, t) for h, _, t in TRIPLES)
    graph.add_nodes_from(range(V))
    sources = {int(e) for e, q in zip(seeds.entity, seeds.question, strict=True) if q == question}
    return nx.multi_source_dijkstra_path_length(graph, sources)


@pytest.mark.parametrize("num_layers", range(6))
def test_exactly_the_entities_within_reach_carry_a_state(num_layers: int):
    seeds = seeds_of({0: 1.0}, {TRIPLES[4][0]: 1.0, V - 1: 0.5})
    gnn, edges = gnn_of(num_layers), with_inverses(TRIPLES, V, R)
    with torch.no_grad():
        states = gnn.propagate(texts(2), texts(2 * R), seeds, edges)
    for question in range(2):
        hops = distances(seeds, question)
        want = [hops.get(entity, V) <= num_layers for entity in range(V)]
        assert (states[:, question] != 0).any(dim=1).tolist() == want
        assert not all(want) and want[V - 2] is False


def test_the_graph_of_the_reach_test_has_several_hops():
    assert max(distances(seeds_of({0: 1.0}), 0).values()) >= 4


def test_the_layer_norm_form_gives_unreached_entities_a_state():
    with torch.no_grad():
        states = gnn_of(2, False).propagate(texts(1), texts(2 * R), seeds_of({0: 1.0}), with_inverses(TRIPLES, V, R))
    assert (states != 0).any(dim=2).all()


@FORMS
def test_unreached_entities_share_one_logit_per_question(zero_preserving: bool):
    with torch.no_grad():
        logits = gnn_of(3, zero_preserving)(
            texts(2), texts(2 * R), seeds_of({0: 1.0}, {1: 1.0}), with_inverses(TRIPLES, V, R)
        )
    assert torch.equal(logits[:, V - 2], logits[:, V - 1])
    assert len(logits[0].unique()) > 3


def test_a_question_without_seeds_scores_all_entities_alike():
    with torch.no_grad():
        logits = gnn_of()(texts(2), texts(2 * R), seeds_of({0: 1.0}, {}), with_inverses(TRIPLES, V, R))
    assert len(logits[1].unique()) == 1


def test_start_states_are_the_weighted_projected_question():
    gnn = gnn_of(num_layers=0)
    question = texts(2)
    with torch.no_grad():
        states = gnn.propagate(question, texts(2 * R), seeds_of({3: 0.25}, {5: 1.0}), with_inverses(TRIPLES, V, R))
        projected = gnn.question_projection(question)
    want = torch.zeros(V, 2, 16)
    want[3, 0], want[5, 1] = 0.25 * projected[0], projected[1]
    torch.testing.assert_close(states, want)


def test_the_score_is_the_mlp_of_state_and_question():
    gnn = gnn_of()
    states, question = torch.randn(V, 2, 16), texts(2)
    joined = torch.cat([states, gnn.question_projection(question).expand(V, 2, 16)], dim=-1)
    torch.testing.assert_close(gnn.score(states, question), gnn.score_mlp(joined).squeeze(-1))


@FORMS
def test_logits_do_not_depend_on_the_other_questions_of_the_batch(zero_preserving: bool):
    gnn, edges, question, relations = gnn_of(3, zero_preserving), with_inverses(TRIPLES, V, R), texts(4), texts(2 * R)
    sets = [{0: 1.0}, {1: 0.5, 2: 1.0}, {V - 1: 1.0}, {}]
    with torch.no_grad():
        together = gnn(question, relations, seeds_of(*sets), edges)
        for row, chosen in enumerate(sets):
            alone = gnn(question[row : row + 1], relations, seeds_of(chosen), edges)
            torch.testing.assert_close(together[row], alone[0], rtol=1e-4, atol=1e-5)


def test_an_empty_batch_has_no_logits():
    with torch.no_grad():
        assert gnn_of()(texts(0), texts(2 * R), seeds_of(), with_inverses(TRIPLES, V, R)).shape == (0, V)


@FORMS
def test_renumbering_the_entities_permutes_the_logits(zero_preserving: bool):
    gnn, question, relations = gnn_of(3, zero_preserving), texts(2), texts(2 * R)
    seeds, edges = seeds_of({0: 1.0}, {4: 1.0, 1: 0.5}), with_inverses(TRIPLES, V, R)
    new = torch.randperm(V, generator=torch.Generator().manual_seed(5))
    renumbered = RelationalEdges(new[edges.edge_index], edges.edge_type, V, 2 * R)
    with torch.no_grad():
        before = gnn(question, relations, seeds, edges)
        after = gnn(question, relations, seeds._replace(entity=new[seeds.entity]), renumbered)
    torch.testing.assert_close(after[:, new], before, rtol=1e-4, atol=1e-5)


@FORMS
def test_renumbering_the_relations_with_their_texts_changes_nothing(zero_preserving: bool):
    gnn, question, relations = gnn_of(3, zero_preserving), texts(2), texts(2 * R)
    seeds, edges = seeds_of({0: 1.0}, {4: 1.0}), with_inverses(TRIPLES, V, R)
    new = torch.tensor([4, 2, 0, 5, 1, 3])
    moved = torch.empty_like(relations).index_copy(0, new, relations)
    renumbered = RelationalEdges(edges.edge_index, new[edges.edge_type], V, 2 * R)
    with torch.no_grad():
        torch.testing.assert_close(
            gnn(question, moved, seeds, renumbered), gnn(question, relations, seeds, edges), rtol=1e-4, atol=1e-5
        )


def test_relations_tell_entities_apart():
    edges = with_inverses([(0, 0, 1), (0, 1, 2)], 3, 2)
    with torch.no_grad():
        logits = gnn_of()(texts(1), texts(4), seeds_of({0: 1.0}), edges)
    assert abs(float(logits[0, 1] - logits[0, 2])) > 1e-4


@FORMS
def test_every_parameter_learns(zero_preserving: bool):
    gnn = gnn_of(2, zero_preserving)
    gnn(texts(2), texts(2 * R), seeds_of({0: 1.0}, {4: 1.0}), with_inverses(TRIPLES, V, R)).square().sum().backward()
    assert [name for name, p in gnn.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_mixed_precision_runs_and_stays_close_to_float32():
    gnn, seeds, edges = gnn_of(), seeds_of({0: 1.0}), with_inverses(TRIPLES, V, R)
    with torch.no_grad():
        full = gnn(texts(1), texts(2 * R), seeds, edges)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = gnn(texts(1), texts(2 * R), seeds, edges)
    torch.testing.assert_close(mixed.float(), full, rtol=0.1, atol=0.1)
