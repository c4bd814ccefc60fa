"""Retrievers that know no graph: the yardsticks, and the dense score that fusion mixes in."""

from __future__ import annotations

from collections.abc import Sequence

import bm25s
import numpy as np
import Stemmer
from torch import Tensor

from gfm.errors import InputError


class BM25Retriever:
    """Scores texts by the words that they share with a question (Robertson's BM25, Lucene's variant).

    English stopwords go, English stems stay. The usual text of a document is its title, a space, its body.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._stemmer = Stemmer.Stemmer("english")
        self._size = len(texts)
        words = self._words(texts)
        # bm25s cannot build an index without a single word.
        self._index = bm25s.BM25() if any(words) else None
        if self._index is not None:
            self._index.index(words, show_progress=False)

    def scores(self, question: str) -> np.ndarray:
        """BM25 score of every text, `(N,)` float64, at least 0; 0 where no word is shared."""
        words = self._words([question])[0]
        if self._index is None or not words:
            return np.zeros(self._size)
        return np.asarray(self._index.get_scores(words), dtype=np.float64)

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        words: list[list[str]] = bm25s.tokenize(
            list(texts), stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False
        )
        return words


class DenseRetriever:
    """Scores texts by the cosine between their embedding and the question's.

    Embeddings are kept as given (a memory map stays one); only their norms are computed.

    Args:
        embeddings: `(N, d)`.

    Raises:
        InputError: not two-dimensional.
    """

    def __init__(self, embeddings: np.ndarray | Tensor) -> None:
        self._embeddings = _array(embeddings)
        if self._embeddings.ndim != 2:
            raise InputError(f"embeddings have shape {self._embeddings.shape}; give (N, d)")
        self._norms = np.sqrt(np.einsum("nd,nd->n", self._embeddings, self._embeddings))

    def scores(self, question_embedding: np.ndarray | Tensor) -> np.ndarray:
        """Cosine of every text with the question, `(N,)` float64 in [-1, 1]; 0 for a zero vector.

        Raises:
            InputError: the question's dimension is not that of the texts.
        """
        question = _array(question_embedding)
        if question.shape != self._embeddings.shape[1:]:
            raise InputError(
                f"the question's embedding has shape {question.shape}, the texts have dimension "
                f"{self._embeddings.shape[1]}; embed both with the same encoder"
            )
        lengths = self._norms * np.linalg.norm(question)
        dots = (self._embeddings @ question).astype(np.float64)
        return np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0).clip(-1.0, 1.0)


def _array(values: np.ndarray | Tensor) -> np.ndarray:
    return values.detach().cpu().float().numpy() if isinstance(values, Tensor) else np.asarray(values)
