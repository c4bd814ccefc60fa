"""Embeddings on disk, so that no text is embedded twice by the same encoder."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gfm.errors import InputError

_KEYS_PER_QUERY = 500  # below SQLite's oldest limit of 999 variables
_BUSY_SECONDS = 60.0


class EmbeddingCache:
    """One SQLite file that maps the SHA-256 of a text to its float32 vector.

    Every call opens its own connection, so one cache object serves threads and forked workers. SQLite's
    rollback journal (not WAL, which network file systems do not support) with a busy timeout makes it
    safe among processes and against a kill in the middle of a write.

    Args:
        path: the file; its folder is made when missing.
        dim: length of a vector. A stored value of another length, or one that is not finite, counts
            as absent and is overwritten by the next `put`.

    Raises:
        InputError: the file cannot be written or is no SQLite database.
    """

    def __init__(self, path: str | Path, dim: int) -> None:
        self.path = Path(path)
        self.dim = dim
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        with self._connection() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, value BLOB NOT NULL)")

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Returns the vectors of those texts that are cached, each of shape `(dim,)`."""
        by_key = {_key(text): text for text in texts}
        keys = list(by_key)
        found: dict[str, NDArray[np.float32]] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                chunk = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                rows = connection.execute(f"SELECT key, value FROM embeddings WHERE key IN ({marks})", chunk)
                for key, value in rows:
                    vector = self._decode(value)
                    if vector is not None:
                        found[by_key[key]] = vector
        return found

    def put(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Stores `vectors (N, dim)` for `texts` in one transaction, replacing what was there."""
        data = np.ascontiguousarray(vectors, dtype="<f4")
        rows = ((_key(text), row.tobytes()) for text, row in zip(texts, data, strict=True))
        with self._connection() as connection:
            connection.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?)", rows)

    def _decode(self, value: object) -> NDArray[np.float32] | None:
        if not isinstance(value, bytes) or len(value) != 4 * self.dim:
            return None
        vector = np.frombuffer(value, dtype="<f4").astype(np.float32)
        return vector if np.isfinite(vector).all() else None

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> InputError:
        return InputError(
            f"embedding cache {str(self.path)!r} cannot be used ({error}); delete the file, make it writable, "
            "or set GFM_CACHE to another folder"
        )


def _key(text: str) -> bytes:
    # surrogatepass: a lone surrogate is a legal str and must not crash the cache.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
