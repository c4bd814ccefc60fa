"""The command line that all stages share: `python -m STAGE --config FILE key=value ...`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from gfm.config_files import defaults, load_config
from gfm.errors import InputError

Schema = TypeVar("Schema")


def run_stage(schema: type[Schema], run: Callable[[Schema], Path], argv: list[str] | None = None) -> Path:
    """Builds the stage's config from arguments, runs it, and returns the folder of its result.

    A mistake of the user (`InputError`) is printed as one line and exits with code 2.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {schema.__name__.removesuffix('Config').lower()}",
        description=cleandoc(schema.__doc__ or ""),
        epilog=f"settings and their defaults:\n\n{defaults(schema)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file; may include others")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that win over the file")
    arguments = parser.parse_intermixed_args(argv)
    try:
        result = run(load_config(arguments.config, arguments.overrides, schema))
        if is_first_process():
            print(f"result: {result}", file=sys.stderr)
        return result
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def is_first_process() -> bool:
    """Whether this is the first of the processes that a launcher started, or the only one."""
    return not any(os.environ.get(name, "0") not in ("", "0") for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Makes the folder of a run and keeps other runs out of it until this one ends.

    Raises:
        InputError: another run is writing there, or nothing can be written there.
    """
    if not is_first_process():  # the first one holds the place for all
        yield
        return
    lock = FileLock(out / ".lock", timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InputError(f"another run is writing to {str(out)!r}; wait for it, or give another out") from None
    except OSError as error:
        raise InputError(f"nothing can be written to {str(out)!r} ({error.strerror}); give another out") from error
    try:
        yield
    finally:
        lock.release()
