"""Entities by similarity: all embeddings compared while they are few, LanceDB's vector index where they are many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfm.kg.name_table import NameTable
from gfm.text.names import tokens

if TYPE_CHECKING:
    from lancedb.table import Table

EXACT_UP_TO = 200_000  # entities: a comparison with all of them takes about 10 ms on two cores
_PROBES = 64
_REFINE = 10

Found = tuple[NDArray[np.int64], NDArray[np.float32]]


def compare_all(embeddings: Tensor, vector: Tensor, k: int) -> Found:
    """The k rows of `embeddings (V, dim)` with the greatest product with a vector `(dim,)`, and the products."""
    if vector.shape != embeddings.shape[1:]:
        raise ValueError(f"a vector of shape {tuple(vector.shape)} is not one of {embeddings.shape[1]} numbers")
    best = torch.topk(embeddings @ vector.to(embeddings.dtype), min(k, len(embeddings)))
    return best.indices.numpy(), best.values.numpy()


def index_vectors(table: Table) -> None:
    """Makes the vector index of a table of `key` and `vector`, or takes into it the rows that are new."""
    from lancedb.index import IvfSq

    known: Any = table.list_indices()
    if any("vector" in index.columns for index in known):
        table.optimize()
        return
    partitions = max(1, math.isqrt(table.count_rows()))
    table.create_index("vector", config=IvfSq(distance_type="cosine", num_partitions=partitions))


class VectorSearch:
    """Finds the nearest entities by the vector index of their table.

    The table may hold names that have left the graph since; they are passed over.

    Args:
        table: `key` (entity name) and `vector`, indexed by `index_vectors`.
        names: entity names, position = entity id.
        by_name: the table of these names.
        embeddings: `(V, dim)`, unit length.
    """

    def __init__(self, table: Table, names: Sequence[str], by_name: NameTable, embeddings: Tensor) -> None:
        self._table, self._names, self._by_name, self._embeddings = table, names, by_name, embeddings

    def __call__(self, vector: Tensor, k: int) -> Found:
        """The k nearest entities of a unit vector `(dim,)` and their cosines, by falling cosine."""
        fetched = 2 * k + 8
        while True:
            keys = self._search(vector, fetched)
            entities = [entity for key in keys if (entity := self._entity(key)) is not None]
            if len(entities) >= k or len(keys) < fetched:
                break
            fetched *= 4
        found = np.array(entities, dtype=np.int64)
        scores = (self._embeddings[torch.from_numpy(found)] @ vector).numpy()
        best = np.argsort(-scores, kind="stable")[:k]
        return found[best], scores[best]

    def _search(self, vector: Tensor, count: int) -> list[str]:
        query: Any = self._table.search(vector.numpy(), vector_column_name="vector")
        query = query.distance_type("cosine").nprobes(_PROBES).refine_factor(_REFINE)
        keys: list[str] = query.select(["key", "_distance"]).limit(count).to_arrow()["key"].to_pylist()
        return list(dict.fromkeys(keys))

    def _entity(self, name: str) -> int | None:
        entries = self._by_name.find([tuple(tokens(name))])[0]
        return next((e.entity for e in entries if e.alias < 0 and self._names[e.entity] == name), None)
