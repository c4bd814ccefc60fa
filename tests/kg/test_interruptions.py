"""Writers that are killed, that meet, and that run out of room: the version before stays, and nothing is done twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.index import KGIndex
from gfm.kg.manifest import read_manifest
from gfm.kg.storage import writing
from gfm.kg.verify import verify_index
from gfm.kg.writer import BuildOptions, add_documents, build_index, update_documents
from gfm.types import Document
from tests.fakes import HashEncoder, WordExtractor

ROOT = Path(__file__).resolve().parents[2]
ENCODER = HashEncoder()
OPTIONS = BuildOptions(IndexConfig(synonym_threshold=0.3, synonym_cap=2))
OLD = [Document(f"T{i}", f"Name{i} met Name{i + 1} in Town{i % 7}") for i in range(40)]
NEW = [Document(f"N{i}", f"Name{i} saw Name{2 * i} near Lake{i % 5}") for i in range(40)]

# Forks a worker for each line: the imports are paid for once. lancedb has threads, so it is left to the worker.
SERVER = """
import json, os, resource, signal, sys
from pathlib import Path
from gfm.kg.writer import add_documents, build_index
from tests.fakes import WordExtractor
from tests.kg.test_interruptions import ENCODER, NEW, OLD, OPTIONS
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    task = json.loads(line)
    if pid := os.fork():
        print(pid, flush=True)
        continue
    log = Path(task["log"])
    try:
        import lancedb
        extractor = WordExtractor(seconds=task["seconds"])
        log.with_suffix(".ready").touch()
        if task["limit"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (task["limit"], resource.RLIM_INFINITY))
        if task["what"] == "build":
            build_index(Path(task["path"]), OLD + NEW, extractor, ENCODER, OPTIONS)
        else:
            add_documents(Path(task["path"]), NEW, extractor, ENCODER)
        result = f"done {len(extractor.seen)}"
    except BaseException as error:
        result = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.write_text(result)
    os._exit(0)
"""


class Worker:
    """A process that writes an index: `build` of all documents, or `add` of the new ones.

    Args:
        server: forks it.
        path: the index.
        what: `"build"` or `"add"`.
        seconds: how long the extraction of a document takes.
        limit: of a file's size in bytes; 0 for none.
    """

    def __init__(
        self, server: subprocess.Popen[str], path: Path, what: str, seconds: float = 0.005, limit: int = 0
    ) -> None:
        assert server.stdin is not None and server.stdout is not None
        self.log = path.parent / f"{time.monotonic_ns()}.log"
        task = {"path": str(path), "what": what, "seconds": seconds, "limit": limit, "log": str(self.log)}
        server.stdin.write(json.dumps(task) + "\n")
        server.stdin.flush()
        self.pid = int(server.stdout.readline())
        self._wait(lambda: self.log.with_suffix(".ready").exists())

    def stop(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was quicker
            os.kill(self.pid, signum)
        self.result()

    def result(self) -> str:
        """What it wrote when it ended; empty if it was killed."""
        self._wait(lambda: not Path(f"/proc/{self.pid}").exists())
        return self.log.read_text() if self.log.exists() else ""

    @staticmethod
    def _wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Worker]]:
    """Starts workers."""
    if not Path("/proc").exists() or not hasattr(os, "fork"):
        pytest.skip("needs fork and /proc")
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield partial(Worker, server)
        assert server.stdin is not None
        server.stdin.close()


def contents(path: Path) -> dict[str, bytes]:
    folder = path / "arrays" / read_manifest(path)["version"]
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed build of all documents gives."""
    path = tmp_path_factory.mktemp("whole") / "i"
    build_index(path, OLD + NEW, WordExtractor(), ENCODER, OPTIONS)
    return contents(path)


@pytest.mark.parametrize("what", ["build", "add"])
def test_a_write_killed_at_random_moments_leaves_the_version_before_and_ends_as_if_undisturbed(
    tmp_path: Path, whole: dict[str, bytes], start: Callable[..., Worker], what: str
) -> None:
    path, chance = tmp_path / "i", random.Random(what)
    if what == "add":
        build_index(path, OLD, WordExtractor(), ENCODER, OPTIONS)
    for _ in range(5):
        worker = start(path, what)
        time.sleep(chance.uniform(0, 0.9))
        worker.stop(signal.SIGKILL)
        if (path / "index.json").exists():
            assert verify_index(path) == []
            assert len(KGIndex.open(path).all_documents()) in (len(OLD), len(OLD + NEW))
        else:
            with pytest.raises(InputError, match=r"not an index|never finished"):
                KGIndex.open(path)
    assert start(path, what).result().startswith("done")
    assert contents(path) == whole
    assert verify_index(path) == []


def test_what_a_killed_write_has_extracted_is_not_extracted_again(tmp_path: Path, start: Callable[..., Worker]) -> None:
    # 64 results make a write; with 20 ms a document it falls 1.3 s after the start, the end 0.3 s later.
    worker = start(tmp_path / "i", "build", 0.02)
    deadline = time.monotonic() + 20
    while not (tmp_path / "i" / "lance" / "extractions.lance" / "_versions").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(0.05)
    worker.stop(signal.SIGKILL)
    result = start(tmp_path / "i", "build", 0).result()
    assert int(result.split()[1]) <= len(OLD + NEW) - 64


def test_ctrl_c_keeps_every_result_that_has_come(tmp_path: Path, start: Callable[..., Worker]) -> None:
    worker = start(tmp_path / "i", "build", 0.05)
    time.sleep(1.0)
    worker.stop(signal.SIGINT)
    assert worker.result().startswith("KeyboardInterrupt")
    result = start(tmp_path / "i", "build", 0).result()
    assert int(result.split()[1]) < len(OLD + NEW) - 5


def test_of_two_writers_one_is_told_and_nothing_is_lost(
    tmp_path: Path, whole: dict[str, bytes], start: Callable[..., Worker]
) -> None:
    worker = start(tmp_path / "i", "build", 0.01)
    while not (tmp_path / "i" / "lance").exists():
        time.sleep(0.005)
    with pytest.raises(InputError, match="another process is writing the index"):
        build_index(tmp_path / "i", OLD, WordExtractor(), ENCODER, OPTIONS)
    assert worker.result().startswith("done")
    assert contents(tmp_path / "i") == whole


def test_the_lock_is_that_of_the_folder(tmp_path: Path) -> None:
    with writing(tmp_path / "i"), writing(tmp_path / "j"):
        with pytest.raises(InputError, match="wait until it is done"), writing(tmp_path / "i"):
            pass


@pytest.mark.parametrize("limit", [300, 2_000, 6_000])
def test_a_disk_that_is_full_is_named_and_the_version_before_stays(
    tmp_path: Path, whole: dict[str, bytes], start: Callable[..., Worker], limit: int
) -> None:
    build_index(tmp_path / "i", OLD, WordExtractor(), ENCODER, OPTIONS)
    before = contents(tmp_path / "i")
    result = start(tmp_path / "i", "add", 0, limit).result()
    assert result.startswith("InputError: ")
    assert "make room" in result
    assert contents(tmp_path / "i") == before
    assert verify_index(tmp_path / "i") == []
    add_documents(tmp_path / "i", NEW, WordExtractor(), ENCODER)
    assert contents(tmp_path / "i") == whole


def test_readers_work_while_a_writer_commits(tmp_path: Path) -> None:
    build_index(tmp_path / "i", OLD, WordExtractor(), ENCODER, OPTIONS)
    done, read, errors = threading.Event(), [0], list[BaseException]()

    def read_on() -> None:
        while not done.is_set():
            try:
                index = KGIndex.open(tmp_path / "i")
                texts = {document.text for document in index.all_documents()}
                rounds = {text.split()[-1] for text in texts if text.startswith("Round")}
                assert len(rounds) <= 1  # never a mixture of two versions
                read[0] += 1
            except BaseException as error:
                errors.append(error)
                return

    reader = threading.Thread(target=read_on)
    reader.start()
    for i in range(8):
        changed = [Document(title, f"Round {title} {i}") for title in ("R1", "R2", "T3")]
        update_documents(tmp_path / "i", changed, WordExtractor(), ENCODER)
    done.set()
    reader.join()
    assert errors == []
    assert read[0] > 8


def test_a_document_named_like_a_path_stays_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    documents = [Document(name, "Ann met Bob") for name in ("../../x", "/etc/passwd", "..", "a/b", "x\0y", "C:\\up")]
    build_index(tmp_path / "inner" / "i", documents, WordExtractor(), ENCODER, OPTIONS)
    assert os.listdir(tmp_path) == ["inner"]
    assert os.listdir(tmp_path / "inner") == ["i"]
    assert KGIndex.open(tmp_path / "inner" / "i").all_documents() == sorted(documents, key=lambda d: d.title)
