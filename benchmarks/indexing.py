"""`python -m benchmarks.indexing SOURCE ...`: an index built and changed, as a user does it: time, memory, sameness."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.commands import run, same, write_documents
from benchmarks.report import MISSING, Report, Table, new_parser, positive, run_benchmark
from gfm.errors import InputError
from gfm.kg.sources import read_source
from gfm.kg.verify import verify_index
from gfm.types import Document

STAGES = ("extraction", "embeddings", "graph", "synonyms", "names", "arrays")
CHANGES = ("add", "update", "delete")


def measure_all(options: argparse.Namespace) -> Report:
    """Builds an index of each source and changes some of its documents."""
    corpora = {path.name: read_source(path, extract=True).documents for path in options.sources}
    for name, documents in corpora.items():
        if len(documents) <= 2 * options.changed:
            raise InputError(
                f"{name!r} has {len(documents)} documents; changing {options.changed} needs more than twice as many"
            )
    with tempfile.TemporaryDirectory(prefix="indexing-") as work:
        cases = [build_and_change(name, corpora[name], options, Path(work, name)) for name in corpora]
    notes = [
        f"extractor {options.extractor}, the packaged encoder, an empty cache for every command; seconds of whole "
        "commands, with imports and the loading of models; memory of all processes of a command together, shared pages "
        "counted once; an index to which the documents were added is compared with one that was built of all of them; "
        "verified at the end"
    ]
    return Report([_builds(cases), _changes(cases, options.changed)], {"cases": cases}, notes)


def build_and_change(
    name: str, documents: Sequence[Document], options: argparse.Namespace, work: Path
) -> dict[str, Any]:
    """Builds an index of all documents, and one of all but a few; adds these, replaces as many, deletes as many."""
    work.mkdir()
    new, old = documents[: options.changed], documents[options.changed :]
    changed = [Document(d.title, f"{d.text} It was changed.") for d in old[: options.changed]]
    titles = work / "titles.txt"
    titles.write_text("".join(f"{d.title}\n" for d in new), encoding="utf-8")
    index, build = work / "index", ["index", "build", "--extractor", options.extractor]
    figures: dict[str, Any] = {"name": name, "documents": len(documents)}
    source = write_documents(work / "all.jsonl", documents)
    figures["build"] = run([*build, source, "--out", str(work / "whole")], work / "cache-1")
    run([*build, write_documents(work / "old.jsonl", old), "--out", str(index)], work / "cache-2")
    added = write_documents(work / "new.jsonl", new)
    figures["add"] = run(["index", "add", str(index), added], work / "cache-3")
    figures["same"] = same(index, work / "whole")
    source = write_documents(work / "changed.jsonl", changed)
    figures["update"] = run(["index", "update", str(index), source], work / "cache-4")
    figures["delete"] = run(["index", "delete", str(index), "--titles-from", str(titles)], work / "cache-5")
    return figures | {"problems": verify_index(index)}


def _builds(cases: Sequence[dict[str, Any]]) -> Table:
    columns = ["build", "documents", "entities", "triples", "of which synonyms", *STAGES, "wall s", "peak GB"]
    table = Table("builds, seconds", columns)
    for case in cases:
        built = case["build"]["printed"]
        counts = [f"{built[key]:,}" for key in ("documents", "entities", "triples", "synonym_triples")]
        stages = [f"{built['seconds'][s]:.1f}" if s in built["seconds"] else MISSING for s in STAGES]
        whole = [f"{case['build']['wall_seconds']:.1f}", f"{case['build']['peak_gb']:.2f}"]
        table.rows.append([case["name"], *counts, *stages, *whole])
    return table


def _changes(cases: Sequence[dict[str, Any]], number: int) -> Table:
    columns = [
        "changes",
        *(f"{change} {number}" for change in CHANGES),
        "as built whole",
        "embeddings differ by",
        "verified",
    ]
    table = Table(f"changes of {number} documents, seconds", columns)
    for case in cases:
        walls = [f"{case[change]['wall_seconds']:.1f}" for change in CHANGES]
        verified = "; ".join(case["problems"]) or "yes"
        equal = ["yes" if case["same"]["graph"] else "NO", f"{case['same']['embeddings']:.1e}"]
        table.rows.append([case["name"], *walls, *equal, verified])
    return table


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("indexing", __doc__.partition(": ")[2], repeats=None, seed=False)
    parser.add_argument("sources", type=Path, nargs="+", metavar="SOURCE", help="documents, as for gfm index build")
    parser.add_argument("--changed", type=positive, default=10, help="documents to add, update, delete (default 10)")
    parser.add_argument("--extractor", default="spacy", help="spacy (default) or llm")
    run_benchmark("indexing", parser, measure_all, argv)


if __name__ == "__main__":
    main()
