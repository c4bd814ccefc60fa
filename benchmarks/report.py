"""What all benchmarks share at their edges: options, facts of the machine, Markdown tables and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from gfm.errors import InputError

MISSING = "–"


@dataclass
class Table:
    """Rows of text under a title; the first column is aligned left, the others right."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def markdown(self) -> str:
        """The table as Markdown, padded so that it reads as plain text as well."""
        cells = [list(self.columns), *map(list, self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]

        def line(row: Sequence[str]) -> str:
            padded = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
            return f"| {' | '.join(padded)} |"

        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        return "\n".join([f"**{self.title}**", "", line(self.columns), line(rule), *map(line, self.rows)])


@dataclass
class Report:
    """A benchmark's result: tables to read, the data behind them, and what a reader has to know."""

    tables: list[Table]
    data: dict[str, Any]
    footnotes: Sequence[str] = ()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see --help")


def new_parser(name: str, description: str, repeats: int | None = 5, *, seed: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have; no repeats or seed where nothing is repeated or drawn."""
    parser = _Parser(f"python -m benchmarks.{name}", description=description, allow_abbrev=False)
    if repeats is not None:
        told = f"measured calls a case (default {repeats})"
        parser.add_argument("--repeats", type=positive, default=repeats, help=told)
    if seed:
        parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default 0)")
    parser.add_argument("--out", type=Path, default=None, help=f"JSON file (default outputs/benchmarks/{name}.json)")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the tables")
    return parser


def positive(text: str) -> int:
    """Type of an option: an integer of at least 1; `_` and `e` are allowed, as in `88_000` and `1e6`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value < 1 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(value)


def run_benchmark(
    name: str,
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], Report],
    argv: Sequence[str] | None,
) -> None:
    """Parses, runs, writes the JSON and prints; a mistake of the user is one line and exit code 2."""
    try:
        options = parser.parse_args(argv)
        out = options.out = options.out or Path("outputs", "benchmarks", f"{name}.json")
        if out.is_dir():
            raise InputError(f"--out {str(out)!r} is a folder; give a file name that ends in .json")
        report = run(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    data = {"benchmark": name, "machine": machine_facts(), "options": vars(options), **report.data}
    text = json.dumps(data, indent=1, ensure_ascii=False, default=str)  # paths
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
        return
    form = "{cpu}, {cores} cores, {ram_gb:.0f} GB; torch {torch}, numba {numba}, Python {python}"
    facts = form.format(**data["machine"])
    print("\n\n".join([*(table.markdown() for table in report.tables), facts, *report.footnotes]))


def machine_facts() -> dict[str, Any]:
    """The processor, cores this process may use, memory, and versions of what computes."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "cores": usable,
        "ram_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        "threads": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")},
        "torch": version("torch"),
        "numba": version("numba"),
        "python": platform.python_version(),
    }


def cells(case: dict[str, Any], *columns: tuple[str, int]) -> list[str]:
    """Figures of a case for the table, by key and digits; of a failed case the reason, once."""
    if "failed" in case:
        return [str(case["failed"]), *[MISSING] * (len(columns) - 1)]
    return [cell(case, *column) for column in columns]


def cell(case: dict[str, Any], key: str, digits: int = 2, scale: float = 1.0) -> str:
    """A figure of a case for the table: the median of several, `–` where it is missing."""
    value = case.get(key)
    if isinstance(value, dict):
        value = value["median"]
    return MISSING if value is None else f"{value * scale:,.{digits}f}"


def ratio(case: dict[str, Any], against: dict[str, Any], key: str) -> float | None:
    """How many times the figure of `against` that of `case` is; None where either is missing."""
    if key not in case or key not in against:
        return None
    above, below = (c[key]["median"] if isinstance(c[key], dict) else c[key] for c in (against, case))
    return above / below if below > 0 else None


def times(value: float | None) -> str:
    """A ratio for the table."""
    return MISSING if value is None else f"{value:.1f}×"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
