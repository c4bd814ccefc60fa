"""Files of an index folder: atomic JSON, memory-mapped arrays, versioned LanceDB tables."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from gfm.errors import InputError
from gfm.files import flush

if TYPE_CHECKING:
    from lancedb.table import Table

MANIFEST = "index.json"
_LOCK = ".lock"
_LOCK_SECONDS = 60  # writing takes far less; what is slow happens before the lock is asked for
# A process that opened the index before a rebuild may still read documents of the version it opened.
_KEEP_OLD_TABLES = timedelta(days=1)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON so that a reader or a crash sees the old file or the new one, never a part."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="ascii") as file:
        # ASCII escapes: whatever the locale, every str survives.
        json.dump(value, file, ensure_ascii=True, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    flush(path.parent)


def read_json(path: Path) -> Any:
    """Reads JSON of an index.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], names: Mapping[str, list[str]]) -> None:
    """Writes `<name>.npy` and `<name>.json` files into a new folder and flushes them to the disk."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        with (folder / f"{name}.npy").open("wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    for name, texts in names.items():
        write_json(folder / f"{name}.json", texts)
    flush(folder)
    flush(folder.parent)


def open_array(path: Path) -> NDArray[Any]:
    """Maps an array into memory, copy-on-write: torch may wrap it, and nothing reaches the file.

    Raises:
        InputError: the file is missing, shorter than it says, or not an array.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, error) from error
    return array


def write_tables(folder: Path, tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """Writes each table as a new version beside its older ones and returns the version numbers."""
    import lancedb

    database = lancedb.connect(folder)
    existing = set(database.list_tables().tables)
    versions = {}
    for name, data in tables.items():
        mode = "overwrite" if name in existing else "create"
        versions[name] = int(database.create_table(name, data=data, mode=mode).version)
    return versions


def open_table(folder: Path, name: str, version: int) -> Table:
    """Opens a table at a version.

    Raises:
        InputError: the table or the version is not there.
    """
    import lancedb

    try:
        table = lancedb.connect(folder).open_table(name)
        table.checkout(version)
    except (OSError, ValueError, RuntimeError) as error:
        raise damaged(folder / f"{name}.lance", error) from error
    return table


def remove_old_versions(root: Path, version: str, tables: Mapping[str, int]) -> None:
    """Removes what the manifest no longer names: other arrays, unused tables, day-old table versions."""
    import lancedb

    for folder in (root / "arrays").iterdir():
        if folder.name != version:
            shutil.rmtree(folder)
    database = lancedb.connect(root / "lance")
    for name in database.list_tables().tables:
        if name in tables:
            database.open_table(name).optimize(cleanup_older_than=_KEEP_OLD_TABLES)
        else:
            database.drop_table(name)


def check_target(root: Path) -> None:
    """Refuses to write into a folder that holds something else than an index.

    Raises:
        InputError: `root` is a file, or a folder with contents but without an index.
    """
    if root.is_dir() and not (root / MANIFEST).is_file() and not _only_unfinished(root):
        raise InputError(f"{str(root)!r} is not empty and holds no index; name a new folder, nothing was overwritten")
    if root.exists() and not root.is_dir():
        raise InputError(f"{str(root)!r} is a file; name a new folder for the index")


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Holds the index folder for one writer; the lock dies with its process.

    Raises:
        InputError: the folder cannot be made, or another process has been writing this index for a minute.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"index folder {str(root)!r} cannot be made ({error}); name another one") from error
    try:
        with FileLock(root / _LOCK, timeout=_LOCK_SECONDS):
            yield
    except Timeout as error:
        raise InputError(f"another process is writing the index {str(root)!r}; wait until it is done") from error


def bytes_on_disk(root: Path) -> int:
    """Sum of the sizes of all files below a folder."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def damaged(path: Path, error: object) -> InputError:
    """The error for a file of an index that cannot be read."""
    reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error).strip().split("\n")[0]
    return InputError(f"index file {str(path)!r} cannot be read ({reason}); build the index again")


def _only_unfinished(root: Path) -> bool:
    """Whether the folder holds nothing but what a first build leaves when it is killed."""
    names = {path.name for path in root.iterdir()}
    return not names or (_LOCK in names and names <= {_LOCK, "arrays", "lance"})
