"""Checkpoints: the round trip, and one clear error for everything that can be wrong with a folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gfm.checkpoint import Checkpoint, CheckpointInfo, load_checkpoint
from gfm.checkpoint.folder import CARD, CONFIG, PENDING, WEIGHTS
from gfm.config import ModelConfig
from gfm.errors import InputError
from gfm.files import sha256
from gfm.nn.edges import RelationalEdges
from gfm.nn.gnn import QueryConditionedGNN
from gfm.nn.selector import SubgraphSelector
from gfm.nn.states import Seeds

TEXT, MODEL = 6, ModelConfig(hidden_dim=4, num_layers=2, zero_preserving=True)


def made(seed: int = 0, selector: bool = True, model: ModelConfig = MODEL) -> Checkpoint:
    torch.manual_seed(seed)
    gnn = QueryConditionedGNN(TEXT, model.hidden_dim, model.num_layers, model.zero_preserving)
    info = CheckpointInfo(
        TEXT,
        model,
        encoder="hash",
        encoder_fingerprint="0123abcd",
        phase="selector" if selector else "pretrain",
        threshold=0.4,
        seed_weighting="one",
        parent="outputs/größer",
        training={"steps": 3, "metrics": {"mrr": 0.25}, "graphs": ["α", "b"]},
    )
    return Checkpoint(gnn, SubgraphSelector(TEXT, model.hidden_dim) if selector else None, info)


def outputs(checkpoint: Checkpoint) -> list[Tensor]:
    """GNN logits and, with a selector, gate logits and pooled states on a small graph."""
    generator = torch.Generator().manual_seed(9)
    question, relations = torch.randn(2, TEXT, generator=generator), torch.randn(2, TEXT, generator=generator)
    edges = RelationalEdges(torch.tensor([[0, 1, 1, 2], [1, 2, 0, 1]]), torch.tensor([0, 0, 1, 1]), 4, 2)
    seeds = Seeds(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.ones(2))
    with torch.no_grad():
        states = checkpoint.gnn.propagate(question, relations, seeds, edges)
        results = [checkpoint.gnn.logits(states, question)]
        if checkpoint.selector is not None:
            gate = checkpoint.selector(states, question)
            results += [gate, checkpoint.selector.pool(gate.sigmoid(), states, question)]
    return results


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made().save(tmp_path / "model")


def edit(folder: Path, **changes: Any) -> None:
    """Changes keys of `config.json`; None deletes one."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config = {key: value for key, value in (config | changes).items() if value is not None}
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")


def refused(source: str | Path) -> str:
    """The one line that loading fails with."""
    with pytest.raises(InputError) as caught:
        load_checkpoint(source)
    message = str(caught.value)
    assert "\n" not in message and message
    return message


@pytest.mark.parametrize("selector", [True, False])
@pytest.mark.parametrize("zero_preserving", [True, False])
def test_a_checkpoint_gives_the_same_outputs_after_a_round_trip(tmp_path: Path, selector: bool, zero_preserving: bool):
    before = made(selector=selector, model=ModelConfig(4, 3, zero_preserving))
    after = load_checkpoint(before.save(tmp_path / "deep" / "model"))
    assert after.info == before.info
    assert (after.selector is not None) == selector
    for a, b in zip(outputs(before), outputs(after), strict=True):
        assert torch.equal(a, b)


def test_a_loaded_checkpoint_knows_the_digest_of_its_weights(folder: Path):
    assert made().sha256 == ""
    assert load_checkpoint(folder).sha256 == sha256(folder / WEIGHTS)


def test_a_loaded_model_is_in_evaluation_mode(folder: Path):
    checkpoint = load_checkpoint(folder)
    assert checkpoint.selector is not None
    assert not checkpoint.gnn.training and not checkpoint.selector.training


def test_saving_a_loaded_checkpoint_again_gives_the_same_files(folder: Path, tmp_path: Path):
    again = load_checkpoint(str(folder)).save(str(tmp_path / "again" / folder.name))
    assert {p.name: sha256(p) for p in folder.iterdir()} == {p.name: sha256(p) for p in again.iterdir()}
    assert {p.name for p in again.iterdir()} == {WEIGHTS, CONFIG, CARD}


def test_overwriting_replaces_weights_and_facts(folder: Path):
    other = made(seed=5, selector=False)
    other.save(folder)
    loaded = load_checkpoint(folder)
    assert loaded.selector is None and loaded.info == other.info
    assert torch.equal(outputs(loaded)[0], outputs(other)[0])
    assert {p.name for p in folder.iterdir()} == {WEIGHTS, CONFIG, CARD}


def test_files_are_as_readable_as_any_other_new_file(folder: Path):
    plain = folder / "plain"
    plain.write_text("x")
    modes = {p.name: oct(p.stat().st_mode & 0o777) for p in folder.iterdir()}
    assert modes[WEIGHTS] == modes[CONFIG] == modes["plain"]


@pytest.mark.parametrize("survivor", ["before config.json", "before model.safetensors"])
def test_a_write_killed_half_way_leaves_one_whole_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, survivor: str
):
    old, new, replace = made(), made(seed=5), os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(target).name == survivor.removeprefix("before "):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            new.save(folder)
    want = old if survivor == "before config.json" else new
    assert (folder / PENDING).is_file()
    assert torch.equal(outputs(load_checkpoint(folder))[0], outputs(want)[0])
    # The next save tidies up.
    old.save(folder)
    assert {p.name for p in folder.iterdir()} - {f"{CONFIG}.tmp"} == {WEIGHTS, CONFIG, CARD}
    assert torch.equal(outputs(load_checkpoint(folder))[0], outputs(old)[0])


@pytest.mark.parametrize("position", [0, 100, -1])
def test_one_flipped_bit_is_noticed(folder: Path, position: int):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[position] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    assert "damaged or half-written" in refused(folder) and str(folder) in refused(folder)


@pytest.mark.parametrize("left", [0, 5, 500])
def test_a_truncated_file_is_noticed(folder: Path, left: int):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:left])
    assert "damaged or half-written" in refused(folder)


def test_missing_files_are_named(folder: Path, tmp_path: Path):
    (folder / WEIGHTS).unlink()
    assert f"no {WEIGHTS}" in refused(folder)
    (folder / CONFIG).unlink()
    assert f"it has no {CONFIG}" in refused(folder)
    (tmp_path / "empty").mkdir()
    assert "is no checkpoint" in refused(tmp_path / "empty")


@pytest.mark.parametrize("version", [2, 99, "1", 0])
def test_another_format_is_refused(folder: Path, version: object):
    edit(folder, format=version)
    assert f"format {version!r}, this gfm reads 1; update gfm" in refused(folder)


def test_a_newer_format_is_refused_for_its_number_whatever_else_it_holds(folder: Path):
    (folder / CONFIG).write_text('{"format": 2, "parts": []}', encoding="utf-8")
    assert "update gfm" in refused(folder)


@pytest.mark.parametrize("key", ["format", "sha256", "selector", "model", "text_dim", "encoder", "phase"])
def test_a_missing_key_is_named(folder: Path, key: str):
    edit(folder, **{key: None})
    assert key in refused(folder)


def test_an_unexpected_key_is_named(folder: Path):
    edit(folder, colour="red")
    assert "colour" in refused(folder)
    edit(folder, colour=None, model={"hidden_dim": 4, "num_layers": 2, "zero_preserving": True, "heads": 8})
    assert "heads" in refused(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "null", "7", '{"format": 1'])
def test_a_config_that_is_no_mapping_is_damaged(folder: Path, text: str):
    (folder / CONFIG).write_text(text, encoding="utf-8")
    assert CONFIG in refused(folder)


def test_a_config_that_is_no_text_is_damaged(folder: Path):
    (folder / CONFIG).write_bytes(b"\xff\xfe{}")
    assert "damaged" in refused(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": 5},
        {"format": True},
        {"selector": "false"},
        {"threshold": "abc"},
        {"threshold": float("nan")},
        {"threshold": -5},
        {"inverse_text": 5},
        {"entity_votes": "foo"},
        {"seed_weighting": "foo"},
        {"training": []},
        {"encoder": ["a"]},
        {"text_dim": "6"},
        {"text_dim": -6},
        {"text_dim": 10**30},
        {"model": []},
        {"model": {"hidden_dim": "4", "num_layers": 2, "zero_preserving": True}},
        {"model": {"hidden_dim": 4, "num_layers": 1.5, "zero_preserving": True}},
        {"model": {"hidden_dim": 4, "num_layers": 2, "zero_preserving": "false"}},
        {"model": {"hidden_dim": 4, "num_layers": 10**6, "zero_preserving": True}},
        {"model": {"hidden_dim": 10**9, "num_layers": 2, "zero_preserving": True}},
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_is_refused(folder: Path, changes: dict[str, Any]):
    edit(folder, **changes)
    refused(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"text_dim": 7},
        {"model": {"hidden_dim": 5, "num_layers": 2, "zero_preserving": True}},
        {"model": {"hidden_dim": 4, "num_layers": 3, "zero_preserving": True}},
        {"model": {"hidden_dim": 4, "num_layers": 1, "zero_preserving": True}},
        {"model": {"hidden_dim": 4, "num_layers": 2, "zero_preserving": False}},
    ],
    ids=str,
)
def test_weights_that_do_not_fit_the_config_are_refused(folder: Path, changes: dict[str, Any]):
    edit(folder, **changes)
    assert "do not fit its config" in refused(folder)


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Other weights, with their hash in the config."""
    save_file(tensors, folder / WEIGHTS)
    edit(folder, sha256=sha256(folder / WEIGHTS))


def test_a_missing_an_extra_and_a_misshapen_tensor_are_named(folder: Path):
    tensors = load_file(folder / WEIGHTS)
    name = "selector.gate_mlp.0.weight"
    rewrite(folder, {key: value for key, value in tensors.items() if key != name})
    assert "gate_mlp.0.weight" in refused(folder)
    rewrite(folder, tensors | {"gnn.surplus": torch.zeros(1)})
    assert "surplus" in refused(folder)
    rewrite(folder, tensors | {"gnn.score_mlp.2.bias": torch.zeros(2)})
    assert "score_mlp.2.bias" in refused(folder)


def test_a_giant_is_refused_by_the_shapes_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch):
    edit(folder, text_dim=10**6, model={"hidden_dim": 16384, "num_layers": 64, "zero_preserving": True})
    made_on: list[torch.device] = []
    init = QueryConditionedGNN.__init__

    def watched(self: QueryConditionedGNN, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made_on.extend({parameter.device for parameter in self.parameters()})

    monkeypatch.setattr(QueryConditionedGNN, "__init__", watched)
    assert "is missing" in refused(folder)
    assert made_on == [torch.device("meta")]


def test_numbers_that_are_no_weights_are_refused_and_halves_are_read(folder: Path):
    tensors = load_file(folder / WEIGHTS)
    name = "gnn.score_mlp.2.bias"
    rewrite(folder, tensors | {name: torch.full((1,), torch.nan)})
    assert f"{name} holds NaN" in refused(folder)
    rewrite(folder, tensors | {name: torch.ones(1, dtype=torch.int8)})
    assert f"{name} holds torch.int8" in refused(folder)
    rewrite(folder, {key: value.half() for key, value in tensors.items()})
    loaded = load_checkpoint(folder).gnn.state_dict()
    assert all(torch.equal(value, tensors[f"gnn.{key}"].half().float()) for key, value in loaded.items())


def test_weights_that_belong_to_no_part_are_refused(folder: Path):
    rewrite(folder, load_file(folder / WEIGHTS) | {"decoder.weight": torch.zeros(1)})
    assert "decoder.weight" in refused(folder)


def test_a_file_that_is_no_safetensors_is_refused_although_its_hash_fits(folder: Path):
    (folder / WEIGHTS).write_bytes(b"not a tensor file")
    edit(folder, sha256=sha256(folder / WEIGHTS))
    assert str(folder) in refused(folder)


@pytest.mark.parametrize("source", ["nowhere", "./nowhere", "a/b/c", "owner/nothing-here", "bad owner/na me"])
def test_a_source_that_is_neither_folder_nor_hub_id_is_refused(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert repr(source) in refused(source)
    assert repr(str(tmp_path / "absent")) in refused(tmp_path / "absent")


def test_the_weights_file_itself_is_no_source(folder: Path):
    assert "is no folder" in refused(folder / WEIGHTS)


def test_a_copied_folder_loads(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "a b ü")
    assert load_checkpoint(tmp_path / "a b ü").info.threshold == 0.4


def test_the_digest_is_sha256_of_the_content(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_save_after_one_that_was_killed_between_its_two_renames_may_be_killed_as_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, newest = made(seed=1), made(seed=2)
    real_replace = os.replace

    def dies_at(name: str):
        def replace(source: Any, target: Any) -> None:
            if Path(target).name == name:
                raise KeyboardInterrupt
            real_replace(source, target)

        return replace

    monkeypatch.setattr(os, "replace", dies_at(WEIGHTS))
    with pytest.raises(KeyboardInterrupt):
        newer.save(folder)
    monkeypatch.setattr(os, "replace", dies_at(CONFIG))
    with pytest.raises(KeyboardInterrupt):
        newest.save(folder)
    monkeypatch.undo()
    assert all(map(torch.equal, outputs(load_checkpoint(folder)), outputs(newer)))


def test_another_encoder_is_refused_with_both_names() -> None:
    made().check_encoder("renamed", "0123abcd")
    with pytest.raises(InputError, match=r"'hash' \(0123abcd\) but 'other' \(ffff\)"):
        made().check_encoder("other", "ffff")


def test_a_missing_folder_below_an_existing_one_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    assert "is no folder" in refused("checkpoints/absent")


@pytest.mark.parametrize("selector", [True, False])
def test_another_type_makes_a_copy_and_leaves_the_checkpoint_as_it_was(folder: Path, selector: bool) -> None:
    original = load_checkpoint(made(selector=selector).save(folder))
    before = outputs(original)
    half = original.in_dtype(torch.bfloat16)
    assert (half.info, half.sha256, half.gnn.training) == (original.info, original.sha256, False)
    for checkpoint, dtype in ((half, torch.bfloat16), (original, torch.float32)):
        assert (checkpoint.selector is not None) == selector
        parts = [part for part in (checkpoint.gnn, checkpoint.selector) if part is not None]
        assert {parameter.dtype for part in parts for parameter in part.parameters()} == {dtype}
    assert all(map(torch.equal, outputs(original), before))
    assert original.in_dtype(torch.float32) is original
