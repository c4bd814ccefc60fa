"""`python -m benchmarks.scaling`: time of a question against the number of edges, and two graphs of millions."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.child import FOOTNOTE, run_case
from benchmarks.report import Report, Table, cells, new_parser, positive, run_benchmark
from gfm.errors import InputError

EDGES = (10_000, 31_600, 100_000, 316_000, 1_000_000, 3_160_000, 10_000_000)


def run(options: argparse.Namespace) -> Report:
    """The sweep with its picture, then the large cases."""
    if find_spec("matplotlib") is None:
        raise InputError('the picture needs matplotlib, which is not installed: pip install "gfm[benchmarks]"')
    sizes = [edges for edges in EDGES if edges <= options.max_edges]
    if not sizes:
        raise InputError(f"--max-edges {options.max_edges} leaves no case; give at least {EDGES[0]}")
    budgets = [None, *options.budgets]
    points = [_point(options, edges, budget) for edges in sizes for budget in budgets]
    sweep = Table(
        f"seconds of one question by number of edges (inverses included), d={options.hidden_dim}, L={options.layers}",
        ["edges", *(mode for budget in budgets for mode in (_mode(budget), "peak GB", "entities"))],
    )
    for number, edges in enumerate(sizes):
        row = points[number * len(budgets) : (number + 1) * len(budgets)]
        columns = (("seconds", 4), ("peak_gb", 2), ("entities", 0))
        sweep.rows.append([f"{edges:,}", *(text for point in row for text in cells(point, *columns))])
    picture = options.out.with_suffix(".png")
    from benchmarks.plot import plot_scaling

    plot_scaling(points, picture, f"one question, d={options.hidden_dim}, L={options.layers}")
    note = (
        "heavy-tailed random graphs, V = E / 10, relations = E / 20 but at most 20,000; "
        f"{options.repeats} different questions of 3 random seeds, relation states kept; peak above inputs, and the "
        f"entities that carry a state at the end; picture: {picture.name}"
    )
    report = Report([sweep], {"points": points, "picture": str(picture)}, [note, FOOTNOTE])
    if not options.skip_large:
        _add_large(options, report)
    return report


def _point(options: argparse.Namespace, edges: int, budget: int | None) -> dict[str, Any]:
    arguments = {
        "form": "ours",
        "entities": edges // 10,
        "triples": edges // 2,
        "relations": min(edges // 20, 20_000),
        "text_dim": options.text_dim,
        "hidden_dim": options.hidden_dim,
        "layers": options.layers,
        "seeds": 3,
        "budget": budget,
        "dtype": "float32",
        "seed": options.seed,
    }
    timed = {"repeats": options.repeats, "warmups": options.repeats, **arguments}
    label = f"{edges:,} edges, {_mode(budget)}"
    result = run_case("benchmarks.models:question_case", timed, label)
    return {"edges": edges, "mode": _mode(budget), **arguments, **result}


def _mode(budget: int | None) -> str:
    return "exact" if budget is None else f"K={budget:,}"


def _add_large(options: argparse.Namespace, report: Report) -> None:
    table = Table("large graphs", ["what", "value"])
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.index_folder or Path(temporary, "index")
        built, opened = _index_cases(options, folder)
    report.data |= {"index_build": built, "index": opened}
    size = f"{options.large_entities:,} entities, {options.large_triples:,} triples"
    lines = (
        ("index of it built, s", built, "build_seconds"),
        ("opened, s", opened, "open_seconds"),
        (f"retriever made (d={options.large_dim}), s", opened, "retriever_seconds"),
        ("first question, s", opened, "first_seconds"),
        ("linking and gates of a question not asked before, s", opened, "gates_seconds"),
        ("question, s", opened, "question_seconds"),
        ("peak GB of the process", opened, "peak_process_gb"),
    )
    budget = f"K={options.large_budget:,}"
    table.rows += [[f"{size}, {budget}: {what}", *cells(case, (key, 3))] for what, case, key in lines]
    step = _training_case(options)
    report.data["training"] = step
    size = f"{options.large_entities:,} entities, {2 * options.large_triples:,} edges, d={options.hidden_dim}"
    for what, key in (("training step, s", "seconds"), ("peak GB of the process", "peak_process_gb")):
        table.rows.append([f"{size}: {what}", *cells(step, (key, 3))])
    report.tables.append(table)
    note = (
        "large index: the whole of `retrieve`, documents read. Random weights know no threshold: a question gets one "
        "that lets 100 entities through, except the first, which selects none and pays for loading libraries and for "
        "sorting the edges. Peaks of the large cases are those of the whole process."
    )
    report.footnotes = [*report.footnotes, note]


def _index_cases(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    sizes = {"entities": options.large_entities, "triples": options.large_triples, "documents": options.large_documents}
    built: dict[str, Any] = {}
    if not (folder / "index.json").exists():
        arguments = {"folder": str(folder), **sizes, "text_dim": options.text_dim, "seed": options.seed}
        built = run_case("benchmarks.large:build_case", arguments, "building a large index")
        if "failed" in built:
            return built, built
    arguments = {
        "folder": str(folder),
        "text_dim": options.text_dim,
        "hidden_dim": options.large_dim,
        "layers": options.layers,
        "budget": options.large_budget,
        "repeats": options.repeats,
        "seed": options.seed,
    }
    return built, run_case("benchmarks.large:index_case", arguments, "questions on a large index")


def _training_case(options: argparse.Namespace) -> dict[str, Any]:
    arguments = {
        "form": "ours",
        "entities": options.large_entities,
        "triples": options.large_triples,
        "relations": min(20_000, options.large_triples),
        "text_dim": options.text_dim,
        "hidden_dim": options.hidden_dim,
        "layers": options.layers,
        "seed": options.seed,
    }
    timed = {"repeats": options.repeats, **arguments}
    return arguments | run_case("benchmarks.models:training_case", timed, "a training step on a large graph")


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("scaling", __doc__.partition(": ")[2])
    parser.add_argument("--max-edges", type=positive, default=EDGES[-1], help="largest graph of the sweep (1e7)")
    parser.add_argument("--budgets", type=positive, nargs="+", default=[10_000, 1_000], help="K (10_000 1_000)")
    parser.add_argument("--hidden-dim", type=positive, default=64, help="d of sweep and training step (default 64)")
    parser.add_argument("--text-dim", type=positive, default=384, help="size of text embeddings (default 384)")
    parser.add_argument("--layers", type=positive, default=6, help="L (default 6)")
    large = parser.add_argument_group("large graphs")
    large.add_argument("--skip-large", action="store_true", help="only the sweep")
    large.add_argument("--index-folder", type=Path, help="keep the large index here, or use the one that is here")
    large.add_argument("--large-entities", type=positive, default=1_000_000, help="default 1_000_000")
    large.add_argument("--large-triples", type=positive, default=5_000_000, help="default 5_000_000")
    large.add_argument("--large-documents", type=positive, default=100_000, help="default 100_000")
    large.add_argument("--large-dim", type=positive, default=512, help="d of the model that is asked (default 512)")
    large.add_argument("--large-budget", type=positive, default=10_000, help="K (default 10_000)")
    run_benchmark("scaling", parser, run, argv)


if __name__ == "__main__":
    main()
