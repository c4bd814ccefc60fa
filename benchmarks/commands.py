"""`gfm` commands as processes of their own: their time, the memory of all their processes, and what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import GB
from gfm.errors import InputError
from gfm.kg.index import KGIndex
from gfm.types import Document

PROGRAM = [sys.executable, "-c", "from gfm.cli import main; main()"]
_EVERY = 0.5  # seconds between looks at the memory: a look takes milliseconds
_PATIENCE = 5.0  # seconds that processes may take to notice the end of their parent


class Command:
    """A running `gfm` command in a session of its own, by which all its processes are found.

    Args:
        arguments: of `gfm`.
        cache: folder in place of the user's cache; an empty one makes embedding start from nothing.
    """

    def __init__(self, arguments: list[str], cache: Path) -> None:
        self.arguments, self._begin = arguments, time.perf_counter()
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GFM_CACHE": str(cache)},
            start_new_session=True,
        )

    def finish(self) -> dict[str, Any]:
        """Waits for the end.

        Returns:
            What the command printed as JSON under `printed`, its `wall_seconds`, and `peak_gb` of all its processes
            together, shared pages counted once.

        Raises:
            InputError: it failed.
        """
        peak = 0
        while True:
            try:
                out, err = self.process.communicate(timeout=_EVERY)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, sum(map(_bytes, self.processes())))
        seconds = time.perf_counter() - self._begin
        if self.process.returncode != 0:
            last = (err.strip().splitlines() or ["no message"])[-1]
            raise InputError(f"gfm {' '.join(self.arguments)} ended with code {self.process.returncode}: {last}")
        return {"printed": json.loads(out), "wall_seconds": seconds, "peak_gb": peak / GB}

    def kill(self) -> bool:
        """Sends SIGKILL to the command, not to the processes that it has started; False if it had ended.

        Raises:
            InputError: some of its processes outlive it.
        """
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()  # not `communicate`: that would wait for all that hold its output
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        deadline = time.monotonic() + _PATIENCE
        while left := list(self.processes()):
            if time.monotonic() > deadline:
                raise InputError(f"processes {left} outlive gfm {' '.join(self.arguments)}, which was killed")
            time.sleep(_EVERY)
        return self.process.returncode == -signal.SIGKILL

    def processes(self) -> Iterator[int]:
        """Ids of the processes of this command that are alive."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except OSError:  # it has just ended
                continue
            if int(session) == self.process.pid and state not in "ZX":
                yield int(stat.parent.name)


def run(arguments: list[str], cache: Path) -> dict[str, Any]:
    """Runs a `gfm` command to its end; see `Command.finish`."""
    print(f"running gfm {' '.join(arguments)} ...", file=sys.stderr, flush=True)
    return Command([*arguments, "--json"], cache).finish()


def write_documents(path: Path, documents: Sequence[Document]) -> str:
    """Writes documents as a source that `gfm index` reads; returns its name."""
    lines = (json.dumps({"title": d.title, "text": d.text}) + "\n" for d in documents)
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def same(index: Path, other: Path) -> dict[str, Any]:
    """Compares two indexes: `graph` says whether graph, mentions, aliases and texts are equal.

    `embeddings` is the greatest difference between numbers of their embeddings: an encoder's last digits depend on the
    texts that it embeds together.
    """
    a, b = KGIndex.open(index), KGIndex.open(other)
    equal = (
        a.graph.same_as(b.graph)
        and a.titles == b.titles
        and a.aliases == b.aliases
        and (a.mentions != b.mentions).nnz == 0
        and a.all_documents() == b.all_documents()
    )
    kinds = ("entity_embeddings", "relation_embeddings", "document_embeddings")
    differences = [float((getattr(a, kind) - getattr(b, kind)).abs().max()) if equal else 2.0 for kind in kinds]
    return {"graph": equal, "embeddings": max(differences)}


def _bytes(process: int) -> int:
    """Proportional memory of a process; 0 if it has just ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
