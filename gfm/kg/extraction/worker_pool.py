"""Documents in several processes, which end when their parent does, however it ends."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from gfm.errors import InputError
from gfm.types import Document, Extraction

_CHUNK = 16  # documents: small enough for a steady bar, large enough that sending them costs nothing
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Extract = Callable[[Document], Extraction]


class _Work:
    """What a worker process has loaded, or why it could not."""

    extract: Extract | None = None
    error: InputError | None = None


def in_processes(
    load: Callable[[str], Extract], name: str, documents: Sequence[Document], processes: int
) -> Iterator[Extraction]:
    """Yields the extractions of the documents as they are done.

    Args:
        load: loads the model `name` in each process; must be importable.
        name: passed to `load`.
        documents: work.
        processes: 0 for one a core.

    Raises:
        InputError: a process was killed, as systems do that run out of memory.
    """
    chunks = [documents[start : start + _CHUNK] for start in range(0, len(documents), _CHUNK)]
    number = min(processes or os.cpu_count() or 1, len(chunks))
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), _begin, (load, name))
    try:
        waiting: set[Future[list[Extraction]]] = {pool.submit(_extract, chunk) for chunk in chunks}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()
    except BrokenProcessPool as error:
        raise InputError(
            "a process that extracts documents was killed, perhaps for want of memory; what was finished is kept: run "
            "the same command again, with fewer extraction.spacy.processes"
        ) from error
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(load: Callable[[str], Extract], name: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told as well, and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # the processes share the cores already
    try:
        _Work.extract = load(name)
    except InputError as error:
        _Work.error = error


def _end_with_parent() -> None:
    """Waits for the parent's end: killed, it cannot tell its children."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _extract(documents: Sequence[Document]) -> list[Extraction]:
    if _Work.error is not None:
        raise _Work.error
    assert _Work.extract is not None
    return [_Work.extract(document) for document in documents]
