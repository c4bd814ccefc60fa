"""Embeddings of an index: taken from its tables, computed and stored where they are missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gfm.errors import InputError
from gfm.kg.build import Encoder
from gfm.kg.tables import Tables

ENTITY, RELATION, DOCUMENT = "entity", "relation", "document"
KINDS = (ENTITY, RELATION, DOCUMENT)
_AT_ONCE = 65536  # what a run can lose when it is killed, if its encoder has no cache


class Vectors:
    """Gives the vector of every text of an index, each embedded once in its life.

    Args:
        tables: where they are kept.
        encoder: computes what is missing; None refuses to.
        progress: show bars on stderr.
    """

    def __init__(self, tables: Tables, encoder: Encoder | None, *, progress: bool = False) -> None:
        self._tables, self._encoder, self._progress = tables, encoder, progress

    def get(self, kind: str, keys: Sequence[str], texts: Sequence[str], dim: int) -> NDArray[np.float32]:
        """The vectors `(N, dim)` of N texts that are stored under `keys`.

        Raises:
            InputError: one is missing and there is no encoder, or the encoder gives something else than numbers.
        """
        vectors, known = self._tables.vectors(kind, keys)
        result = np.zeros((len(keys), dim), dtype=np.float32) if vectors is None else vectors
        missing = np.flatnonzero(~known)
        if len(missing) and self._encoder is None:
            raise InputError(
                f"{len(missing)} {kind} embeddings are missing, for example of {texts[missing[0]][:80]!r}; repair the "
                "index, or build it again"
            )
        for start in range(0, len(missing), _AT_ONCE):
            rows = missing[start : start + _AT_ONCE]
            result[rows] = self._embed([texts[row] for row in rows])
            self._tables.add_vectors(kind, [keys[row] for row in rows], result[rows])
        return result

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        assert self._encoder is not None
        vectors = self._encoder.encode(texts, progress=self._progress)
        finite = torch.isfinite(vectors).all(dim=1)
        if not finite.all():
            text = texts[int((~finite).nonzero()[0])]
            raise InputError(
                f"encoder {self._encoder.name!r} gives no finite vector for {text[:80]!r}; use another one"
            )
        return vectors.numpy()
