"""Settings: the order in which layers win, and one clear error for every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gfm.config import (
    BuildConfig,
    EncoderConfig,
    FinetuneConfig,
    GraphConfig,
    InferenceConfig,
    PretrainConfig,
)
from gfm.config_files import load_config, save_config
from gfm.errors import InputError
from gfm.stage import run_stage

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SCHEMAS: dict[str, type[Any]] = {
    "pretrain": PretrainConfig,
    "finetune": FinetuneConfig,
    "inference": InferenceConfig,
    "index": BuildConfig,
}
FRAGMENTS = [CONFIGS / "base.yaml", *sorted((CONFIGS / "model").glob("*.yaml"))]
SWEEPS = sorted((CONFIGS / "sweeps").glob("*.yaml"))
FILES = [path for stage in SCHEMAS for path in sorted((CONFIGS / stage).glob("*.yaml"))]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path | None, *overrides: str, schema: type[Any] = PretrainConfig) -> str:
    """The one line that loading fails with."""
    with pytest.raises(InputError) as caught:
        load_config(path, overrides, schema)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


def test_without_file_and_overrides_the_defaults_hold():
    assert load_config(None, [], PretrainConfig) == PretrainConfig()


def test_later_layers_win(tmp_path: Path):
    write(tmp_path / "first.yaml", "seed: 1\nbatch_size: 1\nout: first\ngraph_temperature: 1.5")
    write(tmp_path / "parts" / "second.yaml", "include: ../third.yaml\nseed: 2\nbatch_size: 2\nout: second")
    write(tmp_path / "third.yaml", "seed: 3\nvalidate_triples: 3")
    own = write(tmp_path / "own.yaml", "include: [first.yaml, parts/second.yaml]\nseed: 4\nbatch_size: 4")
    cfg = load_config(own, ["seed=5", "loss.alpha_bce=0.5"], PretrainConfig)
    # override > own file > last include > its own include > default
    assert (cfg.seed, cfg.batch_size, cfg.out, cfg.validate_triples) == (5, 4, "second", 3)
    assert (cfg.graph_temperature, cfg.loss.alpha_bce, cfg.loss.num_negatives) == (1.5, 0.5, 512)


def test_nested_keys_merge_and_lists_replace(tmp_path: Path):
    write(tmp_path / "base.yaml", "trainer: {max_steps: 7, logger: none}\ngraphs: [{path: a}, {path: b}]")
    own = write(tmp_path / "own.yaml", "include: [base.yaml]\ntrainer: {max_steps: 9}\ngraphs: [{path: c, weight: 2}]")
    cfg = load_config(own, [], PretrainConfig)
    assert (cfg.trainer.max_steps, cfg.trainer.logger) == (9, "none")
    assert cfg.graphs == [GraphConfig("c", weight=2.0)]


def test_an_empty_file_changes_nothing(tmp_path: Path):
    assert load_config(write(tmp_path / "own.yaml", ""), [], PretrainConfig) == PretrainConfig()
    assert load_config(write(tmp_path / "own.yaml", "# words\n"), [], PretrainConfig) == PretrainConfig()


def test_overrides_are_read_as_yaml_values():
    cfg = load_config(
        None,
        ["graphs=[{path: a, domain: web}]", "trainer.max_minutes=null", "out=a=b", "trainer.progress=false", "seed=7"],
        PretrainConfig,
    )
    assert cfg.graphs == [GraphConfig("a", domain="web")]
    assert (cfg.trainer.max_minutes, cfg.out, cfg.trainer.progress, cfg.seed) == (None, "a=b", False, 7)


@pytest.mark.parametrize("key", ["graphs.1.path", "graphs[1].path"])
def test_an_override_may_reach_into_a_list(tmp_path: Path, key: str):
    own = write(tmp_path / "own.yaml", "graphs: [{path: a}, {path: b}]")
    cfg = load_config(own, [f"{key}=c"], PretrainConfig)
    assert [graph.path for graph in cfg.graphs] == ["a", "c"]
    assert "'graphs.2.path=c' does not fit" in refused(own, "graphs.2.path=c")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("sead=1", "sead"),
        ("trainer.steps=1", "steps"),
        ("graphs=[{path: a, colour: red}]", "colour"),
        ("=5", "not in"),
    ],
)
def test_an_unknown_key_is_refused(override: str, named: str):
    assert named in refused(None, override)


def test_an_unknown_key_in_a_file_or_an_include_is_refused(tmp_path: Path):
    own = write(tmp_path / "own.yaml", "trainer:\n  max_step: 3\n")
    assert "max_step" in refused(own)
    assert "max_step" in refused(write(tmp_path / "outer.yaml", "include: own.yaml"))


@pytest.mark.parametrize(
    "override",
    [
        "seed=abc",
        "seed=1.5",
        "seed=null",
        "trainer=5",
        "trainer.max_minutes=soon",
        "loss.alpha_bce=[1]",
        "loss.alpha_bce.x=1",
        "graphs=a",
    ],
)
def test_a_value_of_the_wrong_type_is_refused(override: str):
    refused(None, override)


@pytest.mark.parametrize(
    ("override", "bounds"),
    [
        ("model.hidden_dim=0", "between 1 and 16384"),
        ("loss.alpha_bce=1.01", "between 0 and 1"),
        ("loss.alpha_bce=-0.01", "between 0 and 1"),
        ("loss.alpha_bce=.nan", "between 0 and 1"),
        ("loss.adversarial_temperature=-1", "at least 0"),
        ("trainer.max_steps=0", "at least 1"),
        ("batch_size=0", "at least 1"),
        ("graph_temperature=0", "at least 0.01"),
        ("graphs=[{path: a, weight: -1}]", "between 0 and"),
        ("graph_temperature=.inf", "and finite"),
        ("seed=4294967296", "between 0 and"),
        ("trainer.max_minutes=.inf", "between"),
        ("trainer.max_minutes=0", "between"),
        ("optimizer.lr=1e38", "between 0 and 100"),
        ("optimizer.weight_decay=.inf", "between 0 and 100"),
        ("trainer.precision=16-true", "use 32-true or"),
        ("trainer.precision=transformer-engine", "use 32-true or"),
        ("trainer.accelerator=tpu", "use auto or"),
        ("model.num_layers=65", "between 1 and 64"),
    ],
)
def test_a_value_outside_its_range_is_refused(override: str, bounds: str):
    message = refused(None, override)
    assert bounds in message and override.rpartition("=")[0].split(".")[-1] in message


NEEDED = ["checkpoint=a", "index=b", "questions=c"]  # what an inference config cannot do without


@pytest.mark.parametrize("value", ["0", "-0.1", "-5", "1.5", ".inf", "-.inf", ".nan"])
def test_a_frontier_budget_that_is_neither_share_nor_number_is_refused(value: str):
    message = refused(None, *NEEDED, f"retrieval.frontier_budget={value}", schema=InferenceConfig)
    assert "'retrieval.frontier_budget' is" in message and "share" in message


@pytest.mark.parametrize(
    ("value", "read"), [("0.1", 0.1), ("1", 1.0), ("5000", 5000.0), ("1e-9", 1e-9), ("null", None)]
)
def test_a_frontier_budget_is_a_share_or_a_number(value: str, read: float | None):
    cfg = load_config(None, [*NEEDED, f"retrieval.frontier_budget={value}"], InferenceConfig)
    assert cfg.retrieval.frontier_budget == read
    assert load_config(None, NEEDED, InferenceConfig).retrieval.frontier_budget is None


@pytest.mark.parametrize("value", ["float64", "float16", "half", "''", "BFLOAT16", "load"])
def test_a_type_the_model_does_not_compute_in_is_refused(value: str):
    message = refused(None, *NEEDED, f"retrieval.dtype={value}", schema=InferenceConfig)
    assert "'retrieval.dtype' is" in message and "float32 or bfloat16" in message


@pytest.mark.parametrize("value", ["float32", "bfloat16"])
def test_the_types_the_model_computes_in_are_accepted(value: str):
    assert load_config(None, [*NEEDED, f"retrieval.dtype={value}"], InferenceConfig).retrieval.dtype == value


def test_the_ends_of_a_range_belong_to_it():
    cfg = load_config(None, ["loss.alpha_bce=1", "loss.num_negatives=0", "trainer.max_steps=1"], PretrainConfig)
    assert (cfg.loss.alpha_bce, cfg.loss.num_negatives, cfg.trainer.max_steps) == (1.0, 0, 1)


@pytest.mark.parametrize("override", ["seed", "trainer.max_steps", "", "--seed"])
def test_an_override_without_equals_sign_is_refused(override: str):
    assert f"override {override!r} has no '='" in refused(None, override)


@pytest.mark.parametrize("override", ["out=[", "out=@home", "out={a", 'out="open', "seed=${nowhere}", "seed=${open"])
def test_an_override_that_does_not_parse_is_refused(override: str):
    refused(None, override)


def test_a_value_that_has_to_be_given_is_named(tmp_path: Path):
    assert "'checkpoint' has no value" in refused(None, schema=FinetuneConfig)
    assert "'index' has no value" in refused(None, "checkpoint=a", "questions=b", schema=InferenceConfig)
    assert "'graphs[0].path' has no value" in refused(write(tmp_path / "own.yaml", "graphs: [{domain: web}]"))


def test_a_missing_file_is_named(tmp_path: Path):
    assert repr(str(tmp_path / "absent.yaml")) in refused(tmp_path / "absent.yaml")
    own = write(tmp_path / "own.yaml", "include: [parts/absent.yaml]")
    assert repr(str(tmp_path / "parts" / "absent.yaml")) in refused(own)
    assert repr(str(tmp_path)) in refused(tmp_path)


@pytest.mark.parametrize(
    "text", ["seed: [1", "\tseed: 1", "seed: 1\nseed: 2", "seed: ${nowhere}", "5", "- seed", "word"]
)
def test_a_file_that_is_no_mapping_of_settings_is_refused(tmp_path: Path, text: str):
    refused(write(tmp_path / "own.yaml", text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "own.yaml").write_bytes(b"\xff\x00")
    assert "own.yaml" in refused(tmp_path / "own.yaml")


@pytest.mark.parametrize("include", ["5", "null", "[null]", "[[a.yaml]]", "{a: b}"])
def test_an_include_that_names_no_files_is_refused(tmp_path: Path, include: str):
    refused(write(tmp_path / "own.yaml", f"include: {include}"))


def test_a_file_that_includes_itself_is_refused(tmp_path: Path):
    assert "includes itself" in refused(write(tmp_path / "own.yaml", "include: own.yaml"))


@pytest.mark.parametrize("back", ["own.yaml", "./own.yaml", "../{here}/own.yaml"])
def test_an_include_cycle_is_refused_however_it_is_spelt(tmp_path: Path, back: str):
    own = write(tmp_path / "own.yaml", "include: other.yaml")
    write(tmp_path / "other.yaml", f"include: {back.format(here=tmp_path.name)}")
    assert "includes itself" in refused(own)


def test_a_file_included_twice_side_by_side_is_no_cycle(tmp_path: Path):
    write(tmp_path / "base.yaml", "seed: 3")
    write(tmp_path / "a.yaml", "include: base.yaml")
    own = write(tmp_path / "own.yaml", "include: [a.yaml, base.yaml]")
    assert load_config(own, [], PretrainConfig).seed == 3


def test_every_config_file_has_a_loader_in_this_test():
    assert sorted(FILES + FRAGMENTS + SWEEPS) == sorted(CONFIGS.rglob("*.yaml"))
    assert sorted(CONFIGS.rglob("*.yml")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_config_file_loads_and_says_something(path: Path):
    schema = SCHEMAS[path.parent.name]
    cfg = load_config(path, [], schema)
    required = {"finetune": ["checkpoint=x"], "inference": ["checkpoint=x", "index=x", "questions=x"]}
    assert isinstance(cfg, schema)
    assert cfg != load_config(None, required.get(path.parent.name, []), schema)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.name)
def test_every_sweep_names_settings_that_exist(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_RUN_ID", "run")
    sweep = yaml.safe_load(path.read_text(encoding="utf-8"))
    fixed = [word for word in sweep["command"] if "=" in word]
    config = sweep["command"][sweep["command"].index("--config") + 1]
    swept = [f"{name}={values.get('values', [values.get('min')])[0]}" for name, values in sweep["parameters"].items()]
    assert sweep["method"] in ("grid", "random", "bayes") and sweep["metric"]["name"] == "val/mrr"
    assert sweep["command"][-1] == "${args_no_hyphens}"
    assert load_config(CONFIGS.parent / config, [*fixed, *swept], SCHEMAS[sweep["program"]])


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_fragment_can_be_included(path: Path, tmp_path: Path):
    own = write(tmp_path / "own.yaml", f"include: ['{path}']\nout: mine")
    assert load_config(own, [], PretrainConfig).out == "mine"


def test_a_saved_config_loads_as_the_same_config(tmp_path: Path):
    cfg = load_config(None, ["graphs=[{path: ü, domain: web}]", "seed=7", "loss.alpha_bce=0.125"], PretrainConfig)
    save_config(cfg, tmp_path / "new" / "config.yaml")
    assert load_config(tmp_path / "new" / "config.yaml", [], PretrainConfig) == cfg
    finetune = FinetuneConfig(checkpoint="a: b", encoder=EncoderConfig(name="null"))
    save_config(finetune, str(tmp_path / "finetune.yaml"))
    assert load_config(tmp_path / "finetune.yaml", [], FinetuneConfig) == finetune


def stage(cfg: PretrainConfig) -> Path:
    """Does nothing but answer."""
    if cfg.seed < 0:
        raise InputError(f"seed is {cfg.seed}; give one that is not negative")
    return Path(cfg.out)


def test_a_stage_runs_with_its_file_and_overrides(tmp_path: Path):
    own = write(tmp_path / "own.yaml", "out: from-file\nseed: 2")
    assert run_stage(PretrainConfig, stage, []) == Path("outputs/pretrain")
    assert run_stage(PretrainConfig, stage, ["--config", str(own)]) == Path("from-file")
    assert run_stage(PretrainConfig, stage, ["--config", str(own), "out=other", "seed=1"]) == Path("other")
    assert run_stage(PretrainConfig, stage, ["out=other", "--config", str(own)]) == Path("other")


@pytest.mark.parametrize("arguments", [["seed=-1"], ["sead=1"], ["seed"], ["--config", "absent.yaml"], ["out=["]])
def test_a_mistake_of_the_user_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        run_stage(PretrainConfig, stage, arguments)
    out, err = capsys.readouterr()
    assert caught.value.code == 2 and out == ""
    assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1


def test_a_mistake_of_the_program_is_not_dressed_up():
    def broken(cfg: PretrainConfig) -> Path:
        """Breaks."""
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_stage(PretrainConfig, broken, [])


def test_help_says_what_the_stage_does(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        run_stage(PretrainConfig, stage, ["--help"])
    assert caught.value.code == 0 and "Knowledge graph completion" in capsys.readouterr().out


def test_a_negative_seed_is_refused():
    # numpy's and Lightning's generators take none.
    assert "config key 'seed' is -3; it must be between 0 and 4.29497e+09" in refused(None, "seed=-3")


def test_a_save_that_fails_leaves_the_earlier_config_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_config(load_config(None, ["seed=7"], PretrainConfig), tmp_path / "config.yaml")

    def torn(config: Any, path: Path) -> None:
        path.write_text("seed: ")
        raise KeyboardInterrupt

    monkeypatch.setattr("gfm.config_files.OmegaConf.save", torn)
    with pytest.raises(KeyboardInterrupt):
        save_config(PretrainConfig(), tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml", [], PretrainConfig).seed == 7
