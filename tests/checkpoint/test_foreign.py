"""Foreign checkpoints: GFM-RAG v1's released layout gives that program's own numbers, and nothing else is taken."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.sparse import csr_array
from typer.testing import CliRunner

from gfm.checkpoint import load_checkpoint
from gfm.checkpoint.foreign import import_gfm_rag
from gfm.cli import app
from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.nn.edges import RelationalEdges
from gfm.nn.states import Seeds
from gfm.retrieval.linking import seed_weights
from gfm.retrieval.ranker import rank_documents, top_k

ENCODER = SimpleNamespace(name="all-mpnet-base-v2", fingerprint="0123456789abcdef", dim=48)


@pytest.fixture
def released(shared_data: Path, tmp_path: Path) -> Path:
    """A writable copy of the released layout."""
    folder = tmp_path / "released"
    shutil.copytree(shared_data.parent / "fixtures" / "gfmrag", folder)
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o755)
    return folder


def test_logits_and_document_scores_are_those_of_the_program_that_trained_it(released: Path, tmp_path: Path) -> None:
    case = {name: torch.from_numpy(array) for name, array in np.load(released / "case.npz", allow_pickle=False).items()}
    import_gfm_rag(released, ENCODER).save(tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    num_entities, num_documents = case["entity_document"].shape
    num_relations = len(case["relation_embeddings"]) // 2
    head, relation, tail = case["triples"].long().unbind(1)
    graph = KnowledgeGraph(
        tuple(map(str, range(num_entities))), tuple(map(str, range(num_relations))), torch.stack([head, tail]), relation
    )
    edges = RelationalEdges(*graph.with_inverses(), num_entities, 2 * num_relations)
    mentions = csr_array(case["entity_document"].numpy())
    question, entity = case["seed_mask"].nonzero(as_tuple=True)
    documents_of = torch.as_tensor((case["entity_document"] != 0).sum(dim=1))
    weight = seed_weights(entity, documents_of.numpy(), checkpoint.info.seed_weighting)
    with torch.no_grad():
        logits = checkpoint.gnn(
            case["question_embeddings"].float(),
            case["relation_embeddings"].float(),
            Seeds(entity, question, weight),
            edges,
        )
    torch.testing.assert_close(logits, case["entity_logits"].float(), rtol=0, atol=1e-4)
    assert checkpoint.info.entity_votes == "one" and num_documents == case["document_scores"].shape[1]
    for row in range(len(logits)):
        scores = rank_documents(np.ones(num_entities), mentions, {}, top_k(logits[row], 20))
        np.testing.assert_allclose(scores, case["document_scores"][row].numpy(), atol=1e-4)


def test_the_import_says_how_the_model_reads_a_graph(released: Path) -> None:
    info = import_gfm_rag(released, ENCODER).info
    assert (info.inverse_text, info.seed_weighting, info.phase) == ("inverse_", "idf", "imported")
    assert info.model.swap_inverses and not info.model.zero_preserving and info.model.num_layers == 6


def edit(folder: Path, *path: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model_config _target_", "gfmrag.models.gfm_rag_v1.QueryGNN"),
        ("model_config _target_", "gfmrag.models.gfm_reasoner.GNNReasoner"),
        ("model_config init_nodes_type", "entity"),
        ("model_config init_nodes_weight", "false"),
        ("model_config use_ent_emb", "late-fusion"),
        ("model_config feat_dim", 48.5),
        ("model_config feat_dim", "48"),
        ("model_config surplus", 1),
        ("model_config ranker _target_", "gfmrag.rankers.SimpleRanker"),
        ("model_config ranker top_k", 5),
        ("model_config entity_model _target_", "gfmrag.models.ultra.models.EntityNBFNet"),
        ("model_config entity_model message_func", "transe"),
        ("model_config entity_model aggregate_func", "pna"),
        ("model_config entity_model short_cut", False),
        ("model_config entity_model layer_norm", "no"),
        ("model_config entity_model activation", "gelu"),
        ("model_config entity_model concat_hidden", True),
        ("model_config entity_model num_mlp_layer", 3),
        ("model_config entity_model dependent", True),
        ("model_config entity_model hidden_dims", [16, 8]),
        ("model_config entity_model hidden_dims", []),
        ("model_config entity_model hidden_dims", None),
        ("model_config entity_model hidden_dims", ["16"]),
        ("text_emb_model_config query_instruct", "Find: "),
        ("text_emb_model_config _target_", "gfmrag.text_emb_models.Qwen3TextEmbModel"),
    ],
)
def test_a_model_that_computes_something_else_is_refused(released: Path, path: str, value: object) -> None:
    edit(released, *path.split(), value=value)
    with pytest.raises(InputError, match=r"config\.json.*no config of a GFM-RAG v1 model that can be imported"):
        import_gfm_rag(released, ENCODER)


def test_a_config_of_the_first_release_says_less_and_means_the_same(released: Path) -> None:
    config = json.loads((released / "config.json").read_text())
    model = config["model_config"]
    for key in ("ranker", "init_nodes_weight", "init_nodes_type"):
        del model[key]
    model["_target_"] = "gfmrag.models.GNNRetriever"
    config["text_emb_model_config"] |= {"normalize": False, "batch_size": 32, "query_instruct": None}
    before = import_gfm_rag(released, ENCODER)
    (released / "config.json").write_text(json.dumps(config))
    after = import_gfm_rag(released, ENCODER)
    assert after.info == before.info and after.info.seed_weighting == "idf"


def test_their_program_leaves_residuals_out_where_nothing_is_said(released: Path) -> None:
    config = json.loads((released / "config.json").read_text())
    del config["model_config"]["entity_model"]["short_cut"]
    (released / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="short_cut is False"):
        import_gfm_rag(released, ENCODER)


def test_two_tensors_for_one_part_and_compressed_parts_are_refused(released: Path) -> None:
    path = released / "model.pth"
    weights = load_file(import_gfm_rag(released, ENCODER).save(released / "ours") / "model.safetensors")
    theirs = {name.removeprefix("gnn."): tensor for name, tensor in weights.items()}
    torch.save({"model": theirs | {"rel_mlp.weight": theirs["relation_projection.weight"]}}, path)
    with pytest.raises(InputError, match="two tensors are for the same part"):
        import_gfm_rag(released, ENCODER)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"0" * 1_000_000)
    with pytest.raises(InputError, match="holds compressed parts"):
        import_gfm_rag(released, ENCODER)


def test_the_command_takes_the_encoder_that_the_model_names_and_replaces_nothing(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("gfm.text.encoder.TextEncoder", lambda name: asked.append(name) or ENCODER)
    runner = CliRunner()
    done = runner.invoke(app, ["checkpoint", "import-gfmrag", str(released), str(tmp_path / "ours"), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["parameters"] > 0
    assert asked == ["sentence-transformers/all-mpnet-base-v2"]
    before = (released / "config.json").read_bytes()
    for out in (released, tmp_path / "ours"):
        refused = runner.invoke(app, ["checkpoint", "import-gfmrag", str(released), str(out)])
        assert isinstance(refused.exception, InputError) and "holds something" in str(refused.exception)
    assert (released / "config.json").read_bytes() == before


def test_an_encoder_of_another_size_is_refused_by_name(released: Path) -> None:
    with pytest.raises(InputError, match=r"size 48.*all-mpnet-base-v2.*'mini' gives 384.*--encoder"):
        import_gfm_rag(released, SimpleNamespace(name="mini", fingerprint="f", dim=384))


def test_weights_that_do_not_fit_are_refused(released: Path) -> None:
    edit(released, "model_config", "entity_model", "hidden_dims", value=[16] * 5)
    with pytest.raises(InputError, match="do not fit its config"):
        import_gfm_rag(released, ENCODER)


class Trap:
    """Something whose unpickling would run code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("trap-was-sprung"),))  # type: ignore[return-value]


def test_a_pickle_that_would_run_code_is_refused_and_not_run(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Trap()}, released / "model.pth")
    with pytest.raises(InputError, match="does not read as a file of nothing but tensors"):
        import_gfm_rag(released, ENCODER)
    assert not (tmp_path / "trap-was-sprung").exists()


@pytest.mark.parametrize("content", [b"", b"not a file of tensors", None])
def test_damaged_or_missing_weights_are_one_clear_error(released: Path, content: bytes | None) -> None:
    path = released / "model.pth"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.pth"):
        import_gfm_rag(released, ENCODER)


def test_a_folder_without_config_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json.*no config of a GFM-RAG v1 model"):
        import_gfm_rag(tmp_path, ENCODER)
