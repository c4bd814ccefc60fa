"""Files that matter: their hash, and the certainty that they are on the disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

SUMS = "SHA256SUMS"


def sha256(path: Path) -> str:
    """Hex digest of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def content_fingerprint(hashes: Iterable[str]) -> str:
    """Sixteen hex digits for files or arrays with these hashes, in whatever order they are listed."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()[:16]


def flush(path: Path) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(folder: Path) -> None:
    """Lists the sha256 of every file of a folder in it, as `sha256sum` does, and waits until all is on the disk."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    for path in files:
        flush(path)
    text = "".join(f"{sha256(path)}  {path.name}\n" for path in files)
    (folder / SUMS).write_text(text, encoding="utf-8")
    flush(folder / SUMS)
    flush(folder)


def is_sealed(folder: Path) -> bool:
    """Whether a folder holds exactly the files that `seal` listed, unchanged."""
    try:
        return not broken_files(folder)
    except (OSError, UnicodeDecodeError):
        return False


def broken_files(folder: Path, names: Iterable[str] | None = None) -> list[str]:
    """Names of files that are missing, changed or not listed by `seal`; of `names` alone where given.

    Raises:
        OSError, UnicodeDecodeError: the list itself cannot be read.
    """
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = {path.name for path in folder.iterdir() if path.name != SUMS}
    looked_at = listed.keys() | present if names is None else set(names)
    return sorted(name for name in looked_at if name not in present or sha256(folder / name) != listed.get(name))


def remove(path: Path) -> None:
    """Removes a file or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_folder(partial: Path, folder: Path) -> None:
    """Puts a sealed folder under its name; killed in between, nothing is there rather than half of it."""
    remove(folder)
    os.replace(partial, folder)
    flush(folder.parent)


def cache_folder(name: str) -> Path:
    """A folder for what can be made again: `$GFM_CACHE/name`, else `~/.cache/gfm/name`."""
    root = os.environ.get("GFM_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "gfm") / name
