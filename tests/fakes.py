"""Stand-ins for tests: deterministic, instant, no model."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from gfm.kg.extraction.base import Failure, content_key
from gfm.types import Document, Extraction


class HashEncoder:
    """Embeds a text as a unit vector drawn from a generator that its hash seeds."""

    def __init__(self, dim: int = 16, name: str = "hash") -> None:
        self.name = name
        self.dim = dim
        self.dtype = "float32"
        self.fingerprint = hashlib.sha256(f"{name}/{dim}".encode()).hexdigest()[:16]

    def prepare(self) -> None:
        pass

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        vectors = torch.empty(len(texts), self.dim)
        for row, text in enumerate(texts):
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
            vectors[row] = torch.randn(self.dim, generator=generator)
        return torch.nn.functional.normalize(vectors, dim=1)


class WordExtractor:
    """Capitalised words are entities, neighbours among them are triples; "(ABC)" after one is its alias.

    Args:
        failing: words whose documents fail.
        seconds: how long a document takes.
    """

    name = "words"

    def __init__(self, failing: Sequence[str] = (), seconds: float = 0.0) -> None:
        self.failing, self.seconds = set(failing), seconds
        self.seen: list[str] = []

    def key(self, document: Document) -> str:
        return content_key("words", document.title, document.text)

    def extract(self, documents: Sequence[Document]) -> Iterator[Extraction | Failure]:
        for document in documents:
            time.sleep(self.seconds)
            self.seen.append(document.title)
            words = document.text.split()
            if self.failing.intersection(words):
                yield Failure(document.title, "no reply")
                continue
            names = [word for word in words if word[:1].isupper()]
            triples = tuple((a, "beside", b) for a, b in itertools.pairwise(names) if a != b)
            aliases = tuple((b[1:-1], a) for a, b in itertools.pairwise(words) if b[:1] == "(")
            yield Extraction(
                document.title,
                tuple(names),
                triples,
                types=("WORD",) * len(names),
                sentences=(document.text,) * len(triples),
                aliases=aliases,
            )

    def totals(self) -> Mapping[str, float]:
        return {}
