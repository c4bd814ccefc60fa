"""Released checkpoints are verified: `manifest.yaml` beside their folders lists the sha256 of every file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gfm.errors import InputError
from gfm.files import sha256

MANIFEST = "manifest.yaml"


def check_manifest(folder: Path, required: tuple[str, ...]) -> None:
    """Compares a checkpoint with the manifest beside it, where there is one and it lists the folder.

    Args:
        folder: of the checkpoint.
        required: files that an entry must list.

    Raises:
        InputError: a file that differs, or a manifest that is none.
    """
    folder = folder.resolve()
    path = folder.parent / MANIFEST
    if not path.exists() and not path.is_symlink():
        return
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        listed = _hashes(manifest, folder.name, required)
    except (OSError, yaml.YAMLError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is no manifest of checkpoints: {' '.join(str(error).split())}") from error
    for name, wanted in listed.items():
        if not (folder / name).is_file() or sha256(folder / name) != wanted:
            raise InputError(
                f"{str(folder / name)!r} is not the file that {str(path)!r} lists (sha256 {wanted[:12]}…); "
                "copy it again, or remove its entry if you changed it on purpose"
            )


def _hashes(manifest: Any, name: str, required: tuple[str, ...]) -> dict[str, str]:
    """The hashes of a folder's files; nothing where the manifest does not list the folder."""
    if not isinstance(manifest, dict):
        raise TypeError("it is no mapping of folders")
    if name not in manifest:
        return {}
    entry = manifest[name]
    hashes = entry.get("sha256") if isinstance(entry, dict) else None
    if not isinstance(hashes, dict) or not all(isinstance(part, str) for pair in hashes.items() for part in pair):
        raise TypeError(f"{name} has no sha256 of its files")
    for file in hashes:
        if Path(file).name != file or file in (".", ".."):
            raise ValueError(f"{file!r} is no plain name of a file in {name}")
    if lacking := sorted(set(required) - hashes.keys()):
        raise KeyError(f"{name} does not list {lacking[0]}")
    return hashes
