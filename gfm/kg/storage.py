"""Files of an index folder: atomic JSON, memory-mapped arrays, versioned LanceDB tables."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from gfm.errors import InputError
from gfm.files import flush, seal

MANIFEST = "index.json"
_LOCK = ".lock"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], names: Mapping[str, Any]) -> None:
    """Writes `<name>.npy` and `<name>.json` files into a new folder, sealed and flushed to the disk."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        with (folder / f"{name}.npy").open("wb") as file:
            # Not np.save: where the disk is full it raises an error that does not say so.
            whole = np.ascontiguousarray(array)
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(whole))
            file.write(whole.data)
    for name, texts in names.items():
        write_json(folder / f"{name}.json", texts)
    seal(folder)
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


def remove_old_files(root: Path, version: str) -> None:
    """Removes the arrays that the manifest no longer names; what a reader has mapped stays readable to it."""
    for temporary in root.glob(f"{MANIFEST}.*.tmp"):
        temporary.unlink(missing_ok=True)
    for folder in (root / "arrays").iterdir():
        if folder.name != version:
            shutil.rmtree(folder, ignore_errors=True)  # what could not go now goes with the next write


def check_target(root: Path) -> None:
    """Refuses to write into a folder that holds something else than an index.

    Raises:
        InputError: `root` is a file, or a folder with contents but without an index.
    """
    if root.is_dir() and any(root.iterdir()) and not (root / MANIFEST).is_file() and not is_unfinished(root):
        raise InputError(f"{str(root)!r} is not empty and holds no index; name a new folder, nothing was overwritten")
    if root.exists() and not root.is_dir():
        raise InputError(f"{str(root)!r} is a file; name a new folder for the index")


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Holds the index folder for one writer; the lock dies with its process. Readers need none.

    Raises:
        InputError: the folder cannot be made, another process is writing this index, or the disk is full.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"index folder {str(root)!r} cannot be made ({error}); name another one") from error
    try:
        with FileLock(root / _LOCK, timeout=0):
            yield
    except Timeout as error:
        raise InputError(f"another process is writing the index {str(root)!r}; wait until it is done") from error
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise InputError(
            f"there is no room left to write the index {str(root)!r} ({error.strerror}); the version before stays in "
            "force: make room and run the same command again"
        ) from error


def bytes_on_disk(root: Path) -> int:
    """Sum of the sizes of all files below a folder."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def damaged(path: Path, error: object) -> InputError:
    """The error for a file of an index that cannot be read."""
    reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error).strip().split("\n")[0]
    return InputError(f"index file {str(path)!r} cannot be read ({reason}); build the index again")


def is_unfinished(root: Path) -> bool:
    """Whether the folder holds nothing but what a first build leaves when it is killed."""
    names = {path.name for path in root.iterdir()} if root.is_dir() else set()
    names = {name for name in names if not name.startswith(f"{MANIFEST}.")}  # half-written manifests
    return _LOCK in names and names <= {_LOCK, "arrays", "lance"}
