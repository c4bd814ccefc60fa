"""How the command line's tests run it and read what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes import HashEncoder

ROOT = Path(__file__).resolve().parents[2]
ENCODER = HashEncoder()
FACTS = [("Rome", "capital of", "Italy"), ("[/red] Oslo [bold]", "capital of", "Norway"), ("東京", "in", "日本")]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


def check_refused(result: Result, *fragments: object) -> None:
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert lines[0].startswith("error: ")
    assert [fragment for fragment in fragments if str(fragment) not in lines[0]] == []
    assert result.code == 2
    assert result.out == ""


def parsed(result: Result, note: str = "") -> Any:
    assert result.code == 0, result.err
    assert note in result.err if note else result.err == ""
    return json.loads(result.out)


def python(code: str, *arguments: object) -> Result:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return Result(done.returncode, done.stdout, done.stderr)
