"""The GNN: size, reach, symmetries, the independence of questions, and shortcuts that change nothing."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import NamedTuple

import networkx as nx
import numba
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfm.nn import frontier
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.states import EntityStates, Seeds
from tests.nn.graphs import Triple, random_triples, seeds_of, with_inverses

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
        states = gnn.propagate(texts(2), texts(2 * R), seeds, edges).dense()
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
    assert (states.dense() != 0).any(dim=2).all()


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
    torch.testing.assert_close(states.dense(), want)


def test_the_score_is_the_mlp_of_state_and_question():
    gnn = gnn_of()
    states, question = torch.randn(V, 2, 16), texts(2)
    joined = torch.cat([states, gnn.question_projection(question).expand(V, 2, 16)], dim=-1)
    want = gnn.score_mlp(joined).squeeze(-1).T
    torch.testing.assert_close(gnn.logits(EntityStates(states, None, V), question), want)


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


# The frontier, the kept relation states, the chunks and the budget change where work is done, not what comes out.


class Problem(NamedTuple):
    """A masked multigraph with questions of any number of weighted seeds, none included."""

    num_nodes: int
    triples: list[Triple]
    keep: list[bool] | None
    questions: list[dict[int, float]]

    def edges(self) -> RelationalEdges:
        edges = with_inverses(self.triples, self.num_nodes, R)
        return edges if self.keep is None else edges.masked(torch.tensor(self.keep + self.keep, dtype=torch.bool))

    def inputs(self) -> tuple[Tensor, Tensor, Seeds, RelationalEdges]:
        return texts(len(self.questions)), texts(2 * R, seed=2), seeds_of(*self.questions), self.edges()


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    num_nodes = draw(st.integers(1, 9))
    entity, size = st.integers(0, num_nodes - 1), draw(st.integers(0, 14))
    triples = draw(st.lists(st.tuples(entity, st.integers(0, R - 1), entity), min_size=size, max_size=size))
    keep = draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size))
    weights = st.dictionaries(entity, st.sampled_from([0.25, 1.0, 2.0]), max_size=3)
    return Problem(num_nodes, triples, keep, draw(st.lists(weights, min_size=1, max_size=3)))


@cache
def double_gnn(fused: bool = True) -> QueryConditionedGNN:
    """In float64, where two orders of the same sum differ by 1e-15 and a wrong term does not."""
    gnn = gnn_of(3, hidden_dim=6).double()
    for layer in gnn.layers:
        layer.fused = fused
    return gnn


def with_share(share: float) -> pytest.MonkeyPatch:
    """0 runs every layer over the whole graph, 2 none (but in a graph without edges)."""
    patch = pytest.MonkeyPatch()
    patch.setattr(frontier, "FULL_SHARE", share)
    return patch


def values_and_gradients(gnn: QueryConditionedGNN, problem: Problem, share: float, **options: int) -> list[Tensor]:
    """Logits and, for a random direction, the gradients of all parameters."""
    patch = with_share(share)
    try:
        gnn.zero_grad(set_to_none=False)
        logits = gnn(*problem.inputs(), **options)
        upstream = torch.randn(logits.shape, generator=torch.Generator().manual_seed(7)).to(logits.dtype)
        logits.backward(upstream)
        return [logits.detach(), *(torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in gnn.parameters())]
    finally:
        patch.undo()


def assert_same(a: list[Tensor], b: list[Tensor], tolerance: float) -> None:
    for got, want in zip(a, b, strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_the_frontier_and_the_whole_graph_take_different_ways(monkeypatch: pytest.MonkeyPatch):
    gnn, edges, sizes = gnn_of(3), with_inverses(TRIPLES, V, R), []
    for layer in gnn.layers:
        layer.register_forward_hook(lambda _, __, rows: sizes.append(len(rows)))
    for share in (0.0, 2.0):
        monkeypatch.setattr(frontier, "FULL_SHARE", share)
        gnn(texts(1), texts(2 * R), seeds_of({0: 1.0}), edges)
    hops = distances(seeds_of({0: 1.0}), 0)
    assert sizes == [V] * 3 + [sum(far <= within for far in hops.values()) for within in (1, 2, 3)]


@settings(max_examples=30)
@given(problems())
def test_the_frontier_gives_logits_and_gradients_of_the_whole_graph(problem: Problem):
    gnn = double_gnn()
    whole = values_and_gradients(gnn, problem, 0.0)
    assert_same(values_and_gradients(gnn, problem, 2.0), whole, 1e-8)
    assert_same(values_and_gradients(gnn, problem, frontier.FULL_SHARE), whole, 1e-8)


@pytest.mark.parametrize("num_layers", [1, 2, 6])
@pytest.mark.parametrize("masked", [True, False])
def test_the_frontier_gives_logits_and_gradients_of_the_whole_graph_in_float32(num_layers: int, masked: bool):
    keep = [number % 4 != 0 for number in range(40)] if masked else None
    problem = Problem(40, random_triples(5, 40, 36, R), keep, [{0: 1.0, 3: 0.5}, {}, {39: 2.0, 7: 0.1}])
    gnn = gnn_of(num_layers)
    assert_same(values_and_gradients(gnn, problem, 2.0), values_and_gradients(gnn, problem, 0.0), 1e-5)


@settings(max_examples=25)
@given(problems(), st.sampled_from([0.0, 2.0]))
def test_fused_and_separate_steps_give_the_same_logits_and_gradients(problem: Problem, share: float):
    apart = double_gnn(fused=False)
    apart.load_state_dict(double_gnn().state_dict())
    assert_same(values_and_gradients(double_gnn(), problem, share), values_and_gradients(apart, problem, share), 1e-8)


@settings(max_examples=30)
@given(problems(), st.sampled_from([0.0, 2.0]), st.integers(1, 40))
def test_without_gradients_the_logits_are_those_with_gradients(problem: Problem, share: float, elements: int):
    gnn, patch = double_gnn(), with_share(share)
    try:
        want = gnn(*problem.inputs()).detach()
        with torch.no_grad():
            torch.testing.assert_close(gnn(*problem.inputs()), want, rtol=1e-8, atol=1e-8)
            patch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", elements)
            torch.testing.assert_close(gnn(*problem.inputs()), want, rtol=1e-8, atol=1e-8)
    finally:
        patch.undo()


@FORMS
@pytest.mark.parametrize("share", [0.0, 2.0])
def test_chunks_of_rows_give_the_logits_of_one_pass_in_both_forms(
    monkeypatch: pytest.MonkeyPatch, zero_preserving: bool, share: float
):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    gnn, seeds, edges = gnn_of(3, zero_preserving), seeds_of({0: 1.0}, {4: 0.5}), with_inverses(TRIPLES, V, R)
    want = gnn(texts(2), texts(2 * R), seeds, edges).detach()
    monkeypatch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", 96)  # three rows of two questions
    with torch.no_grad():
        torch.testing.assert_close(gnn(texts(2), texts(2 * R), seeds, edges), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 2.0])
@settings(max_examples=12)
@given(st.lists(problems(), min_size=2, max_size=4))
def test_kept_relation_states_serve_all_questions_to_come(share: float, asked: list[Problem]):
    gnn, patch = double_gnn(), with_share(share)
    try:
        kept = gnn.relation_states(texts(2 * R, seed=2), cache=True)
        with torch.no_grad():
            for problem in (*asked, *asked):
                question, relations, seeds, edges = problem.inputs()
                want = gnn(question, relations, seeds, edges)
                torch.testing.assert_close(gnn(question, kept, seeds, edges), want, rtol=1e-8, atol=1e-8)
    finally:
        patch.undo()


def test_a_relation_is_projected_when_a_question_first_meets_it_and_never_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frontier, "FULL_SHARE", 2.0)
    gnn, projected = gnn_of(2), []
    # A path 0 -(0)- 1 -(1)- 2, and apart from it 3 -(2)- 4.
    edges, relations = with_inverses([(0, 0, 1), (1, 1, 2), (3, 2, 4)], 6, 3), texts(6)
    for number, layer in enumerate(gnn.layers):
        layer.relation_projection.register_forward_hook(
            lambda _, inputs, __, number=number: projected.append((number, len(inputs[0])))
        )
    kept = gnn.relation_states(relations, cache=True)
    expected = [
        # Of 0 its edge out alone, then those of 0 and 1: 0 and its inverse, and 1.
        ({0: 1.0}, [(0, 1), (1, 3)]),
        ({0: 0.5}, []),
        # Of 3, relation 2, then its inverse as well.
        ({3: 1.0}, [(0, 1), (1, 2)]),
        ({3: 1.0, 0: 1.0}, []),
        # Of 1, relation 1 and the inverse of 0; the inverse of 1 in the second layer.
        ({1: 1.0}, [(0, 2), (1, 1)]),
        ({5: 1.0}, []),
    ]
    for seeds, want in expected:
        projected.clear()
        gnn(texts(1), kept, seeds_of(seeds), edges)
        assert projected == want
    assert not kept.of_layer(0, edges)[0].requires_grad


@pytest.mark.parametrize("budget", [None, 3])
@pytest.mark.parametrize("share", [0.0, 2.0])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_inputs_are_never_modified(
    monkeypatch: pytest.MonkeyPatch, budget: int | None, share: float, fused: bool, grad: bool
):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    monkeypatch.setattr("gfm.nn.layers.ROW_CHUNK_ELEMENTS", 40)
    gnn, question, relations, seeds = gnn_of(), texts(2), texts(2 * R), seeds_of({0: 1.0, 5: 0.5}, {4: 1.0})
    for layer in gnn.layers:
        layer.fused = fused
    edges = with_inverses(TRIPLES, V, R).masked(torch.arange(2 * len(TRIPLES)) % 5 != 0)
    tensors = [question, relations, *seeds, edges.edge_index, edges.edge_type, edges.keep, *gnn.state_dict().values()]
    before = [tensor.clone() for tensor in tensors]
    with torch.set_grad_enabled(grad):
        states = gnn.propagate(question, relations, seeds, edges, budget)
        rows = states.rows.clone()
        gnn.logits(states, question)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    assert torch.equal(states.rows, rows)


@settings(max_examples=30)
@given(problems(), st.integers(0, 3))
def test_a_budget_that_leaves_out_nothing_is_exact(problem: Problem, more: int):
    gnn, budget = double_gnn(), problem.num_nodes + more
    # Three more entities that nothing reaches: all that are reached fit, whether or not the whole graph does.
    problem = problem._replace(num_nodes=problem.num_nodes + 3)
    exact = values_and_gradients(gnn, problem, 0.0)
    assert_same(values_and_gradients(gnn, problem, 0.0, frontier_budget=budget), exact, 1e-8)


@settings(max_examples=30)
@given(problems(), st.integers(1, 5))
def test_after_every_layer_no_more_than_the_budget_carry_a_state(problem: Problem, budget: int):
    gnn, rows = double_gnn(), []
    hooks = [layer.register_forward_hook(lambda _, __, out: rows.append(len(out))) for layer in gnn.layers]
    with torch.no_grad():
        states = gnn.propagate(*problem.inputs(), frontier_budget=budget)
        logits = gnn.logits(states, texts(len(problem.questions)))
        zero = EntityStates(states.rows[:0], torch.tensor([], dtype=torch.int64), 1)
        alone = gnn.logits(zero, texts(len(problem.questions)))
    for hook in hooks:
        hook.remove()
    assert len(rows) == 3 and max(rows) <= budget
    entities = torch.arange(problem.num_nodes) if states.entities is None else states.entities
    assert len(entities) == len(states.rows) == rows[-1]
    assert bool((entities.diff() > 0).all())
    assert logits.isfinite().all()
    beyond = [entity for entity in range(problem.num_nodes) if entity not in entities.tolist()]
    assert torch.equal(logits[:, beyond], alone.expand(-1, len(beyond)))


def hub_problem() -> Problem:
    """Entity 0 links to all of 1 to 30; 31 leads to 32, and 32 to 33; 34 stays alone."""
    triples = [(0, 0, n) for n in range(1, 31)] + [(31, 1, 32), (32, 2, 33)]
    return Problem(35, triples, None, [{0: 1.0}, {31: 1.0}])


def test_a_budget_leaves_out_the_hubs_neighbours_first():
    with torch.no_grad():
        states = gnn_of(2).propagate(*hub_problem().inputs(), frontier_budget=4)
    # The hub shares its mass among 30; 31 hands all of its own to 32, and 32 half to 33.
    assert states.entities.tolist() == [0, 31, 32, 33]


def test_an_entity_beyond_the_budget_has_the_logit_of_one_that_nothing_reaches():
    gnn = gnn_of(2)
    with torch.no_grad():
        exact = gnn(*hub_problem().inputs())
        logits = gnn(*hub_problem().inputs(), frontier_budget=4)
    unreached = logits[:, 34:]
    torch.testing.assert_close(unreached, exact[:, 34:])
    assert torch.equal(logits[:, 1:31], unreached.expand(-1, 30))
    assert ((exact[0, 1:31] - exact[0, 34]).abs() > 1e-4).all()
    assert (logits[0, 0] - unreached[0]).abs() > 1e-4 and (logits[1, 31:34] - unreached[1]).abs().min() > 1e-4


def test_more_seeds_than_the_budget_leave_the_heaviest():
    problem = Problem(8, [(5, 0, 6)], None, [{0: 1.0, 1: 4.0, 2: 2.0, 3: 4.0, 4: 1.0}, {5: 1.0}])
    gnn = gnn_of(2)
    with torch.no_grad():
        states = gnn.propagate(*problem.inputs(), frontier_budget=3)
    # Each question has mass 1: 5 and 6 share that of the second, 1 and 3 have a third each of the first.
    assert states.entities.tolist() == [1, 5, 6]
    assert not states.rows[0, 1].any() and not states.rows[1:, 0].any()
    assert states.rows[0, 0].any() and states.rows[1:, 1].any(dim=1).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_scale_of_a_questions_seed_weights_does_not_buy_it_a_larger_share(scale: float):
    problem = Problem(8, [], None, [{0: scale, 1: scale, 2: scale}, {4: 1.0, 5: 1.0}])
    with torch.no_grad():
        states = gnn_of(1).propagate(*problem.inputs(), frontier_budget=3)
    assert states.entities.tolist() == [0, 4, 5]


def test_a_budget_gives_the_same_bits_every_time():
    problem = Problem(40, random_triples(5, 200, 40, R), None, [{0: 1.0, 3: 0.5}, {7: 1.0}])
    with torch.no_grad():
        first, again = (gnn_of().propagate(*problem.inputs(), frontier_budget=9) for _ in range(2))
    assert torch.equal(first.entities, again.entities) and torch.equal(first.rows, again.rows)
    assert len(first.entities) == 9


def test_a_budget_learns():
    gnn = gnn_of(2)
    gnn(*hub_problem().inputs(), frontier_budget=4).square().sum().backward()
    assert [name for name, p in gnn.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(("zero_preserving", "budget"), [(False, 5), (True, 0), (True, -3), (False, 0)])
def test_a_budget_that_cannot_work_is_refused(zero_preserving: bool, budget: int):
    with pytest.raises(ValueError, match=f"frontier_budget is {budget}, zero_preserving is {zero_preserving}"):
        gnn_of(2, zero_preserving)(texts(1), texts(2 * R), seeds_of({0: 1.0}), with_inverses(TRIPLES, V, R), budget)


@pytest.mark.parametrize("budget", [None, 1, V])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("share", [0.0, 2.0])
def test_questions_without_any_seed_score_all_entities_alike(
    monkeypatch: pytest.MonkeyPatch, budget: int | None, grad: bool, share: float
):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    gnn = gnn_of()
    with torch.set_grad_enabled(grad):
        logits = gnn(texts(2), texts(2 * R), seeds_of({}, {}), with_inverses(TRIPLES, V, R), budget)
    want = gnn.score_mlp(torch.cat([torch.zeros(2, 16), gnn.question_projection(texts(2))], dim=-1))
    torch.testing.assert_close(logits, want.expand(2, V))


@FORMS
@pytest.mark.parametrize("grad", [True, False])
def test_an_empty_batch_runs_in_both_forms(zero_preserving: bool, grad: bool):
    with torch.set_grad_enabled(grad):
        logits = gnn_of(2, zero_preserving)(texts(0), texts(2 * R), seeds_of(), with_inverses(TRIPLES, V, R))
    assert logits.shape == (0, V)


@pytest.mark.parametrize("num_nodes", [1, 3])
@pytest.mark.parametrize("budget", [None, 2])
def test_a_graph_without_edges_keeps_states_at_its_seeds(num_nodes: int, budget: int | None):
    states = gnn_of().propagate(texts(1), texts(2 * R), seeds_of({0: 1.0}), with_inverses([], num_nodes, R), budget)
    assert (states.dense() != 0).any(dim=2).squeeze(1).tolist() == [True] + [False] * (num_nodes - 1)


@pytest.mark.parametrize("share", [0.0, 2.0])
@pytest.mark.parametrize("budget", [None, 10])
def test_a_bfloat16_model_stays_close_to_float32(monkeypatch: pytest.MonkeyPatch, share: float, budget: int | None):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    problem = Problem(40, random_triples(5, 60, 36, R), None, [{0: 1.0, 3: 0.5}, {7: 1.0}])
    gnn = gnn_of()
    with torch.no_grad():
        want = gnn(*problem.inputs(), frontier_budget=budget)
        half = deepcopy(gnn).to(torch.bfloat16)
        states = half.propagate(*problem.inputs(), frontier_budget=budget)
        logits = half.logits(states, problem.inputs()[0])
    assert states.rows.dtype == logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), want, rtol=0.05, atol=0.05)
    assert want.std() > 0.05  # a constant would not be close


@pytest.mark.parametrize("share", [0.0, 2.0])
@pytest.mark.parametrize("budget", [None, 30])
def test_results_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, share: float, budget: int | None
):
    # Hubs of several blocks each, so that sums are shared among threads where there are threads.
    triples = [(0, n % R, n) for n in range(1, 700)] * 2 + random_triples(9, 300, 700, R)
    problem, gnn = Problem(700, triples, None, [{0: 1.0, 5: 0.5}, {9: 1.0}]), gnn_of()
    torch_threads, numba_threads = torch.get_num_threads(), numba.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            results.append(values_and_gradients(gnn, problem, share, frontier_budget=budget))
    finally:
        torch.set_num_threads(torch_threads)
        numba.set_num_threads(numba_threads)
    names = ["logits", *(name for name, _ in gnn.named_parameters())]
    for other in results[1:]:
        differ = [n for n, a, b in zip(names, results[0], other, strict=True) if not torch.equal(a, b)]
        assert differ == []


@pytest.mark.parametrize("share", [0.0, 2.0])
@pytest.mark.parametrize("keep", [True, False])
def test_autocast_stays_close_to_float32_with_and_without_kept_relations(
    monkeypatch: pytest.MonkeyPatch, share: float, keep: bool
):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    gnn, (question, relations, seeds, edges) = gnn_of(), hub_problem().inputs()
    with torch.no_grad():
        want = gnn(question, relations, seeds, edges)
        states = gnn.relation_states(relations, keep)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = gnn(question, states if keep else relations, seeds, edges)
    torch.testing.assert_close(mixed.float(), want, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("share", [0.0, 2.0])
def test_autocast_trains_every_parameter(monkeypatch: pytest.MonkeyPatch, share: float):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    gnn = gnn_of(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = gnn(*hub_problem().inputs()).float().square().sum()
    loss.backward()
    assert [name for name, p in gnn.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in gnn.parameters())


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("share", [0.0, 2.0])
def test_inference_mode_gives_the_same_and_leaves_the_graph_fit_for_training(
    monkeypatch: pytest.MonkeyPatch, share: float, keep: bool
):
    monkeypatch.setattr(frontier, "FULL_SHARE", share)
    gnn, (question, relations, seeds, edges) = gnn_of(), hub_problem().inputs()
    edges = edges.masked(torch.arange(edges.num_edges) % 3 != 0)
    states = gnn.relation_states(relations, cache=True) if keep else relations
    with torch.inference_mode():
        inferred = gnn(question, states, seeds, edges)
    with torch.no_grad():
        torch.testing.assert_close(inferred, gnn(question, states, seeds, edges))
    for fused in (True, False):
        for layer in gnn.layers:
            layer.fused = fused
        logits = gnn(question, relations, seeds, edges)  # the orders that inference made serve training
        logits.square().sum().backward()
        torch.testing.assert_close(logits.detach(), inferred, rtol=1e-4, atol=1e-5)


def test_relation_states_of_another_model_are_refused():
    other = gnn_of().relation_states(texts(2 * R), cache=True)
    with pytest.raises(ValueError, match="belong to another model"):
        gnn_of()(texts(1), other, seeds_of({0: 1.0}), with_inverses(TRIPLES, V, R))


def test_swapped_inverses_read_a_graph_as_one_whose_relations_are_swapped() -> None:
    torch.manual_seed(0)
    plain, swapped = (QueryConditionedGNN(6, 8, 3, False, swap_inverses=swap) for swap in (False, True))
    swapped.load_state_dict(plain.state_dict())
    edges = RelationalEdges(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([0, 2, 1, 3]), 3, 4)
    relations, question = torch.randn(4, 6), torch.randn(1, 6)
    seeds = Seeds(torch.tensor([0]), torch.tensor([0]), torch.ones(1))
    with torch.no_grad():
        want = plain(question, relations[[2, 3, 0, 1]], seeds, edges)
        torch.testing.assert_close(swapped(question, relations, seeds, edges), want)
        torch.testing.assert_close(
            swapped(question, swapped.relation_states(relations, cache=True), seeds, edges), want
        )
        assert not torch.allclose(plain(question, relations, seeds, edges), want)
