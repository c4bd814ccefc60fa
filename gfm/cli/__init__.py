"""The command line: `gfm index`, `gfm retrieve`, `gfm eval`, `gfm checkpoint`."""

from __future__ import annotations

import sys

import typer

from gfm.cli import checkpoint, index, retrieval
from gfm.environment import ask_for_huge_pages
from gfm.errors import InputError

# The heavy modules are imported inside the commands: `gfm --help` answers at once.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(index.app, name="index")
app.add_typer(checkpoint.app, name="checkpoint")
app.command("retrieve")(retrieval.retrieve)
app.command("eval")(retrieval.evaluate)


@app.callback()
def _root() -> None:
    """Retrieve minimal sufficient subgraphs, relational paths and documents for a question."""


def main() -> None:
    """Runs the command line; a mistake of the user is one line on stderr and exit code 2."""
    ask_for_huge_pages()
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        raise SystemExit(130) from None
