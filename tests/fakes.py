"""Stand-ins for tests: deterministic, instant, no model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


class HashEncoder:
    """Embeds a text as a unit vector drawn from a generator that its hash seeds."""

    def __init__(self, dim: int = 16, name: str = "hash") -> None:
        self.name = name
        self.dim = dim
        self.dtype = "float32"
        self.fingerprint = hashlib.sha256(f"{name}/{dim}".encode()).hexdigest()[:16]

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        vectors = torch.empty(len(texts), self.dim)
        for row, text in enumerate(texts):
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
            vectors[row] = torch.randn(self.dim, generator=generator)
        return torch.nn.functional.normalize(vectors, dim=1)
