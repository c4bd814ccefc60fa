"""Models on disk: a folder with `model.safetensors` and `config.json`, written atomically, verified at load."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import yaml
from huggingface_hub import ModelHubMixin, snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gfm.checkpoint.card import CARD, write_model_card
from gfm.checkpoint.info import CheckpointInfo
from gfm.config import ModelConfig
from gfm.errors import InputError
from gfm.files import flush, sha256
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
MANIFEST = "manifest.yaml"
PENDING = f"{WEIGHTS}.new"


@dataclass(frozen=True)
class Checkpoint(ModelHubMixin, library_name="gfm", tags=["knowledge-graph", "retrieval"]):
    """A GNN, its selector where one was trained, and what is known about both.

    `sha256` is that of the weights file it was loaded from, empty for one that was not: how a child names its parent.
    """

    gnn: QueryConditionedGNN
    selector: SubgraphSelector | None
    info: CheckpointInfo
    sha256: str = ""

    # The mixin would write its own config.json from the constructor's arguments; ours is written by `save`.
    _hub_mixin_config: ClassVar[dict[str, Any]] = {"format": FORMAT}  # type: ignore[misc]

    def save(self, folder: str | Path) -> Path:
        """Writes the checkpoint; killed at any moment it leaves the old one or the new one, never a mixture.

        The weights wait as `model.safetensors.new` until `config.json`, which holds their hash, is replaced; a reader
        takes whichever of the two files has that hash.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        waiting = folder / PENDING
        _finish_interrupted(folder)
        save_file(self._tensors(), waiting)
        flush(waiting)
        config = {"format": FORMAT, "sha256": sha256(waiting), "selector": self.selector is not None}
        text = json.dumps(config | asdict(self.info), indent=1, ensure_ascii=False, sort_keys=True)
        temporary = folder / f"{CONFIG}.tmp"
        temporary.write_text(text + "\n", encoding="utf-8")
        flush(temporary)
        shutil.copymode(temporary, waiting)
        os.replace(temporary, folder / CONFIG)
        os.replace(waiting, folder / WEIGHTS)
        return folder

    def in_dtype(self, dtype: torch.dtype) -> Checkpoint:
        """The same model computing in `dtype`; a copy where that is not the type its weights have."""
        if self.gnn.question_projection.weight.dtype == dtype:
            return self
        gnn, selector = deepcopy((self.gnn, self.selector))
        return replace(self, gnn=gnn.to(dtype), selector=None if selector is None else selector.to(dtype))

    def check_encoder(self, name: str, fingerprint: str) -> None:
        """Refuses an encoder that did not make the embeddings this model was trained on.

        Raises:
            InputError: the fingerprints differ; the message has both names and fingerprints.
        """
        if fingerprint != self.info.encoder_fingerprint:
            raise InputError(
                f"the checkpoint was trained with encoder {self.info.encoder!r} ({self.info.encoder_fingerprint}) but "
                f"{name!r} ({fingerprint}) is in use; use the checkpoint's encoder, for the index as well"
            )

    def _save_pretrained(self, save_directory: Path) -> None:
        self.save(save_directory)
        if not (save_directory / CARD).exists():
            write_model_card(self, save_directory)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **download: Any) -> Checkpoint:
        names = ("revision", "cache_dir", "token", "local_files_only", "force_download")
        return load_checkpoint(model_id, **{name: download[name] for name in names if name in download})

    def _tensors(self) -> dict[str, Tensor]:
        parts = {"gnn": self.gnn, "selector": self.selector}
        return {
            f"{part}.{name}": tensor.detach().cpu().contiguous()
            for part, module in parts.items()
            if module is not None
            for name, tensor in module.state_dict().items()
        }


def load_checkpoint(source: str | Path, **download: Any) -> Checkpoint:
    """Loads a checkpoint from a local folder or a hub id.

    Args:
        source: the folder or id.
        download: what the hub's client is told besides, such as `revision`.

    Raises:
        InputError: nothing there, a damaged or half-written file, a newer format, or weights that do not fit.
    """
    folder = _resolve(source, download)
    known = _check_manifest(folder)
    config = _read_config(folder)
    digest = config.pop("sha256")
    weights = folder / WEIGHTS if known.get(WEIGHTS) == digest else _weights(folder, digest)
    has_selector = config.pop("selector")
    try:
        info = CheckpointInfo(**(config | {"model": ModelConfig(**config["model"])}))
        tensors = load_file(weights)
    except (TypeError, KeyError, SafetensorError) as error:
        raise InputError(f"checkpoint {str(folder)!r} does not read as format {FORMAT}: {error}") from error
    try:
        gnn = QueryConditionedGNN(info.text_dim, **asdict(info.model))
        selector = SubgraphSelector(info.text_dim, info.model.hidden_dim) if has_selector else None
        parts = {"gnn", "selector"} if has_selector else {"gnn"}
        gnn.load_state_dict(_under("gnn.", tensors))
        if selector is not None:
            selector.load_state_dict(_under("selector.", tensors))
        stray = sorted(name for name in tensors if name.partition(".")[0] not in parts)
        if stray:
            raise RuntimeError(f"unexpected {stray[0]}")
    except (RuntimeError, TypeError) as error:
        raise InputError(f"weights of {str(folder)!r} do not fit its config: {' '.join(str(error).split())}") from error
    return Checkpoint(gnn.eval(), None if selector is None else selector.eval(), info, digest)


def _resolve(source: str | Path, download: Mapping[str, Any]) -> Path:
    folder = Path(source)
    if folder.is_dir():
        return folder
    parts = folder.parts
    if folder.is_absolute() or str(source).startswith(".") or len(parts) != 2 or Path(parts[0]).is_dir():
        raise InputError(f"checkpoint {str(source)!r} is no folder; give a folder with {CONFIG} or a hub id owner/name")
    try:
        return Path(snapshot_download(str(source), allow_patterns=[WEIGHTS, CONFIG, CARD], **download))
    except Exception as error:  # the hub client raises many unrelated classes; all mean it was not found here
        raise InputError(
            f"checkpoint {str(source)!r} is neither a folder nor a reachable hub id ({type(error).__name__}); "
            "check the path"
        ) from error


def _check_manifest(folder: Path) -> dict[str, str]:
    """Compares a released checkpoint with the hashes in the `manifest.yaml` beside it; those that it lists."""
    path = folder.resolve().parent / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        entry = manifest.get(folder.resolve().name, {})
        listed = {str(name): str(digest) for name, digest in entry.get("sha256", {}).items()}
    except (yaml.YAMLError, AttributeError, UnicodeDecodeError) as error:
        raise InputError(f"{str(path)!r} is no manifest of checkpoints: {' '.join(str(error).split())}") from error
    for name, wanted in listed.items():
        if not (folder / name).is_file() or sha256(folder / name) != wanted:
            raise InputError(
                f"{str(folder / name)!r} is not the file that {str(path)!r} lists (sha256 {wanted[:12]}…); "
                "copy it again, or remove its entry if you changed it on purpose"
            )
    return listed


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{str(folder)!r} is no checkpoint: it has no {CONFIG}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        version = config.pop("format")
        missing = {"sha256", "selector", "model"} - config.keys()
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"checkpoint config {str(path)!r} is damaged: {error}") from error
    if version != FORMAT:
        raise InputError(f"checkpoint {str(folder)!r} has format {version!r}, this gfm reads {FORMAT}; update gfm")
    if missing:
        raise InputError(f"checkpoint config {str(path)!r} lacks {sorted(missing)}; copy it again")
    return dict(config)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _weights(folder: Path, wanted: str) -> Path:
    """The weights file with the hash that the config names."""
    present = [folder / name for name in (WEIGHTS, PENDING) if (folder / name).is_file()]
    for path in present:
        if sha256(path) == wanted:
            return path
    what = f"no {WEIGHTS}" if not present else f"a {WEIGHTS} that is damaged or half-written"
    raise InputError(
        f"checkpoint {str(folder)!r} has {what} (sha256 {str(wanted)[:12]}… is wanted); copy the folder again"
    )


def _finish_interrupted(folder: Path) -> None:
    """Puts weights in place that a killed save left waiting although the config already names them."""
    waiting = folder / PENDING
    if waiting.is_file() and (folder / CONFIG).is_file() and sha256(waiting) == _read_config(folder)["sha256"]:
        os.replace(waiting, folder / WEIGHTS)
