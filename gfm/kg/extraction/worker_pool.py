"""Documents extracted in several processes."""

from __future__ import annotations

import math
import os
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from gfm.errors import InputError
from gfm.kg.extraction.worker import Load, answer, request
from gfm.types import Document, Extraction

_CHUNK = 16  # documents: small enough for a steady bar, large enough that sending them costs nothing
_PER_PROCESS = 128  # documents that are parsed in the time that another process takes to load the model
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_processes(load: Load, name: str, documents: Sequence[Document], processes: int) -> Iterator[Extraction]:
    """Yields the extractions of the documents as they are done.

    Args:
        load: loads the model `name` in each process; a function of a module.
        name: passed to `load`.
        documents: work.
        processes: 0 for one a core; never more than there is work for.

    Raises:
        InputError: `load` cannot load, or a process was killed, as systems do that run out of memory.
    """
    chunks = [documents[start : start + _CHUNK] for start in range(0, len(documents), _CHUNK)]
    number = min(processes or os.cpu_count() or 1, max(1, math.ceil(len(documents) / _PER_PROCESS)))
    workers = [_start(load, name) for _ in range(number)]
    idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def extract(chunk: Sequence[Document]) -> list[Extraction]:
        worker = idle.get()
        try:
            return _ask(worker, chunk)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(number)
    try:
        for done in as_completed([pool.submit(extract, chunk) for chunk in chunks]):
            yield from done.result()
    finally:
        for worker in workers:
            worker.kill()  # which also wakes the thread that waits for it
        pool.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.communicate()


def _start(load: Load, name: str) -> subprocess.Popen[str]:
    # The processes share the cores already, and must find what this one finds.
    environment = os.environ | dict.fromkeys(_THREADS, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "gfm.kg.extraction.worker", f"{load.__module__}:{load.__qualname__}", name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, encoding="ascii", bufsize=1 << 16)


def _ask(worker: subprocess.Popen[str], chunk: Sequence[Document]) -> list[Extraction]:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(request(chunk))
        worker.stdin.flush()
    except BrokenPipeError:
        pass  # it has said why, or has been killed
    line = worker.stdout.readline()
    if not line.endswith("\n"):
        raise InputError(
            f"a process that extracts documents ended (code {worker.wait()}), perhaps for want of memory; what was "
            "finished is kept: run the same command again, with fewer extraction.spacy.processes"
        )
    return answer(line)
