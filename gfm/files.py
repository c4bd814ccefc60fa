"""Files that matter: their hash, and the certainty that they are on the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


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


def cache_folder(name: str) -> Path:
    """A folder for what can be made again: `$GFM_CACHE/name`, else `~/.cache/gfm/name`."""
    root = os.environ.get("GFM_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "gfm") / name
