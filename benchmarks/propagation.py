"""`python -m benchmarks.propagation`: the sum of relation-modulated neighbour states, forward and backward."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.bandwidth import bound_seconds
from benchmarks.child import FOOTNOTE, run_case
from benchmarks.graphs import random_graph
from benchmarks.measure import Step, Stopwatch, measure
from benchmarks.report import MISSING, Report, Table, cell, new_parser, positive, ratio, run_benchmark, times
from gfm.errors import InputError
from gfm.nn.relational_spmm import relational_spmm

GRAPHS = ("uniform", "heavy-tailed")
SMALL = {"entities": 50, "triples": 100, "relations": 10}


def prepare(
    *,
    entities: int,
    triples: int,
    relations: int,
    hidden_dim: int,
    batch: int,
    backend: str,
    dtype: str,
    graph: str,
    seed: int,
    device: str,
) -> Step:
    """Inputs of one case, and a step that runs the operation and its gradients once."""
    edges = random_graph(entities, triples, relations, 1, seed, graph == "uniform").edges.to(device)
    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    x = torch.randn(entities, batch, hidden_dim, generator=generator).to(device, kind).requires_grad_()
    rel = torch.randn(2 * relations, hidden_dim, generator=generator).to(device, kind).requires_grad_()

    def step(number: int) -> dict[str, float]:
        watch = Stopwatch(device)
        out = relational_spmm(x, rel, edges, backend)
        forward = watch.lap()
        grad = torch.ones_like(out)  # another layer's work, but its memory counts
        watch.restart()
        torch.autograd.grad(out, (x, rel), grad)
        return {"forward_seconds": forward, "backward_seconds": watch.lap()}

    return step


def case(repeats: int, **arguments: Any) -> dict[str, Any]:
    """What the child process runs."""
    return measure(prepare, arguments, SMALL, repeats, warmups=2, device=arguments["device"])


def run(options: argparse.Namespace) -> Report:
    """All cases, the reference of each graph and batch first."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no GPU here; use --device cpu")
    if options.edges % 2 or options.edge_types % 2:
        raise InputError(
            f"--edges {options.edges}, --edge-types {options.edge_types} count inverses: give even numbers"
        )
    ours = "numba" if options.device == "cpu" else "triton"
    kinds = [("reference", "float32"), ("chunked", "float32"), (ours, "float32"), (ours, "bfloat16")]
    stream = {"repeats": options.repeats, "device": options.device}
    rate = run_case("benchmarks.bandwidth:bandwidth", stream, "bandwidth")
    columns = ["case", "graph", "batch", "forward ms", "backward ms", "forward ratio", "backward ratio"]
    sizes = f"V={options.entities:,}, E={options.edges:,}, R={options.edge_types:,}, d={options.hidden_dim}"
    table = Table(
        f"relational_spmm on {options.device}: {sizes}",
        [*columns, "bound ms (forward, backward)", "peak GB above inputs"],
    )
    cases = []
    for graph in GRAPHS:
        for batch in options.batch:
            rows = [_one(options, graph, batch, *kind, rate) for kind in kinds]
            table.rows += [_row(row, rows[0]) for row in rows]
            cases += rows
    best, read, copy = (cell(rate, key, 1) for key in ("gb_per_s", "read_gb_per_s", "copy_gb_per_s"))
    note = (
        f"bandwidth measured in this run: {best} GB/s (read {read}, copy {copy}); bound = bytes that an edge-by-edge "
        "sum gathers and writes / bandwidth. A cache that keeps the rows of hubs can beat it."
    )
    return Report([table], {"bandwidth": rate, "cases": cases}, [note, FOOTNOTE])


def _one(
    options: argparse.Namespace, graph: str, batch: int, backend: str, dtype: str, rate: dict[str, Any]
) -> dict[str, Any]:
    arguments = {
        "entities": options.entities,
        "triples": options.edges // 2,
        "relations": options.edge_types // 2,
        "hidden_dim": options.hidden_dim,
        "batch": batch,
        "backend": backend,
        "dtype": dtype,
        "graph": graph,
        "seed": options.seed,
        "device": options.device,
    }
    label = f"{backend} {dtype}, {graph}, batch {batch}"
    result = run_case("benchmarks.propagation:case", {"repeats": options.repeats, **arguments}, label)
    if "gb_per_s" in rate:
        sizes = (options.entities, options.edges, options.edge_types, options.hidden_dim)
        result |= bound_seconds(*sizes, rate["gb_per_s"], batch, 2 if dtype == "bfloat16" else 4)
    return {**arguments, **result}


def _row(result: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    bounds = []
    for name in ("forward", "backward"):
        result[f"{name}_ratio"] = ratio(result, reference, f"{name}_seconds")
        if f"{name}_bound_seconds" in result:
            bounds.append(f"{result[f'{name}_bound_seconds'] * 1e3:.1f}")
    label = result["backend"] if result["backend"] in ("reference", "chunked") else f"ours ({result['backend']})"
    if "failed" in result:
        figures = [result["failed"], *[MISSING] * 3]
    else:
        figures = [cell(result, f"{name}_seconds", 1, 1e3) for name in ("forward", "backward")]
        figures += [times(result[f"{name}_ratio"]) for name in ("forward", "backward")]
    case = [f"{label} {result['dtype']}", result["graph"], str(result["batch"])]
    return [*case, *figures, ", ".join(bounds) or MISSING, cell(result, "peak_gb")]


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser("propagation", __doc__.partition(": ")[2])
    parser.add_argument("--entities", type=positive, default=88_000, help="V (default 88_000)")
    parser.add_argument("--edges", type=positive, default=300_000, help="E, inverses included (default 300_000)")
    parser.add_argument("--edge-types", type=positive, default=45_000, help="R, inverses included (default 45_000)")
    parser.add_argument("--hidden-dim", type=positive, default=512, help="d (default 512)")
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 4], help="questions (default 1 4)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default cpu)")
    run_benchmark("propagation", parser, run, argv)


if __name__ == "__main__":
    main()
