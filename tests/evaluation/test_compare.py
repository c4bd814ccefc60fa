"""The comparison: metrics of fixed rankings by hand, the form of the result, and the methods on a real index."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gfm.checkpoint import Checkpoint, CheckpointInfo
from gfm.config import ModelConfig, RetrievalConfig
from gfm.errors import InputError
from gfm.evaluation.bootstrap import Estimate
from gfm.evaluation.compare import RANKED, Ranking, as_json, bm25_method, compare, dense_method, gfm_method
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index import KGIndex
from gfm.nn.gnn import QueryConditionedGNN
from gfm.retrieval.gfm_retriever import GFMRetriever
from gfm.types import Document, Extraction, Question
from tests.fakes import HashEncoder

# Documents 0..5 are A..F; entities 0..5 are a..f, and 6 is the answer "Gold".
INDEX: Any = SimpleNamespace(
    titles=["A", "B", "C", "D", "E", "F"],
    graph=KnowledgeGraph.from_triples([], entities=["a", "b", "c", "d", "e", "f", "Gold"]),
)


def ask(*titles: str, number: int = 0, answer: str = "") -> Question:
    return Question(f"q{number}", f"question {number}", answer, (), titles)


def fixed(documents: list[int], entities: list[int], selected: list[int] | None = None) -> Any:
    return lambda question: {"fixed": Ranking(documents, entities, selected)}


def means(index: Any, questions: list[Question], method: Any) -> dict[str, float]:
    return {metric: estimate.mean for metric, estimate in compare(index, questions, [method])["fixed"].items()}


def test_metrics_of_one_question_are_those_counted_by_hand() -> None:
    # Gold documents B, C, F at positions 2, 5 and 6; gold entities b, c, f, Gold at 1, 3, 7 and never.
    method = fixed([0, 1, 3, 4, 2, 5], [1, 0, 2, 3, 4, 0, 5], selected=[1, 2, 0])
    found = means(INDEX, [ask("B", "C", "F", answer="gold")], method)
    assert found == pytest.approx(
        {
            "document_recall@2": 1 / 3,
            "document_recall@5": 2 / 3,
            "document_mrr": 1 / 2,
            "entity_recall@2": 1 / 4,
            "entity_recall@5": 2 / 4,
            "entity_mrr": 1.0,
            "selected_entities": 3.0,
            "selected_entity_recall": 2 / 4,
        }
    )


def test_metrics_are_means_over_questions() -> None:
    questions = [ask("A", number=0), ask("C", number=1), ask("F", number=2), ask("B", "F", number=3)]
    found = compare(INDEX, questions, [fixed([0, 1, 2, 3, 4, 5], [0])])["fixed"]
    assert found["document_recall@2"].mean == pytest.approx((1 + 0 + 0 + 0.5) / 4)
    assert found["document_recall@5"].mean == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert found["document_mrr"].mean == pytest.approx((1 + 1 / 3 + 1 / 6 + 1 / 2) / 4)
    for estimate in found.values():
        assert estimate.low <= estimate.mean <= estimate.high
        assert estimate.count == 4


def test_a_supporting_document_that_the_index_lacks_is_a_miss() -> None:
    found = means(INDEX, [ask("A", "Nowhere")], fixed([0, 1, 2, 3, 4, 5], [0]))
    assert found["document_recall@2"] == found["document_recall@5"] == 0.5
    assert means(INDEX, [ask("A"), ask("Nowhere", number=1)], fixed([0], []))["document_mrr"] == 0.5


def test_a_question_without_gold_says_nothing_and_is_left_out() -> None:
    table = compare(INDEX, [ask("A"), ask(number=1)], [fixed([0], [0], [0])])["fixed"]
    assert (table["document_recall@2"].mean, table["document_recall@2"].count) == (1.0, 1)
    assert table["selected_entities"].count == 2


def test_an_empty_selection_has_size_and_recall_zero() -> None:
    found = means(INDEX, [ask("A")], fixed([0], [0], []))
    assert (found["selected_entities"], found["selected_entity_recall"]) == (0.0, 0.0)


def test_a_method_without_a_selected_set_has_no_such_metric() -> None:
    assert not [metric for metric in means(INDEX, [ask("A")], fixed([0], [0])) if metric.startswith("selected")]


def test_documents_and_entities_that_were_not_ranked_count_as_not_found() -> None:
    found = means(INDEX, [ask("A", answer="Gold")], fixed([], []))
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("questions", [[], [ask()], [ask("Nowhere")], [ask(answer="Gold")]])
def test_questions_without_a_supporting_document_in_the_index_are_refused(questions: list[Question]) -> None:
    with pytest.raises(InputError, match="no supporting document of any question is in the index"):
        compare(INDEX, questions, [fixed([0], [0])])


def test_every_method_sees_every_question_in_order() -> None:
    asked: dict[str, list[str]] = {"one": [], "two": []}

    def noting(name: str) -> Any:
        return lambda question: asked[name].append(question) or {name: Ranking([0], [0])}

    questions = [ask("A", number=i) for i in range(3)]
    table = compare(INDEX, questions, (noting(name) for name in asked), progress=lambda items: iter(items))
    assert list(table) == ["one", "two"]
    assert asked == {name: [question.question for question in questions] for name in asked}


def test_the_json_form_holds_means_under_their_names_and_intervals_beside_them() -> None:
    table = {"gfm": {"document_mrr": Estimate(0.5, 0.25, 0.75, 4), "selected_entities": Estimate(7.0, 5.0, 9.0, 4)}}
    expected = {
        "questions": 4,
        "methods": {
            "gfm": {
                "document_mrr": 0.5,
                "selected_entities": 7.0,
                "intervals": {"document_mrr": [0.25, 0.75], "selected_entities": [5.0, 9.0]},
            }
        },
    }
    assert json.loads(json.dumps(as_json(4, table))) == expected


ENCODER = HashEncoder()
FACTS = [("Rome", "capital of", "Italy"), ("Paris", "capital of", "France"), ("Oslo", "capital of", "Norway")]
DOCUMENTS = [Document(head, f"{head} has been the seat of {tail}'s government.") for head, _, tail in FACTS]
ASKED = [Question(f"q{i}", f"Which government sits in {h}?", t, (), (h,)) for i, (h, _, t) in enumerate(FACTS)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> KGIndex:
    extractions = [Extraction(head, (head, tail), ((head, relation, tail),)) for head, relation, tail in FACTS]
    folder = tmp_path_factory.mktemp("compare") / "index"
    return KGIndex.build(folder, ENCODER, documents=DOCUMENTS, extractions=extractions)


@pytest.fixture(scope="module")
def retriever(index: KGIndex) -> GFMRetriever:
    torch.manual_seed(0)
    model = ModelConfig(hidden_dim=4, num_layers=2)
    info = CheckpointInfo(ENCODER.dim, model, ENCODER.name, ENCODER.fingerprint, "pretrain")
    checkpoint = Checkpoint(QueryConditionedGNN(ENCODER.dim, 4, 2).eval(), None, info)
    return GFMRetriever(checkpoint, index, ENCODER, RetrievalConfig(dense_weight=1.0))


def test_bm25_finds_the_document_and_the_entity_that_share_a_rare_word(index: KGIndex) -> None:
    for row, question in enumerate(ASKED):
        ranking = bm25_method(index)(question.question)["bm25"]
        assert index.titles[ranking.documents[0]] == FACTS[row][0]
        assert index.graph.entity_names[ranking.entities[0]] == FACTS[row][0]
        assert ranking.selected is None


def test_dense_ranks_by_cosine_with_the_question(index: KGIndex) -> None:
    question = ASKED[0].question
    q = ENCODER.encode([question])[0]
    ranking = dense_method(index, ENCODER)(question)["dense"]
    assert ranking.documents == torch.argsort(index.document_embeddings @ q, descending=True).tolist()
    assert ranking.entities == torch.argsort(index.entity_embeddings @ q, descending=True).tolist()


def test_dense_refuses_an_encoder_that_did_not_build_the_index(index: KGIndex) -> None:
    with pytest.raises(InputError, match=r"'hash'.*'other'"):
        dense_method(index, HashEncoder(name="other"))


def test_gfm_ranks_as_configured_and_by_the_graph_alone(index: KGIndex, retriever: GFMRetriever) -> None:
    question = ASKED[0].question
    evidence, found = retriever.gather(question), gfm_method(retriever)(question)
    assert list(found) == ["gfm", "gfm-graph"]
    assert found["gfm"].documents == np.argsort(-evidence.dense_scores, kind="stable").tolist()
    assert found["gfm-graph"].documents == np.argsort(-evidence.graph_scores, kind="stable").tolist()
    for ranking in found.values():
        assert ranking.entities == np.argsort(-evidence.gates, kind="stable").tolist()
        assert ranking.selected == evidence.selected.tolist()


def test_gfm_ranks_what_it_retrieves(index: KGIndex, retriever: GFMRetriever) -> None:
    question = ASKED[1].question
    titles = [document.title for document in retriever.retrieve(question, RANKED).documents]
    assert [index.titles[row] for row in gfm_method(retriever)(question)["gfm"].documents] == titles


def test_all_methods_share_one_table(index: KGIndex, retriever: GFMRetriever) -> None:
    methods = [gfm_method(retriever), bm25_method(index), dense_method(index, ENCODER)]
    data = as_json(len(ASKED), compare(index, ASKED, methods))
    assert data["questions"] == 3
    assert list(data["methods"]) == ["gfm", "gfm-graph", "bm25", "dense"]
    assert data["methods"]["bm25"]["document_recall@2"] == 1.0
    shared = {f"{kind}_recall@{k}" for kind in ("document", "entity") for k in (2, 5)} | {"document_mrr", "entity_mrr"}
    chosen = {"selected_entities", "selected_entity_recall"}
    for name, values in data["methods"].items():
        assert values.keys() == shared | {"intervals"} | (chosen if name.startswith("gfm") else set())
        assert values["intervals"].keys() == values.keys() - {"intervals"}
        assert all(0 <= values[metric] <= 1 for metric in values.keys() - {"intervals", "selected_entities"})
    assert data["methods"]["gfm"]["document_mrr"] == data["methods"]["dense"]["document_mrr"]
