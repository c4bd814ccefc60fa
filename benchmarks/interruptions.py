"""`python -m benchmarks.interruptions SOURCE`: writes of an index, killed at random moments, and what they leave."""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.commands import Command, run, same, write_documents
from benchmarks.report import Report, Table, new_parser, positive, run_benchmark
from gfm.errors import InputError
from gfm.kg.index import KGIndex
from gfm.kg.sources import read_source
from gfm.kg.storage import MANIFEST
from gfm.kg.verify import verify_index
from gfm.types import Document


def measure_all(options: argparse.Namespace) -> Report:
    """Kills builds of the first documents of a source, and additions of their second half."""
    documents = read_source(options.source, extract=True).documents[: options.documents]
    if len(documents) < 2:
        raise InputError(f"{str(options.source)!r} has {len(documents)} documents; at least 2 are needed")
    with tempfile.TemporaryDirectory(prefix="interruptions-") as work:
        cases = [kill_writes(what, documents, options, Path(work, what)) for what in ("build", "add")]
    columns = ["write", "undisturbed s", "killed", "no index yet", "version before", "version after", "faults"]
    columns += ["finished to the same", "embeddings differ by", "in s"]
    table = Table(f"{len(documents)} documents of {options.source.name}", columns)
    for case in cases:
        kills = case["kills"]
        left = Counter(kill["left"] for kill in kills)
        table.rows.append(
            [
                case["what"],
                f"{case['seconds']:.1f}",
                f"{sum(kill['killed'] for kill in kills)} of {len(kills)}",
                *(str(left[state]) for state in ("none", "before", "after")),
                str(sum(len(kill["problems"]) for kill in kills)),
                f"{sum(kill['same']['graph'] for kill in kills)} of {len(kills)}",
                f"{max(kill['same']['embeddings'] for kill in kills):.1e}",
                f"{statistics.median(kill['finish_seconds'] for kill in kills):.1f}",
            ]
        )
    note = (
        "SIGKILL to the command at moments spread over its undisturbed time; none of its processes outlived it; what "
        "it left was opened and verified; the same command was then run to its end (median of its seconds), and the "
        "index compared with an undisturbed one"
    )
    return Report([table], {"cases": cases}, [note])


def kill_writes(what: str, documents: Sequence[Document], options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Kills `build` of all documents, or `add` of the second half of them, and ends each undisturbed.

    The n-th of N kills falls at a random moment of the n-th N-th part of the time that the command takes.
    """
    work.mkdir()
    everything = write_documents(work / "all.jsonl", documents)
    build = ["index", "build", "--extractor", options.extractor]
    start = work / "start"
    if what == "add":
        half = write_documents(work / "half.jsonl", documents[: len(documents) // 2])
        run([*build, half, "--out", str(start)], work / "cache-start")

    def arguments(index: Path) -> list[str]:
        return ["index", "add", str(index), everything] if what == "add" else [*build, everything, "--out", str(index)]

    whole = _copied(start, work / "whole")
    undisturbed = run(arguments(whole), work / "cache-whole")
    chance, kills = random.Random(f"{options.seed} {what}"), []
    for number in range(options.kills):
        index, cache = _copied(start, work / f"index-{number}"), work / f"cache-{number}"
        moment = (number + chance.random()) / options.kills * undisturbed["wall_seconds"]
        print(f"killing gfm {' '.join(arguments(index))} after {moment:.2f} s ...", file=sys.stderr, flush=True)
        killed = _kill_after(moment, arguments(index), cache)
        kills.append({"moment": moment, "killed": killed, **_left(index, start)})
        again = run(arguments(index), cache)
        kills[-1] |= {"finish_seconds": again["wall_seconds"], "same": same(index, whole)}
        for folder in (index, cache):
            shutil.rmtree(folder, ignore_errors=True)
    return {"what": what, "seconds": undisturbed["wall_seconds"], "kills": kills}


def _kill_after(seconds: float, arguments: list[str], cache: Path) -> bool:
    command = Command(arguments, cache)
    try:
        command.process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return command.kill()
    command.finish()
    return False


def _left(index: Path, start: Path) -> dict[str, Any]:
    """Which version is in force, and what is wrong with it."""
    if not (index / MANIFEST).exists():
        return {"left": "none", "problems": []}
    before = (start / MANIFEST).exists() and KGIndex.open(start).version == KGIndex.open(index).version
    return {"left": "before" if before else "after", "problems": verify_index(index)}


def _copied(start: Path, index: Path) -> Path:
    if start.exists():
        shutil.copytree(start, index)
    return index


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("interruptions", __doc__.partition(": ")[2], repeats=None)
    parser.add_argument("source", type=Path, metavar="SOURCE", help="documents, as for gfm index build")
    parser.add_argument("--documents", type=positive, default=200, help="how many of them (default 200)")
    parser.add_argument("--kills", type=positive, default=20, help="of each kind of write (default 20)")
    parser.add_argument("--extractor", default="spacy", help="spacy (default) or llm")
    run_benchmark("interruptions", parser, measure_all, argv)


if __name__ == "__main__":
    main()
