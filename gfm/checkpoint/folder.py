"""Models on disk: a folder with `model.safetensors` and `config.json`, written atomically, verified at load."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from filelock import FileLock
from huggingface_hub import ModelHubMixin, snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from gfm.checkpoint.card import CARD, write_model_card
from gfm.checkpoint.info import CheckpointInfo
from gfm.checkpoint.manifest import check_manifest
from gfm.checkpoint.modules import modules_from
from gfm.errors import InputError
from gfm.files import flush, sha256
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
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

    def save(self, folder: str | Path, title: str = "") -> Path:
        """Writes the checkpoint and its card; killed at any moment it leaves the old one or the new one, no mixture.

        The weights wait as `model.safetensors.new` until `config.json`, which holds their hash, is replaced; a reader
        takes whichever of the two files has that hash. One process at a time writes to a folder.

        Args:
            folder: made where it is not there. A card that was written by hand stays.
            title: of the card; the folder's name if empty.

        Raises:
            InputError: the folder cannot be written to.
        """
        folder = Path(folder)
        place = folder.resolve()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(place.with_name(f".{place.name}.lock")):
                self._write(folder)
                write_model_card(self, folder, title)
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"no checkpoint can be written to {str(folder)!r}: {error}; give another folder"
            ) from error
        return folder

    def _write(self, folder: Path) -> None:
        waiting, temporary = folder / PENDING, folder / f"{CONFIG}.tmp"
        _finish_interrupted(folder)
        save_file(self._tensors(), waiting)
        flush(waiting)
        config = {"format": FORMAT, "sha256": sha256(waiting), "selector": self.selector is not None}
        text = json.dumps(config | asdict(self.info), indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
        flush(temporary)
        shutil.copymode(temporary, waiting)
        os.replace(temporary, folder / CONFIG)
        os.replace(waiting, folder / WEIGHTS)
        flush(folder)

    @classmethod
    def of_gnn(cls, weights: Mapping[str, Tensor], info: CheckpointInfo) -> Checkpoint:
        """A checkpoint without a selector from the GNN's weights by name.

        Raises:
            InputError: weights that are no finite numbers, or not those of such a model.
        """
        try:
            gnn, _ = modules_from(info, False, {f"gnn.{name}": tensor for name, tensor in weights.items()})
        except ValueError as error:
            raise InputError(
                f"the trained weights make no checkpoint: {error}; if training left the finite numbers, lower "
                "optimizer.lr or trainer.gradient_clip"
            ) from error
        return cls(gnn, None, info)

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

    def save_pretrained(  # type: ignore[override]  # the mixin's own removes config.json before it writes another
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: Mapping[str, str] | None = None,
        config: None = None,
        **push: Any,
    ) -> str | None:
        """`save`, and `push_to_hub` where that is asked for; the link to the commit is returned then."""
        folder = self.save(save_directory, **(model_card_kwargs or {}))
        return self.push_to_hub(repo_id or folder.name, **push) if push_to_hub else None

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Uploads weights, config and card as one commit; options are those of the hub's mixin.

        Raises:
            InputError: the hub was not reached, or it refused.
        """
        try:
            return super().push_to_hub(repo_id, model_card_kwargs={"title": repo_id}, **options)
        except InputError:
            raise
        except Exception as error:  # the hub client raises many unrelated classes
            first_line = " ".join([type(error).__name__, *str(error).splitlines()[:1]])
            raise InputError(
                f"{repo_id!r} was not pushed: {first_line}; check the name, the network and `hf auth login`"
            ) from error

    @classmethod
    def from_pretrained(  # type: ignore[override]  # the mixin's own reads config.json its own way first
        cls,
        source: str | Path,
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
    ) -> Checkpoint:
        """`load_checkpoint`, with the hub's options."""
        options = {"revision": revision, "cache_dir": cache_dir, "token": token}
        return load_checkpoint(source, **options, local_files_only=local_files_only, force_download=force_download)

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
    try:
        check_manifest(folder, (WEIGHTS, CONFIG))
        config, weights = _read(folder)
    except OSError as error:
        raise InputError(f"checkpoint {str(folder)!r} cannot be read: {error}") from error
    digest, with_selector = config.pop("sha256"), config.pop("selector")
    if type(with_selector) is not bool:
        raise InputError(f"checkpoint {str(folder)!r}: selector is {with_selector!r}; it must be true or false")
    try:
        info = CheckpointInfo.from_json(config)
        tensors = load(weights)
    except (InputError, SafetensorError) as error:
        raise InputError(f"checkpoint {str(folder)!r} does not read as format {FORMAT}: {error}") from error
    try:
        gnn, selector = modules_from(info, with_selector, tensors)
    except ValueError as error:
        raise InputError(f"weights of {str(folder)!r} do not fit its config: {error}") from error
    return Checkpoint(gnn, selector, info, digest)


def _resolve(source: str | Path, download: Mapping[str, Any]) -> Path:
    folder = Path(source)
    try:
        if folder.is_dir():
            return folder
    except OSError as error:
        raise InputError(f"checkpoint {str(source)[:80]!r} is no folder: {error.strerror}") from error
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


def _read(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The config and the content of the weights that it names; where a save comes between, those of the new one."""
    while True:
        config = _read_config(folder)
        # A save that ends between the first look and the second has renamed the waiting weights.
        for name in (WEIGHTS, PENDING, WEIGHTS):
            with suppress(FileNotFoundError):
                content = (folder / name).read_bytes()
                if hashlib.sha256(content).hexdigest() == config["sha256"]:
                    return config, content
        if _read_config(folder) == config:
            what = "a damaged or half-written" if (folder / WEIGHTS).exists() else "no"
            raise InputError(
                f"checkpoint {str(folder)!r} has {what} {WEIGHTS} (sha256 "
                f"{str(config['sha256'])[:12]}… is wanted); copy the folder again"
            )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{str(folder)!r} is no checkpoint: it has no {CONFIG}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        version = config.pop("format")
        missing = {"sha256", "selector", "model"} - config.keys()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise InputError(f"checkpoint config {str(path)!r} is damaged: {error}") from error
    if type(version) is not int or version != FORMAT:
        raise InputError(f"checkpoint {str(folder)!r} has format {version!r}, this gfm reads {FORMAT}; update gfm")
    if missing:
        raise InputError(f"checkpoint config {str(path)!r} lacks {sorted(missing)}; copy it again")
    return dict(config)


def _finish_interrupted(folder: Path) -> None:
    """Puts weights in place that a killed save left waiting although the config already names them."""
    waiting = folder / PENDING
    with suppress(InputError):  # a config that does not read names nothing
        if waiting.is_file() and sha256(waiting) == _read_config(folder)["sha256"]:
            os.replace(waiting, folder / WEIGHTS)
