"""Checkpoints among several: the hub's mixin, cards, a load during a save, two saves at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gfm.checkpoint import Checkpoint, load_checkpoint
from gfm.checkpoint.folder import CARD, CONFIG, WEIGHTS
from gfm.errors import InputError
from tests.checkpoint.test_folder import made, outputs


def numbered(number: int) -> Checkpoint:
    """One of several models of one form, whose threshold tells which it is."""
    checkpoint = made(seed=number)
    return replace(checkpoint, info=replace(checkpoint.info, threshold=number / 100))


def is_whole(checkpoint: Checkpoint) -> bool:
    """Whether weights and facts are of the same model."""
    wanted = outputs(numbered(round(checkpoint.info.threshold * 100)))
    return all(map(torch.equal, outputs(checkpoint), wanted))


def test_a_load_during_a_save_gives_the_old_or_the_new_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(1).save(tmp_path / "model")
    read, saves = Path.read_bytes, iter([2, 3])

    def read_after_a_save(path: Path) -> bytes:
        if path.name == WEIGHTS and (number := next(saves, None)):
            numbered(number).save(tmp_path / "model")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_after_a_save)
    loaded = load_checkpoint(tmp_path / "model")
    assert loaded.info.threshold == 0.03 and is_whole(loaded)


def test_two_that_save_into_one_folder_leave_one_whole_checkpoint(tmp_path: Path) -> None:
    models = [numbered(number) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda model: model.save(tmp_path / "model"), models))
    assert is_whole(load_checkpoint(tmp_path / "model"))


def test_the_hubs_mixin_killed_while_it_saves_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(1).save_pretrained(tmp_path)

    def killed(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            numbered(2).save_pretrained(tmp_path)
    loaded = load_checkpoint(tmp_path)
    assert loaded.info.threshold == 0.01 and is_whole(loaded)


@pytest.mark.parametrize("below", ["file/model", "file"])
def test_a_place_that_cannot_be_written_to_is_one_clear_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"no checkpoint can be written to .*file"):
        made().save(tmp_path / below)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 20000])
def test_the_mixin_refuses_what_the_loader_refuses(tmp_path: Path, text: str) -> None:
    made().save(tmp_path)
    (tmp_path / CONFIG).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=CONFIG):
        Checkpoint.from_pretrained(tmp_path)
    with pytest.raises(TypeError, match="revison"):
        Checkpoint.from_pretrained(tmp_path, revison="abc")  # type: ignore[call-arg]


def test_a_name_that_no_file_system_takes_is_no_folder() -> None:
    with pytest.raises(InputError, match="is no folder"):
        load_checkpoint("x" * 5000)


def test_a_card_follows_the_model_and_is_called_as_it_is(tmp_path: Path) -> None:
    made(selector=True).save(tmp_path / "run" / "checkpoint")
    made(selector=False).save(tmp_path / "run" / "checkpoint")
    card = (tmp_path / "run" / "checkpoint" / CARD).read_text(encoding="utf-8")
    assert "\n# run\n" in card and "| Selector | none |" in card
    made().save(tmp_path / "model")
    assert "\n# model\n" in (tmp_path / "model" / CARD).read_text(encoding="utf-8")


def test_the_hubs_mixin_saves_and_loads_what_save_does(tmp_path: Path) -> None:
    original = made(selector=True)
    original.save_pretrained(tmp_path / "hub")
    loaded = Checkpoint.from_pretrained(tmp_path / "hub")
    assert loaded.info == original.info and loaded.sha256
    assert all(map(torch.equal, outputs(loaded), outputs(original)))
    assert "| Phase |" in (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")


def test_a_card_that_was_written_by_hand_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("by hand", encoding="utf-8")
    made().save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "by hand"


def test_a_push_uploads_weights_config_and_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Any] = {}

    def upload(self: Any, *, repo_id: str, folder_path: Path, **rest: Any) -> str:
        sent.update(repo_id=repo_id, files=sorted(path.name for path in Path(folder_path).iterdir()))
        sent["card"] = (Path(folder_path) / CARD).read_text(encoding="utf-8")
        return "url"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi.upload_folder", upload)
    monkeypatch.setattr(
        "huggingface_hub.hub_mixin.HfApi.create_repo", lambda self, repo_id, **_: SimpleNamespace(repo_id=repo_id)
    )
    made().push_to_hub("owner/model")
    assert sent["repo_id"] == "owner/model" and sent["files"] == [CARD, CONFIG, WEIGHTS]
    assert "\n# owner/model\n" in sent["card"] and 'from_pretrained("owner/model", "INDEX")' in sent["card"]


def test_a_push_that_fails_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi.create_repo", unreachable)
    with pytest.raises(InputError, match="'owner/model' was not pushed: ConnectionError no route"):
        made().push_to_hub("owner/model")
