"""Documents ranked by the entities and paths that point at them (Eq. 20), and fusion with other scores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from scipy import sparse
from torch import Tensor

from gfm.errors import InputError
from gfm.types import Path

Scores = Sequence[float] | np.ndarray | Tensor
Ids = Collection[int] | np.ndarray | Tensor


def rank_documents(
    gates: Scores,
    mentions: sparse.csr_matrix | sparse.csr_array,
    path_counts: Mapping[int, int] | Sequence[int] | np.ndarray | Tensor,
    candidates: Ids,
) -> np.ndarray:
    """Scores every document by the candidate entities that it mentions (Eq. 20).

    `w_e = S_e / (number of documents that mention e) * (1 + number of paths through e)`, `R = M^T w`.
    The paper has no `1 +`, which deletes every entity without a path; here it only lifts the others.

    Args:
        gates: `S_e` (or any weight of an entity), `(V,)`.
        mentions: `M`, `(V, D)`; an entry other than 0 says that the entity occurs in the document, how often
            is ignored.
        path_counts: paths through each entity, `(V,)` or a mapping; entities that it lacks have none.
        candidates: entity ids that may vote; repeated ones vote once, entities without a document are skipped.

    Returns:
        Scores `(D,)` float64, 0 for documents that mention no candidate.

    Raises:
        InputError: shapes do not fit or an id is out of range.
    """
    num_entities = mentions.shape[0]
    gate = _vector(gates, "gates")
    if gate.shape != (num_entities,):
        raise InputError(f"gates have shape {gate.shape} for {num_entities} rows of mentions; give one per entity")
    listed = candidates.cpu().numpy() if isinstance(candidates, Tensor) else np.asarray(list(candidates))
    entity = np.unique(listed.astype(np.int64))
    if entity.size and not (0 <= entity[0] and entity[-1] < num_entities):
        raise InputError(
            f"candidate ids run from {entity[0]} to {entity[-1]} but mentions have {num_entities} rows; "
            "candidates are entity ids of the same index"
        )
    occurs = sparse.csr_array(mentions[entity]).astype(bool).astype(np.float64)
    occurs.eliminate_zeros()
    num_documents = np.diff(occurs.indptr)
    weight = gate[entity] * (1.0 + _counts_of(entity, path_counts, num_entities)) / np.maximum(num_documents, 1)
    return np.asarray(occurs.T @ weight, dtype=np.float64)


def path_counts(paths: Iterable[Path], num_entities: int) -> np.ndarray:
    """Counts the paths through each entity, ends included: `(V,)` int64.

    Raises:
        InputError: a path carries no entity ids, or an id is out of range.
    """
    ids: list[int] = []
    for path in paths:
        if len(path.entity_ids) != len(path.entities):
            raise InputError(
                f"the path from {path.entities[0]!r} has {len(path.entity_ids)} entity ids for "
                f"{len(path.entities)} entities; take paths from extract_paths"
            )
        ids.extend(path.entity_ids)
    if ids and not (0 <= min(ids) and max(ids) < num_entities):
        raise InputError(f"path entity ids run from {min(ids)} to {max(ids)}; the graph has {num_entities} entities")
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=num_entities)


def fuse(graph_scores: Scores, dense_scores: Scores, dense_weight: float) -> np.ndarray:
    """Mixes two scores of the same documents: `(1 - dense_weight) * graph + dense_weight * dense`.

    Each is first brought to [0, 1] by its own minimum and maximum, so that neither scale nor offset of
    a score decides the mix; a constant score says nothing and becomes 0.

    Args:
        graph_scores: `(D,)`.
        dense_scores: `(D,)`.
        dense_weight: in [0, 1]; 0 keeps the graph's order, 1 the dense one.

    Raises:
        InputError: the weight is outside [0, 1], the shapes differ, or a score is not finite.
    """
    if not 0.0 <= dense_weight <= 1.0:
        raise InputError(f"dense_weight is {dense_weight}; give a number from 0 (graph only) to 1 (dense only)")
    graph, dense = _vector(graph_scores, "graph scores"), _vector(dense_scores, "dense scores")
    if graph.shape != dense.shape:
        raise InputError(f"{graph.size} graph scores and {dense.size} dense scores; both must cover the same documents")
    return (1.0 - dense_weight) * _unit_range(graph) + dense_weight * _unit_range(dense)


def top_k(scores: Scores, k: int) -> np.ndarray:
    """Ids of the `k` highest scores, best first, ties by smaller id; all ids where `k` exceeds what exists.

    Raises:
        InputError: `k` is below 1, or a score is NaN or infinite.
    """
    if k < 1:
        raise InputError(f"k is {k}; give a whole number of at least 1")
    return np.argsort(-_vector(scores, "scores"), kind="stable")[:k]


def _unit_range(values: np.ndarray) -> np.ndarray:
    if values.size == 0:
        return values
    low, high = values.min(), values.max()
    return np.zeros_like(values) if low == high else (values - low) / (high - low)


def _counts_of(
    entity: np.ndarray, counts: Mapping[int, int] | Sequence[int] | np.ndarray | Tensor, num_entities: int
) -> np.ndarray:
    if isinstance(counts, Mapping):
        return np.array([counts.get(e, 0) for e in entity.tolist()], dtype=np.float64)
    dense = _vector(counts, "path counts")
    if dense.shape != (num_entities,):
        raise InputError(f"path counts have shape {dense.shape} for {num_entities} entities; give one per entity")
    return dense[entity]


def _vector(values: Scores, name: str) -> np.ndarray:
    array = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values, np.float64)
    if array.ndim != 1:
        raise InputError(f"{name} have shape {array.shape}; give a flat list")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise InputError(f"{name} hold {array[bad[0]]} at position {bad[0]}; every value must be finite")
    return array
