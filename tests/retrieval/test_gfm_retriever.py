"""GFM-Retriever: every part of a retrieval agrees with the graph, the gates and the settings it came from."""

from __future__ import annotations

import dataclasses
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch

from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.config import LinkingConfig, ModelConfig, RetrievalConfig
from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index import KGIndex
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector
from gfm.retrieval import gfm_retriever
from gfm.retrieval.base import Retriever
from gfm.retrieval.gfm_retriever import Evidence, GFMRetriever
from gfm.types import Document, Extraction, Retrieval
from tests.fakes import HashEncoder

ENCODER, OTHER = HashEncoder(), HashEncoder(name="other")
MODEL = ModelConfig(hidden_dim=8, num_layers=2)
TRIPLES = {
    "Ada Lovelace": [("Ada Lovelace", "wrote about", "Analytical Engine"), ("Lord Byron", "father of", "Ada Lovelace")],
    "Charles Babbage": [
        ("Charles Babbage", "designed", "Analytical Engine"),
        ("Charles Babbage", "designed", "Difference Engine"),
        ("Charles Babbage", "friend of", "Ada Lovelace"),
    ],
    "Lord Byron": [("Lord Byron", "born in", "London"), ("Lord Byron", "wrote", "Don Juan")],
    "London": [("London", "capital of", "England"), ("London", "lies on", "Thames")],
    "Difference Engine": [("Difference Engine", "kept in", "Science Museum"), ("Science Museum", "in", "London")],
    "Thames": [("Thames", "flows through", "Oxford"), ("Thames", "flows through", "London")],
    "Oxford": [("Oxford", "in", "England"), ("Oxford", "has", "Oxford")],
    "東京": [("東京", "capital of", "日本")],
}
DOCUMENTS = [Document(title, f"About {title} 🙂.\nSecond line.") for title in TRIPLES]
QUESTIONS = [
    "Which river flows through the town where Lord Byron was born?",
    "Who designed the analytical engine?",
    "Where is it?",
    "東京はどこの首都ですか",
    "Tell me of Oxford, the Thames and Don Juan!",
]


def checkpoint(selector: bool = True, encoder: HashEncoder = ENCODER, seed: int = 0) -> Checkpoint:
    torch.manual_seed(seed)
    gnn = QueryConditionedGNN(ENCODER.dim, MODEL.hidden_dim, MODEL.num_layers, MODEL.zero_preserving).eval()
    info = CheckpointInfo(ENCODER.dim, MODEL, encoder.name, encoder.fingerprint, "selector" if selector else "pretrain")
    return Checkpoint(gnn, SubgraphSelector(ENCODER.dim, MODEL.hidden_dim).eval() if selector else None, info)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> KGIndex:
    extractions = [
        Extraction(title, tuple(dict.fromkeys(n for h, _, t in triples for n in (h, t))), tuple(triples))
        for title, triples in TRIPLES.items()
    ]
    folder = tmp_path_factory.mktemp("retriever") / "index"
    return KGIndex.build(folder, ENCODER, documents=DOCUMENTS, extractions=extractions)


def made(index: KGIndex, selector: bool = True, **settings: object) -> GFMRetriever:
    return GFMRetriever(checkpoint(selector), index, ENCODER, RetrievalConfig(**settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def retrievals(index: KGIndex) -> list[tuple[GFMRetriever, Retrieval]]:
    """Every question at the threshold of its mean gate, so that both sides are populated."""
    found = []
    for question in QUESTIONS:
        threshold = float(made(index).gather(question).gates.mean())
        retriever = made(index, threshold=threshold)
        found.append((retriever, retriever.retrieve(question)))
    return found


def content(retrieval: Retrieval) -> Retrieval:
    return dataclasses.replace(retrieval, timings={})


def test_it_is_a_retriever(index: KGIndex) -> None:
    assert isinstance(made(index), Retriever)


def test_the_fixture_selects_a_proper_part_and_finds_edges_and_paths(
    index: KGIndex, retrievals: list[tuple[GFMRetriever, Retrieval]]
) -> None:
    for _, found in retrievals:
        assert 0 < len(found.entities) < index.graph.num_entities
    assert any(found.edges for _, found in retrievals)
    assert any(len(path.relations) > 1 for _, found in retrievals for path in found.paths)
    assert any(not forward for _, found in retrievals for path in found.paths for forward in path.forward)


def test_entities_are_those_whose_gate_reaches_the_threshold_best_first(
    index: KGIndex, retrievals: list[tuple[GFMRetriever, Retrieval]]
) -> None:
    for retriever, found in retrievals:
        gates = retriever.gather(found.question).gates
        assert {entity.entity for entity in found.entities} == set(np.flatnonzero(gates >= retriever.threshold))
        values = [entity.gate for entity in found.entities]
        assert values == sorted(values, reverse=True)
        assert values == pytest.approx([gates[entity.entity] for entity in found.entities])
        assert [e.name for e in found.entities] == [index.graph.entity_names[e.entity] for e in found.entities]


def test_edges_are_exactly_the_triples_between_selected_entities(
    index: KGIndex, retrievals: list[tuple[GFMRetriever, Retrieval]]
) -> None:
    for _, found in retrievals:
        names = {entity.name for entity in found.entities}
        expected = {triple for triple in index.graph.triples() if triple[0] in names and triple[2] in names}
        edges = [(edge.head, edge.relation, edge.tail) for edge in found.edges]
        assert set(edges) == expected
        assert len(edges) == len(expected)


def test_paths_are_chains_of_real_triples_from_a_seed_through_the_selected_set(
    index: KGIndex, retrievals: list[tuple[GFMRetriever, Retrieval]]
) -> None:
    triples = set(index.graph.triples())
    for retriever, found in retrievals:
        selected, seeds = {e.name for e in found.entities}, {seed.name for seed in found.seeds}
        assert len(found.paths) <= retriever.config.max_paths
        for path in found.paths:
            assert path.entities[0] in seeds
            assert set(path.entities[1:]) <= selected
            assert len(set(path.entities)) == len(path.entities) == len(path.relations) + 1
            assert 1 <= len(path.relations) <= retriever.config.max_hops
            assert path.entities == tuple(index.graph.entity_names[e] for e in path.entity_ids)
            hops = itertools.pairwise(path.entities)
            for (source, target), relation, forward in zip(hops, path.relations, path.forward, strict=True):
                triple = (source, relation, target) if forward else (target, relation, source)
                assert triple in triples


def test_a_path_scores_its_gates_and_the_similarity_of_its_relations(
    index: KGIndex, retrievals: list[tuple[GFMRetriever, Retrieval]]
) -> None:
    for retriever, found in retrievals:
        gates = retriever.gather(found.question).gates
        q = ENCODER.encode([found.question])[0]
        similarity = {r: float(ENCODER.encode([r])[0] @ q) for r in index.graph.relation_names}
        scores = [path.score for path in found.paths]
        assert scores == sorted(scores, reverse=True)
        for path in found.paths:
            expected = sum(gates[e] for e in path.entity_ids) + sum(similarity[r] for r in path.relations)
            assert path.score == pytest.approx(expected, abs=1e-5)


def test_documents_are_distinct_and_sorted_by_score(retrievals: list[tuple[GFMRetriever, Retrieval]]) -> None:
    texts = {document.title: document.text for document in DOCUMENTS}
    for _, found in retrievals:
        scores = [document.score for document in found.documents]
        titles = [document.title for document in found.documents]
        assert scores == sorted(scores, reverse=True)
        assert len(set(titles)) == len(titles) == 5
        assert [document.text for document in found.documents] == [texts[title] for title in titles]


@pytest.mark.parametrize("k", [1, 3, 8, 100])
def test_top_k_bounds_the_documents_and_nothing_else(index: KGIndex, k: int) -> None:
    retriever = made(index)
    everything, found = retriever.retrieve(QUESTIONS[0], 10**9), retriever.retrieve(QUESTIONS[0], k)
    assert len(everything.documents) == len(DOCUMENTS)
    assert found.documents == everything.documents[:k]
    assert content(dataclasses.replace(found, documents=everything.documents)) == content(everything)


@pytest.mark.parametrize("k", [0, -1])
def test_fewer_than_one_document_is_refused(index: KGIndex, k: int) -> None:
    with pytest.raises(InputError, match=f"top_k is {k}; .*at least 1"):
        made(index).retrieve(QUESTIONS[0], k)


@pytest.mark.parametrize("question", ["", "  ", "\n\t"])
def test_a_blank_question_is_refused(index: KGIndex, question: str) -> None:
    with pytest.raises(InputError, match=r"the question is .*; give a question"):
        made(index).retrieve(question)


def test_a_second_retriever_finds_the_same(index: KGIndex) -> None:
    first, second = made(index, threshold=0.4), made(index, threshold=0.4)
    for question in QUESTIONS:
        assert (
            content(first.retrieve(question)) == content(first.retrieve(question)) == content(second.retrieve(question))
        )


def test_questions_asked_together_have_the_gates_they_have_alone(index: KGIndex) -> None:
    retriever = made(index)
    together = retriever.gates(retriever.link(QUESTIONS))
    assert together.shape == (len(QUESTIONS), index.graph.num_entities)
    for row, question in zip(together, QUESTIONS, strict=True):
        assert torch.allclose(row, torch.from_numpy(retriever.gather(question).gates), atol=1e-6)


def test_a_retrieval_cannot_be_changed(retrievals: list[tuple[GFMRetriever, Retrieval]]) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        retrievals[0][1].question = "another"  # type: ignore[misc]


def test_a_retrieval_survives_json(retrievals: list[tuple[GFMRetriever, Retrieval]]) -> None:
    for _, found in retrievals:
        data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert data["question"] == found.question
        assert [entity["name"] for entity in data["entities"]] == [entity.name for entity in found.entities]
        assert [document["title"] for document in data["documents"]] == [d.title for d in found.documents]
        assert [tuple(path["relations"]) for path in data["paths"]] == [path.relations for path in found.paths]


def test_the_seconds_of_the_steps_add_up_to_the_total(retrievals: list[tuple[GFMRetriever, Retrieval]]) -> None:
    for _, found in retrievals:
        steps = {step: seconds for step, seconds in found.timings.items() if step != "total"}
        assert len(steps) > 1
        assert all(seconds >= 0 for seconds in steps.values())
        assert sum(steps.values()) == pytest.approx(found.timings["total"], abs=1e-6)


def test_threshold_zero_selects_the_whole_graph(index: KGIndex) -> None:
    found = made(index, threshold=0.0).retrieve(QUESTIONS[0])
    assert {entity.entity for entity in found.entities} == set(range(index.graph.num_entities))
    assert {(edge.head, edge.relation, edge.tail) for edge in found.edges} == set(index.graph.triples())


def test_an_unreachable_threshold_selects_nothing_and_says_so(index: KGIndex) -> None:
    found = made(index, threshold=1.0).retrieve(QUESTIONS[0])
    assert (found.entities, found.edges, found.paths) == ((), (), ())
    assert len(found.documents) == 5
    assert any("threshold 1" in note for note in found.notes)


def test_a_higher_threshold_selects_a_subset(index: KGIndex) -> None:
    gates = np.sort(made(index).gather(QUESTIONS[0]).gates)
    selected = [
        {entity.entity for entity in made(index, threshold=float(t)).retrieve(QUESTIONS[0]).entities} for t in gates
    ]
    assert all(larger > smaller for larger, smaller in itertools.pairwise(selected) if larger != smaller)
    assert len(selected[0]) == len(gates)
    assert len(selected[-1]) < len(gates)


def test_the_threshold_is_the_checkpoints_own_unless_configured(index: KGIndex) -> None:
    model = checkpoint()
    model = dataclasses.replace(model, info=dataclasses.replace(model.info, threshold=0.123))
    assert GFMRetriever(model, index, ENCODER).threshold == 0.123
    assert GFMRetriever(model, index, ENCODER, RetrievalConfig(threshold=0.0)).threshold == 0.0


@pytest.mark.parametrize("question", QUESTIONS)
def test_dense_weight_one_orders_documents_by_their_similarity(index: KGIndex, question: str) -> None:
    texts = [f"{document.title} {document.text}" for document in DOCUMENTS]
    similarity = ENCODER.encode(texts) @ ENCODER.encode([question])[0]
    expected = [DOCUMENTS[i].title for i in torch.argsort(similarity, descending=True).tolist()]
    assert [d.title for d in made(index, dense_weight=1.0).retrieve(question, 8).documents] == expected


def test_dense_weight_zero_orders_documents_by_the_graph(index: KGIndex) -> None:
    retriever = made(index, dense_weight=0.0)
    scores = retriever.gather(QUESTIONS[0]).graph_scores
    found = retriever.retrieve(QUESTIONS[0], 8)
    assert [d.title for d in found.documents] == [index.titles[i] for i in np.argsort(-scores, kind="stable")]
    assert [d.score for d in found.documents] == pytest.approx(sorted(scores, reverse=True))


def test_the_graph_scores_only_documents_that_mention_an_entity_it_ranks(index: KGIndex) -> None:
    evidence = made(index, rank_entities=1, threshold=1.0).gather(QUESTIONS[0])
    best = int(np.argmax(evidence.gates))
    mentioned = set(index.mentions[best].indices.tolist())
    assert set(np.flatnonzero(evidence.graph_scores).tolist()) == mentioned
    expected = evidence.gates[best] / index.entity_document_counts[best]
    assert evidence.graph_scores[sorted(mentioned)] == pytest.approx(expected)


def test_a_checkpoint_without_a_selector_uses_the_gnns_probabilities_and_says_so(index: KGIndex) -> None:
    retriever = made(index, selector=False)
    linked = retriever.link(QUESTIONS[:2])
    with torch.no_grad():
        logits = retriever.checkpoint.gnn(linked.embedding, index.relation_embeddings, linked.seeds, retriever.edges)
    assert torch.allclose(retriever.gates(linked), logits.sigmoid())
    assert any("no selector" in note for note in retriever.retrieve(QUESTIONS[0]).notes)
    assert not any("no selector" in note for note in made(index).retrieve(QUESTIONS[0]).notes)


def test_a_question_that_names_no_entity_is_answered_from_similar_seeds_and_says_so(index: KGIndex) -> None:
    retriever = made(index, linking=LinkingConfig(similar=2))
    unnamed, named = retriever.retrieve("Where is it?"), retriever.retrieve(QUESTIONS[1])
    assert [seed.reason for seed in unnamed.seeds] == ["similar", "similar"]
    assert any("similar" in note for note in unnamed.notes)
    assert [(seed.name, seed.reason) for seed in named.seeds] == [("Analytical Engine", "normalised")]
    assert not any("similar" in note for note in named.notes)


def test_seeds_weigh_by_their_documents_as_configured(index: KGIndex) -> None:
    seeds = {w: made(index, linking=LinkingConfig(seed_weighting=w)).link(QUESTIONS).seeds for w in ("idf", "one")}
    counts = torch.from_numpy(index.entity_document_counts)[seeds["idf"].entity]
    assert int(counts.max()) > 1
    assert torch.allclose(seeds["idf"].weight * counts, torch.ones(len(counts)))
    assert bool((seeds["one"].weight == 1).all())


def test_a_checkpoint_of_another_encoder_is_refused_with_both_names(index: KGIndex) -> None:
    with pytest.raises(InputError, match=r"checkpoint was trained with encoder 'other'.*'hash'.*is in use"):
        GFMRetriever(checkpoint(encoder=OTHER), index, ENCODER)


def test_an_index_of_another_encoder_is_refused_with_both_names(index: KGIndex) -> None:
    with pytest.raises(InputError, match=r"built with encoder 'hash'.*'other'.*was given"):
        GFMRetriever(checkpoint(encoder=OTHER), index, OTHER)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("dense_weight", -0.1),
        ("dense_weight", 1.5),
        ("dense_weight", float("nan")),
        ("threshold", -0.5),
        ("threshold", 2.0),
        ("threshold", float("nan")),
        ("rank_entities", 0),
        ("max_hops", 0),
        ("beam", 0),
        ("max_paths", 0),
    ],
)
def test_a_setting_out_of_range_is_refused_with_its_name_and_value(index: KGIndex, setting: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{setting}' is {value}"):
        made(index, **{setting: value}).retrieve(QUESTIONS[0])


def test_an_unknown_seed_weighting_is_refused(index: KGIndex) -> None:
    with pytest.raises(InputError, match="seed_weighting' is 'log'"):
        made(index, linking=LinkingConfig(seed_weighting="log")).retrieve(QUESTIONS[0])


def test_an_index_without_documents_gives_a_subgraph_and_no_documents(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_triples(triple for triples in TRIPLES.values() for triple in triples)
    retriever = made(KGIndex.build(tmp_path / "index", ENCODER, graph=graph), threshold=0.0)
    found = retriever.retrieve(QUESTIONS[0])
    assert found.documents == ()
    assert len(found.entities) == graph.num_entities
    assert found.paths
    assert QUESTIONS[0] in found.prompt(2000).user


def test_a_prompt_stays_within_its_budget_and_takes_the_best_first(
    retrievals: list[tuple[GFMRetriever, Retrieval]],
) -> None:
    _, found = next(pair for pair in retrievals if pair[1].paths)
    least = next(budget for budget in range(1, 2000) if _fits(found, budget))
    kept = []
    for budget in (least, least + 40, least + 200, 10_000):
        prompt = found.prompt(budget)
        assert prompt.tokens <= budget
        assert prompt.documents == tuple(document.title for document in found.documents[: len(prompt.documents)])
        kept.append((len(prompt.documents), prompt.num_paths))
    assert kept[0] == (0, 0)
    assert kept[-1] == (len(found.documents), len(found.paths))
    assert kept == sorted(kept)


def _fits(found: Retrieval, budget: int) -> bool:
    try:
        found.prompt(budget)
    except InputError:
        return False
    return True


def test_folders_open_to_the_same_retriever(index: KGIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint().save(tmp_path / "checkpoint")
    expected = made(index).retrieve(QUESTIONS[0])
    opened = GFMRetriever.from_pretrained(str(folder), index.path, ENCODER, RetrievalConfig())
    assert content(opened.retrieve(QUESTIONS[0])) == content(expected)
    # The index names its encoder; without an argument that one is loaded.
    monkeypatch.setattr(gfm_retriever, "TextEncoder", lambda name: HashEncoder(name=name))
    opened = GFMRetriever.from_pretrained(folder, index)
    assert content(opened.retrieve(QUESTIONS[0])) == content(expected)


def test_folders_that_are_not_there_are_refused(index: KGIndex, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"checkpoint .*nowhere.* is no folder"):
        GFMRetriever.from_pretrained(tmp_path / "nowhere", index, ENCODER)
    with pytest.raises(InputError, match=r"nowhere.* is not an index"):
        GFMRetriever.from_pretrained(checkpoint(), tmp_path / "nowhere", ENCODER)


@pytest.mark.parametrize(
    ("budget", "count"), [(None, None), (1e-9, 1), (0.5, "half"), (1, 1), (1.0, 1), (5, 5), (10_000, 10_000)]
)
def test_the_budget_is_a_share_below_one_and_a_count_from_one_on(
    index: KGIndex, budget: float | None, count: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = round(0.5 * index.graph.num_entities) if count == "half" else count
    retriever, seen = made(index, frontier_budget=budget), []
    assert retriever.frontier_budget == count
    propagate = QueryConditionedGNN.propagate

    def recording(*arguments: object) -> object:
        seen.append(arguments[-1])
        return propagate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(QueryConditionedGNN, "propagate", recording)
    retriever.gather(QUESTIONS[0])
    assert seen == [count]


def same_evidence(a: Evidence, b: Evidence, tolerance: float = 1e-5) -> None:
    """Gates and scores within rounding, everything chosen by them exactly."""
    assert a.gates == pytest.approx(b.gates, abs=tolerance)
    assert a.graph_scores == pytest.approx(b.graph_scores, abs=10 * tolerance)
    assert a.seeds == b.seeds
    assert a.selected.tolist() == b.selected.tolist()
    assert [(path.entities, path.relations) for path in a.paths] == [(p.entities, p.relations) for p in b.paths]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("selector", [True, False])
def test_a_budget_of_all_entities_gives_the_evidence_of_none(index: KGIndex, question: str, selector: bool) -> None:
    threshold = float(made(index, selector).gather(question).gates.mean())
    exact = made(index, selector, threshold=threshold).gather(question)
    everything = made(index, selector, threshold=threshold, frontier_budget=index.graph.num_entities)
    same_evidence(everything.gather(question), exact)
    assert 0 < len(exact.selected) < index.graph.num_entities


def test_entities_beyond_the_budget_share_one_gate(index: KGIndex) -> None:
    for budget in (1, 3):
        gates = made(index, frontier_budget=budget).gather(QUESTIONS[0]).gates
        _, counts = np.unique(gates, return_counts=True)
        assert counts.max() >= len(gates) - budget
    exact = made(index).gather(QUESTIONS[0]).gates
    assert len(np.unique(exact)) > 4


def decided() -> Checkpoint:
    """A checkpoint whose gates spread over the unit interval, as those of a trained one do."""
    model = checkpoint()
    assert model.selector is not None
    last = model.selector.gate_mlp[2]
    with torch.no_grad():
        last.weight.mul_(40)
        last.bias.sub_(0.18).mul_(40)
    return model


def test_bfloat16_gives_nearly_the_gates_of_float32_and_leaves_the_checkpoint_as_it_was(index: KGIndex) -> None:
    model = decided()
    before = {name: tensor.clone() for name, tensor in model.gnn.state_dict().items()}
    half = GFMRetriever(model, index, ENCODER, RetrievalConfig(dtype="bfloat16"))
    full = GFMRetriever(model, index, ENCODER)
    for question in QUESTIONS:
        gates, want = half.gather(question).gates, full.gather(question).gates
        assert gates.dtype == np.float32
        assert gates == pytest.approx(want, abs=0.04)
        assert not np.array_equal(gates, want)
        assert np.ptp(want) > 0.4
    assert half.checkpoint is model and model.selector is not None
    assert {p.dtype for part in (model.gnn, model.selector) for p in part.parameters()} == {torch.float32}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.gnn.state_dict().items())


def test_a_relation_is_projected_for_the_first_question_that_meets_it_alone(index: KGIndex) -> None:
    retriever = made(index)
    rows: list[list[int]] = [[] for _ in retriever.checkpoint.gnn.layers]
    for number, layer in enumerate(retriever.checkpoint.gnn.layers):
        layer.relation_projection.register_forward_hook(
            lambda _, inputs, __, number=number: rows[number].append(len(inputs[0]))
        )
    first = retriever.gather(QUESTIONS[1])
    assert all(map(sum, rows))
    asked = [list(counts) for counts in rows]
    same_evidence(retriever.gather(QUESTIONS[1]), first, 0)
    assert rows == asked
    for question in QUESTIONS * 2:
        retriever.gather(question)
    assert all(sum(counts) <= index.graph.num_edge_types for counts in rows)


def test_the_order_of_the_questions_does_not_matter(index: KGIndex) -> None:
    forward, backward = made(index), made(index)
    there = [forward.gather(question) for question in QUESTIONS]
    back = [backward.gather(question) for question in reversed(QUESTIONS)]
    for a, b in zip(there, reversed(back), strict=True):
        same_evidence(a, b)


@pytest.mark.parametrize("settings", [{}, {"frontier_budget": 6}, {"dtype": "bfloat16"}], ids=str)
def test_questions_asked_at_once_have_the_evidence_they_have_one_after_the_other(
    index: KGIndex, settings: dict[str, object]
) -> None:
    def fresh() -> GFMRetriever:
        return GFMRetriever(decided(), index, ENCODER, RetrievalConfig(**settings))  # type: ignore[arg-type]

    tolerance = 0.04 if settings.get("dtype") else 1e-4
    want = [fresh().gather(question).gates for question in QUESTIONS]
    assert all(np.abs(a - b).max() > 0.3 for a, b in itertools.combinations(want, 2))
    for _ in range(5):  # nothing is kept yet: both threads fill the same tables
        retriever, start = fresh(), Barrier(2)

        def ask(questions: list[str], retriever: GFMRetriever = retriever, start: Barrier = start) -> list[np.ndarray]:
            start.wait(timeout=30)
            return [retriever.gather(question).gates for question in questions]

        with ThreadPoolExecutor(2) as pool:
            there, back = pool.submit(ask, QUESTIONS), pool.submit(ask, QUESTIONS[::-1])
        for got in (there.result(), back.result()[::-1]):
            for gates, expected in zip(got, want, strict=True):
                assert gates == pytest.approx(expected, abs=tolerance)


def test_a_caller_in_inference_mode_does_not_spoil_the_questions_after_it(index: KGIndex) -> None:
    retriever = made(index)
    with torch.inference_mode():
        retriever.gather(QUESTIONS[3])
    for question in QUESTIONS:
        same_evidence(retriever.gather(question), made(index).gather(question))
