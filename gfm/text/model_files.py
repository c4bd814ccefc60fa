"""What a sentence-transformers folder says about its model without loading the weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gfm.errors import InputError

# Everything that decides what a text is embedded to. Other files (model card, training data list,
# exports to other runtimes) may differ between copies of the same model.
_DECIDING = frozenset(
    {
        "config.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
    }
)


def fingerprint(folder: Path) -> str:
    """Hashes the files that decide the embeddings, in order of their names, whatever the folder's path.

    Returns:
        The first 16 hex digits of SHA-256 over relative name and content of each file.

    Raises:
        InputError: the folder holds no weights.
    """
    files = {path.relative_to(folder).as_posix(): path for path in _deciding_files(folder)}
    if not any(name.endswith((".safetensors", ".bin")) for name in files):
        raise InputError(f"encoder folder {str(folder)!r} has no *.safetensors or *.bin weights; name a complete model")
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{_content_hash(files[name])}\n".encode())
    return digest.hexdigest()[:16]


def dimension(folder: Path) -> int | None:
    """Reads the length of an embedding off the configuration; None where only the loaded model knows."""
    config = _read_json(folder / "config.json")
    dim = config.get("hidden_size") if isinstance(config, dict) else None
    for module, path in _modules(folder):
        settings = _read_json(path / "config.json")
        if module == "Pooling":
            dim = _pooled(settings)
        elif module == "Dense":
            dim = settings.get("out_features")
        elif module not in ("Transformer", "Normalize", "Dropout", "LayerNorm"):
            return None
    return dim if isinstance(dim, int) else None


def _pooled(settings: dict[str, Any]) -> int | None:
    width = settings.get("embedding_dimension", settings.get("word_embedding_dimension"))
    mode = settings.get("pooling_mode")
    if mode is None:
        modes = sum(value is True for key, value in settings.items() if key.startswith("pooling_mode_"))
    else:
        modes = 1 if isinstance(mode, str) else len(mode)
    return width * max(modes, 1) if isinstance(width, int) else None


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module; none for a plain transformers model."""
    listed = _read_json(folder / "modules.json")
    if not isinstance(listed, list):
        return []
    return [(str(module["type"]).rsplit(".", 1)[-1], folder / module["path"]) for module in listed]


def _deciding_files(folder: Path) -> Iterator[Path]:
    for place in {folder, *(path for _, path in _modules(folder) if path.is_dir())}:
        files = [path for path in place.iterdir() if path.is_file()]
        # transformers prefers safetensors, so a stray *.bin beside them changes nothing.
        suffix = ".safetensors" if any(path.suffix == ".safetensors" for path in files) else ".bin"
        for path in files:
            if path.name in _DECIDING or path.suffix in (suffix, ".model"):
                yield path


def _read_json(path: Path) -> Any:
    """The parsed file, or an empty dict where there is none."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"encoder file {str(path)!r} is not JSON ({error}); name a complete model folder") from error


def _content_hash(path: Path) -> str:
    content = hashlib.sha256()  # hashlib.file_digest needs Python 3.11
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            content.update(block)
    return content.hexdigest()
