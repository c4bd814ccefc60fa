"""Baselines: BM25 reaches its known recall, cosine is a cosine, and nothing at all is no crash."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gfm.errors import InputError
from gfm.evaluation.retrieval import recall_at_k
from gfm.retrieval.base import Retriever, check_question
from gfm.retrieval.baselines import BM25Retriever, DenseRetriever
from gfm.retrieval.ranker import top_k
from gfm.types import Retrieval


@pytest.mark.parametrize(
    ("name", "split", "at_2", "at_5"), [("musique100", "test", 0.372, 0.508), ("hotpot100", "train", 0.595, 0.775)]
)
def test_bm25_reaches_its_published_document_recall(shared_data: Path, name, split, at_2, at_5):
    raw = shared_data / "qa" / name / "raw"
    documents = json.loads((raw / "documents.json").read_text(encoding="utf-8"))
    questions = json.loads((raw / f"{split}.json").read_text(encoding="utf-8"))
    titles = list(documents)
    retriever = BM25Retriever([f"{title} {text}" for title, text in documents.items()])
    for k, expected in ((2, at_2), (5, at_5)):
        recalls = [
            recall_at_k([titles[i] for i in top_k(retriever.scores(q["question"]), k)], q["supporting_documents"], k)
            for q in questions
        ]
        assert np.mean(recalls) == pytest.approx(expected, abs=0.003)


def test_bm25_matches_stems_and_ignores_stopwords():
    scores = BM25Retriever(["The painter painted.", "A river of the north", "North"]).scores("Who is the painting?")
    assert scores[0] > 0
    assert scores[1:].tolist() == [0.0, 0.0]


def test_bm25_prefers_rare_words_and_short_texts():
    texts = ["river delta", "river", "river stone bridge water", "river"]
    scores = BM25Retriever(texts).scores("river delta")
    assert top_k(scores, 4).tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize("texts", [[], [""], ["the of and", "a"], ["", "river"]])
@pytest.mark.parametrize("question", ["", "the of and", "zebra", "?!"])
def test_bm25_scores_nothing_as_zero(texts, question):
    assert BM25Retriever(texts).scores(question).tolist() == [0.0] * len(texts)


def test_dense_scores_are_cosines():
    embeddings = np.array([[3.0, 4.0], [-2.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    expected = [0.6, -1.0, 0.0]
    np.testing.assert_allclose(DenseRetriever(embeddings).scores(np.array([5.0, 0.0])), expected, atol=1e-6)
    half = DenseRetriever(torch.from_numpy(embeddings).bfloat16())
    np.testing.assert_allclose(half.scores(torch.tensor([5.0, 0.0])), expected, atol=1e-6)
    assert DenseRetriever(embeddings).scores(np.zeros(2)).tolist() == [0.0, 0.0, 0.0]
    assert DenseRetriever(np.zeros((0, 2))).scores(np.ones(2)).shape == (0,)


def test_embeddings_of_another_encoder_are_refused():
    with pytest.raises(InputError, match=r"shape \(3,\), the texts have dimension 2"):
        DenseRetriever(np.zeros((1, 2))).scores(np.zeros(3))
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        DenseRetriever(np.zeros(2))


@pytest.mark.parametrize(
    ("question", "top_k", "message"),
    [("", 5, "question is ''"), (" \n", 5, "question is"), ("Who?", 0, "top_k is 0"), ("Who?", -1, "top_k is -1")],
)
def test_a_question_that_cannot_be_served_is_refused(question, top_k, message):
    with pytest.raises(InputError, match=message):
        check_question(question, top_k)


def test_a_proper_question_passes_and_any_class_with_retrieve_is_a_retriever():
    class Fixed:
        def retrieve(self, question: str, top_k: int = 5) -> Retrieval:
            check_question(question, top_k)
            return Retrieval(question, (), (), (), (), ())

    assert isinstance(Fixed(), Retriever)
    assert Fixed().retrieve("谁?", 1).question == "谁?"
    assert not isinstance(BM25Retriever([]), Retriever)
