"""`index.json`: which version of an index is in force, and what made it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gfm.errors import InputError
from gfm.kg.storage import MANIFEST, damaged, is_unfinished, read_json
from gfm.types import NamedEncoder

FORMAT = 2
_VERSION = re.compile(r"[0-9a-f]{32}")


def read_manifest(root: Path) -> dict[str, Any]:
    """Reads the manifest of an index.

    Raises:
        InputError: no index there, one of another format, or a damaged manifest.
    """
    path = root / MANIFEST
    if not path.is_file():
        if is_unfinished(root):
            raise InputError(
                f"the index {str(root)!r} was never finished: its first build was interrupted; run the same "
                "`gfm index build` again, it goes on from there"
            )
        raise InputError(f"{str(root)!r} is not an index (it has no {MANIFEST}); make one with `gfm index build`")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise damaged(path, "it names no format")
    if manifest["format"] > FORMAT:
        raise InputError(f"index {str(root)!r} has format {manifest['format']}, this gfm reads {FORMAT}; upgrade gfm")
    if manifest["format"] < FORMAT:
        raise InputError(
            f"index {str(root)!r} has format {manifest['format']} of an older gfm, this one reads {FORMAT}; build it "
            "again with `gfm index build`"
        )
    # The version becomes a folder name: nothing but the form that we write may pass.
    if not _VERSION.fullmatch(str(manifest.get("version"))):
        raise damaged(path, f"its version {manifest.get('version')!r} is not 32 hex digits")
    return manifest


def is_outdated(root: Path) -> bool:
    """Whether a folder holds an index of an older format, which can only be built again."""
    if not (root / MANIFEST).is_file():
        return False
    manifest = read_json(root / MANIFEST)
    return isinstance(manifest, dict) and isinstance(manifest.get("format"), int) and manifest["format"] < FORMAT


def arrays_folder(root: Path, manifest: Mapping[str, Any]) -> Path:
    """Where the arrays of the version in force lie."""
    return root / "arrays" / str(manifest["version"])


def tables_location(root: Path, manifest: Mapping[str, Any]) -> str:
    """Where the tables lie: a URI that the user gave, else `lance/` in the folder of the index."""
    return str(manifest.get("location") or root / "lance")


def other_encoder(root: Path, manifest: Mapping[str, Any], encoder: NamedEncoder) -> InputError:
    """The error for an encoder that did not build the index."""
    built = manifest["encoder"]
    return InputError(
        f"index {str(root)!r} was built with encoder {built['name']!r} (fingerprint {built['fingerprint']}) but "
        f"{encoder.name!r} (fingerprint {encoder.fingerprint}) was given; use the same encoder or build the index again"
    )
