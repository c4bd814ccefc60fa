"""`python -m benchmarks.training`: forward and backward of one query, against the reference."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.bandwidth import bound_seconds
from benchmarks.child import FOOTNOTE, run_case
from benchmarks.models import FORMS
from benchmarks.report import Report, Table, cell, cells, new_parser, positive, ratio, run_benchmark, times
from gfm.errors import InputError

LABELS = {
    "reference": "reference (LayerNorm, bias)",
    "layernorm": "ours (LayerNorm, bias)",
    "ours": "ours (zero-preserving)",
}
DEFAULT, HOTPOT = (88_000, 300_000, 45_000), (88_000, 558_000, 90_000)


def run(options: argparse.Namespace) -> Report:
    """Times the three forms on the same graph and queries."""
    sizes = HOTPOT if options.hotpot else DEFAULT
    given = (options.entities, options.edges, options.edge_types)
    entities, edges, edge_types = (size if value is None else value for size, value in zip(sizes, given, strict=True))
    if edges % 2 or edge_types % 2:
        raise InputError(f"--edges {edges} and --edge-types {edge_types} count inverses: give even numbers")
    shared = {"entities": entities, "triples": edges // 2, "relations": edge_types // 2, "repeats": options.repeats}
    shared |= {key: getattr(options, key) for key in ("text_dim", "hidden_dim", "layers", "seed")}
    rate = run_case("benchmarks.bandwidth:bandwidth", {"repeats": options.repeats}, "bandwidth")
    cases = [
        {"form": form, **run_case("benchmarks.models:training_case", {"form": form, **shared}, LABELS[form])}
        for form in FORMS
    ]
    columns = ["case", "seconds", "forward s", "backward s", "ratio", "bound s", "peak GB above inputs"]
    columns.append("peak / reference")
    title = f"training step, one query: V={entities:,}, E={edges:,}, R={edge_types:,} (inverses included)"
    table = Table(f"{title}, d={options.hidden_dim}, L={options.layers}", columns)
    for case in cases:
        case["ratio"] = ratio(case, cases[0], "seconds")
        smaller = ratio(case, cases[0], "peak_gb")
        case["peak_share"] = 1 / smaller if smaller else None
        if "gb_per_s" in rate:
            bound = bound_seconds(entities, edges, edge_types, options.hidden_dim, rate["gb_per_s"])
            case["bound_seconds"] = options.layers * sum(bound.values())
        figures = [(f"{name}seconds", 3) for name in ("", "forward_", "backward_", "bound_")]
        shown = cells(case, *figures, ("peak_gb", 2), ("peak_share", 2))
        table.rows.append([LABELS[case["form"]], *shown[:3], times(case["ratio"]), *shown[3:]])
    note = (
        "tail of a random triple of a heavy-tailed random graph, its own edges hidden, strict negatives, loss of "
        f"phase I, no optimizer; {options.repeats} different queries. Relation states are computed anew in every step. "
        "The bound is the time to move what propagation over the whole graph gathers in all layers, forward and "
        f"backward, at {cell(rate, 'gb_per_s', 1)} GB/s, measured in this run; it has no matrix products in it."
    )
    return Report([table], {"bandwidth": rate, "cases": cases}, [note, FOOTNOTE])


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("training", __doc__.partition(": ")[2])
    parser.add_argument("--hotpot", action="store_true", help="default sizes of 558_000 edges and 90_000 edge types")
    parser.add_argument("--entities", type=positive, help="V (default 88_000)")
    parser.add_argument("--edges", type=positive, help="E, inverses included (default 300_000)")
    parser.add_argument("--edge-types", type=positive, help="R, inverses included (default 45_000)")
    parser.add_argument("--text-dim", type=positive, default=384, help="size of text embeddings (default 384)")
    parser.add_argument("--hidden-dim", type=positive, default=512, help="d (default 512)")
    parser.add_argument("--layers", type=positive, default=6, help="L (default 6)")
    run_benchmark("training", parser, run, argv)


if __name__ == "__main__":
    main()
