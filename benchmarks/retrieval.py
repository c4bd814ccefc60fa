"""`python -m benchmarks.retrieval`: one question, exact and with a frontier budget, against the reference."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bandwidth import bound_seconds
from benchmarks.child import FOOTNOTE, run_case
from benchmarks.report import MISSING, Report, Table, cell, cells, new_parser, positive, ratio, run_benchmark, times
from gfm.errors import InputError

SHARES = (0.3, 0.1, 0.03, 0.01)


def cases_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What to time: the label and what differs between the cases."""
    d, small_d = options.hidden_dim, options.small_dim
    exact = {"form": "ours", "hidden_dim": d, "budget": None, "dtype": "float32"}
    cases = [
        {**exact, "label": f"reference d={d}", "form": "reference"},
        {**exact, "label": f"ours, LayerNorm and bias d={d}", "form": "layernorm"},
        {**exact, "label": f"ours, exact d={d}"},
    ]
    for share in SHARES:
        budget = max(1, round(share * options.entities))
        cases.append({**exact, "label": f"ours, K={share:.0%} of V ({budget:,}) d={d}", "budget": budget})
    if options.bfloat16:
        cases.append({**exact, "label": f"ours, exact, bfloat16 d={d}", "dtype": "bfloat16"})
    cases.append({**exact, "label": f"ours, exact d={small_d}", "hidden_dim": small_d})
    return cases


def run(options: argparse.Namespace) -> Report:
    """Times all cases; with an index measures what a budget costs in quality as well."""
    given = (options.index, options.questions, options.checkpoint)
    if any(given) and not all(given):
        raise InputError("give --index, --questions and --checkpoint together: each needs the others")
    for path in filter(None, given):
        if not Path(path).exists():
            raise InputError(f"{path!r} does not exist; check the path")
    quality = _quality(options) if all(given) else None
    names = ("entities", "triples", "relations", "text_dim", "layers", "seeds", "seed")
    shared = {name: getattr(options, name) for name in names}
    rate = run_case("benchmarks.bandwidth:bandwidth", {"repeats": options.repeats}, "bandwidth")
    cases = []
    for different in cases_of(options):
        arguments = {**shared, **{key: value for key, value in different.items() if key != "label"}}
        # Ours asks every question once before it is timed, so that its relations are known; the reference keeps none.
        warmups = 1 if different["form"] == "reference" else options.repeats
        timed = {"repeats": options.repeats, "warmups": warmups, **arguments}
        cases.append({**different, **run_case("benchmarks.models:question_case", timed, different["label"])})
    for case in cases:
        same_size = case["hidden_dim"] == options.hidden_dim
        case["ratio"] = ratio(case, cases[0], "seconds") if same_size else None
        for name in ("first", "new"):
            case[f"{name}_seconds"] = case["seconds"][name] if "seconds" in case else None
        if "gb_per_s" in rate:
            sizes = (options.entities, 2 * options.triples, 2 * options.relations, case["hidden_dim"])
            bound = bound_seconds(*sizes, rate["gb_per_s"], width=2 if case["dtype"] == "bfloat16" else 4)
            case["bound_seconds"] = options.layers * bound["forward_bound_seconds"]
    footnotes = [
        f"one question of {options.seeds} random seeds on a heavy-tailed random graph: propagation and the scores of "
        f"all entities; {options.repeats} different questions. Ours keeps relation states: `new question` is one whose "
        "relations may be new, `seconds` one asked before, `first question` also sorts the edges. The bound is the "
        "time to move what propagation over the whole graph gathers in all layers at "
        f"{cell(rate, 'gb_per_s', 1)} GB/s, measured in this run; it has no matrix products in it.",
        FOOTNOTE,
    ]
    report = Report([_table(options, cases)], {"bandwidth": rate, "cases": cases}, footnotes)
    if quality is not None:
        report.data["quality"] = quality
        report.tables.append(_quality_table(quality, Path(options.questions).name))
    return report


def _table(options: argparse.Namespace, cases: list[dict[str, Any]]) -> Table:
    columns = ["case", "seconds", "ratio", "new question s", "first question s", "bound s", "peak GB above inputs"]
    columns.append("entities with a state")
    sizes = f"V={options.entities:,}, E={2 * options.triples:,}, R={2 * options.relations:,} (inverses included)"
    table = Table(f"one question: {sizes}, L={options.layers}", columns)
    for case in cases:
        figures = (("new_seconds", 3), ("first_seconds", 3), ("bound_seconds", 3), ("peak_gb", 2), ("entities", 0))
        seconds, *others = cells(case, ("seconds", 3), *figures)
        table.rows.append([case["label"], seconds, times(case["ratio"]), *others])
    return table


def _quality(options: argparse.Namespace) -> dict[str, Any]:
    """Quality at every share of the graph; first of all, so that a wrong file does not cost the other cases."""
    arguments = {"index": options.index, "questions": options.questions, "checkpoint": options.checkpoint}
    result = run_case("benchmarks.quality:quality_case", {**arguments, "shares": list(SHARES)}, "quality")
    if "invalid" in result:
        raise InputError(result["invalid"])
    return result


def _quality_table(result: dict[str, Any], name: str) -> Table:
    columns = ["frontier", "K", "R@2", "R@5", "R@2 graph", "R@5 graph", "top-5 shared with exact", "gates s"]
    table = Table(f"{result.get('questions', 'no')} questions of {name}; recall of documents in %", columns)
    keys = ("recall@2", "recall@5", "graph_recall@2", "graph_recall@5", "overlap@5")
    for row in result.get("cases", []):
        share = "exact" if row["share"] is None else f"{row['share']:.0%} of V"
        percent = [cell(row, key, 1, 100) for key in keys]
        table.rows.append([share, cell(row, "budget", 0), *percent, cell(row, "gate_seconds", 4)])
    if "failed" in result:
        table.rows.append([result["failed"], *[MISSING] * (len(columns) - 1)])
    return table


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("retrieval", __doc__.partition(": ")[2])
    parser.add_argument("--entities", type=positive, default=88_000, help="V (default 88_000)")
    parser.add_argument("--triples", type=positive, default=279_000, help="direct edges (default 279_000)")
    parser.add_argument("--relations", type=positive, default=45_000, help="direct relations (default 45_000)")
    parser.add_argument("--text-dim", type=positive, default=384, help="size of text embeddings (default 384)")
    parser.add_argument("--hidden-dim", type=positive, default=512, help="d of most cases (default 512)")
    parser.add_argument("--small-dim", type=positive, default=128, help="d of the small model (default 128)")
    parser.add_argument("--layers", type=positive, default=6, help="L (default 6)")
    parser.add_argument("--seeds", type=positive, default=3, help="seeds of a question (default 3)")
    parser.add_argument("--bfloat16", action="store_true", help="time bfloat16 too; slow without processor support")
    real = parser.add_argument_group("quality on real questions", "all three, or none")
    real.add_argument("--index", metavar="FOLDER", help="a built index")
    real.add_argument("--questions", metavar="FILE", help="questions with their supporting documents")
    real.add_argument("--checkpoint", metavar="FOLDER", help="a trained checkpoint")
    run_benchmark("retrieval", parser, run, argv)


if __name__ == "__main__":
    main()
