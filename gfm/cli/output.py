"""What the commands print: JSON, tables of key and value, progress on stderr."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table


def print_json(data: Any) -> None:
    """Prints JSON on stdout, every script as itself."""
    print(json.dumps(data, ensure_ascii=False, indent=1))


def print_info(info: dict[str, Any], json_output: bool) -> None:
    """Prints values by name: as JSON, or one a line."""
    if json_output:
        print_json(info)
        return
    table = Table("", Column(overflow="fold"), show_header=False, box=None)
    for key, value in info.items():
        shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else f"{value}"
        table.add_row(key.replace("_", " "), escape(shown))
    Console().print(table)
