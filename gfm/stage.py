"""The command line that all stages share: `python -m STAGE --config FILE key=value ...`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gfm.config_files import load_config
from gfm.errors import InputError

Schema = TypeVar("Schema")


def run_stage(schema: type[Schema], run: Callable[[Schema], Path], argv: list[str] | None = None) -> Path:
    """Builds the stage's config from arguments, runs it, and returns the folder of its result.

    A mistake of the user (`InputError`) is printed as one line and exits with code 2.
    """
    description = (run.__doc__ or "").strip().splitlines()[0]
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="YAML file; may include others")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that win over the file")
    arguments = parser.parse_intermixed_args(argv)
    try:
        result = run(load_config(arguments.config, arguments.overrides, schema))
        if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":  # one of many processes says it
            print(f"result: {result}", file=sys.stderr)
        return result
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
