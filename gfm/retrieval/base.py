"""What every retriever offers, whatever system is behind it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gfm.errors import InputError
from gfm.types import Retrieval


@runtime_checkable
class Retriever(Protocol):
    """Turns a question into evidence."""

    def retrieve(self, question: str, top_k: int = 5) -> Retrieval:
        """Finds the evidence for one question.

        Args:
            question: plain text.
            top_k: documents to return at most.

        Raises:
            InputError: the question is blank, or `top_k` is below 1.
        """
        ...


def check_question(question: str, top_k: int) -> None:
    """Refuses a question or a number of documents that no retriever can serve.

    Raises:
        InputError: the question is blank, or `top_k` is below 1.
    """
    if not question.strip():
        raise InputError(f"the question is {question!r}; give a question with at least one visible character")
    if top_k < 1:
        raise InputError(f"top_k is {top_k}; give a whole number of at least 1")
