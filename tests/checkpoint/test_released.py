"""The released checkpoints: listed, unaltered, small, and loadable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from gfm.checkpoint import load_checkpoint
from gfm.errors import InputError
from gfm.files import sha256

FOLDER = Path(__file__).resolve().parents[2] / "checkpoints"
MANIFEST = yaml.safe_load((FOLDER / "manifest.yaml").read_text(encoding="utf-8"))


def test_manifest_lists_exactly_the_folders_that_are_there() -> None:
    assert sorted(MANIFEST) == sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_files_have_the_hashes_of_the_manifest(name: str) -> None:
    files = {path.name: sha256(path) for path in (FOLDER / name).iterdir()}
    assert files == MANIFEST[name]["sha256"]
    assert "README.md" in files


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_released_checkpoint_loads_and_stays_below_five_megabytes(name: str) -> None:
    checkpoint = load_checkpoint(FOLDER / name)
    assert checkpoint.selector is not None
    assert checkpoint.info.encoder == MANIFEST[name]["encoder"]
    assert sum(path.stat().st_size for path in (FOLDER / name).iterdir()) <= 5_000_000


@pytest.mark.parametrize("change", ["README.md", "model.safetensors"])
def test_a_released_file_that_was_altered_is_refused(tmp_path: Path, change: str) -> None:
    shutil.copytree(FOLDER, tmp_path / "checkpoints")
    path = tmp_path / "checkpoints" / "gfm-first" / change
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(InputError, match=f"{change}.*manifest.yaml.*copy it again"):
        load_checkpoint(path.parent)
    (tmp_path / "checkpoints" / "manifest.yaml").write_text("other: {sha256: {}}\n", encoding="utf-8")
    if change == "README.md":
        load_checkpoint(path.parent)


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "gfm-first: 3",
        "gfm-first: {}",
        "gfm-first: {sha265: {}}",
        "gfm-first: {sha256: [1]}",
        "gfm-first: {sha256: null}",
        "gfm-first: {sha256: {5: abc}}",
        "gfm-first: {sha256: {README.md: abc}}",
        "gfm-first: {sha256: {../x: abc, config.json: a, model.safetensors: b}}",
        "a: [",
        "gfm-first: 2024-99-99",
        "[" * 20000,
        None,
    ],
)
def test_a_manifest_that_is_none_is_named(tmp_path: Path, text: str | None) -> None:
    shutil.copytree(FOLDER, tmp_path / "checkpoints")
    path = tmp_path / "checkpoints" / "manifest.yaml"
    path.unlink()
    path.mkdir() if text is None else path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest\.yaml' is no manifest of checkpoints"):
        load_checkpoint(tmp_path / "checkpoints" / "gfm-first")
