from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gfm.errors import InputError
from gfm.files import cache_folder
from gfm.text.cache import EmbeddingCache

ROOT = Path(__file__).resolve().parents[2]


def vectors(count: int, dim: int = 4) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)


def set_value(cache: EmbeddingCache, value: bytes) -> None:
    connection = sqlite3.connect(cache.path)
    connection.execute("UPDATE embeddings SET value = ?", (value,))
    connection.commit()
    connection.close()


def test_a_vector_comes_back_bit_for_bit(tmp_path: Path) -> None:
    texts = ["a", "", "\ud800", "a\0b", *(f"text {i}" for i in range(1200))]
    stored = vectors(len(texts))
    EmbeddingCache(tmp_path / "c.sqlite", 4).put(texts, stored)
    found = EmbeddingCache(tmp_path / "c.sqlite", 4).get([*texts, "absent"])
    assert set(found) == set(texts)
    assert np.array_equal(np.stack([found[text] for text in texts]), stored)


@pytest.mark.parametrize(
    "torn",
    [b"", b"\0" * 15, b"\0" * 20, np.full(4, np.nan, np.float32).tobytes()],
    ids=["empty", "short", "long", "nan"],
)
def test_a_torn_value_is_absent_until_it_is_written_again(tmp_path: Path, torn: bytes) -> None:
    cache = EmbeddingCache(tmp_path / "c.sqlite", 4)
    cache.put(["a"], vectors(1))
    set_value(cache, torn)
    assert cache.get(["a"]) == {}
    cache.put(["a"], vectors(1))
    assert np.array_equal(cache.get(["a"])["a"], vectors(1)[0])


def test_a_file_that_is_no_cache_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(InputError, match=r"c\.sqlite.*delete the file"):
        EmbeddingCache(path, 4)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="GFM_CACHE"):
        EmbeddingCache(tmp_path / "file" / "c.sqlite", 4)


def test_the_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GFM_CACHE", str(tmp_path))
    assert cache_folder("embeddings") == tmp_path / "embeddings"
    monkeypatch.delenv("GFM_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder("embeddings") == tmp_path / "home" / ".cache" / "gfm" / "embeddings"


def test_a_process_killed_while_it_writes_leaves_a_usable_cache(tmp_path: Path) -> None:
    script = """
import sys, numpy as np
from gfm.text.cache import EmbeddingCache
cache = EmbeddingCache(sys.argv[1], 4)
cache.put(["kept"], np.ones((1, 4), np.float32))
def rows():
    for i in range(5000):
        yield f"lost {i}"
    print("writing", flush=True)
    sys.stdin.read()
class Rows(list):
    __iter__ = lambda self: rows()
cache.put(Rows(), np.ones((5001, 4), np.float32))
"""
    path = tmp_path / "c.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"writing\n"
        os.kill(child.pid, signal.SIGKILL)
    cache = EmbeddingCache(path, 4)
    assert list(cache.get(["kept", "lost 0", "lost 4999"])) == ["kept"]
    cache.put(["lost 0"], vectors(1))
    assert "lost 0" in cache.get(["lost 0"])


def test_two_processes_write_at_once_and_lose_nothing(tmp_path: Path) -> None:
    script = """
import sys, numpy as np
from gfm.text.cache import EmbeddingCache
for i in range(40):
    cache = EmbeddingCache(sys.argv[1], 4)
    cache.put([f"{sys.argv[2]} {i}"], np.ones((1, 4), np.float32))
"""
    path = tmp_path / "c.sqlite"
    children = [subprocess.Popen([sys.executable, "-c", script, str(path), name], cwd=ROOT) for name in "ab"]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    texts = [f"{name} {i}" for name in "ab" for i in range(40)]
    assert set(EmbeddingCache(path, 4).get(texts)) == set(texts)
