"""The house rules that a program can check: import direction, forbidden calls, module size, names, paths.

Every rule is a function from source to findings, so that the rule itself is tested on source that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gfm

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("pretrain", "finetune", "inference")
LIBRARY = sorted((ROOT / "gfm").rglob("*.py"))
SOURCES = LIBRARY + [path for stage in STAGES for path in sorted((ROOT / stage).rglob("*.py"))]
MAX_LINES = 350

# What each part of gfm may import besides itself. Nothing points back.
BASE = {"errors", "types", "config", "files", "progress"}
KNOWLEDGE = BASE | {"text", "kg"}
EVIDENCE = KNOWLEDGE | {"nn", "checkpoint", "retrieval"}
ALLOWED = {
    "errors": set[str](),
    "environment": set[str](),
    "files": set[str](),
    "progress": set[str](),
    "types": {"errors"},
    "config": {"errors", "types"},
    "config_files": BASE,
    "memory": set[str](),
    "stage": BASE | {"config_files"},
    "text": BASE,
    "kg": BASE | {"text"},
    "nn": BASE,
    "checkpoint": BASE | {"nn"},
    "training": KNOWLEDGE | {"nn", "checkpoint"},
    "retrieval": KNOWLEDGE | {"nn", "checkpoint"},
    "generation": EVIDENCE,
    "evaluation": EVIDENCE | {"generation", "training"},
    "serving": EVIDENCE | {"generation", "evaluation"},
    "cli": EVIDENCE | {"config_files", "environment", "generation", "evaluation", "training", "serving"},
    "__main__": {"cli"},
}
# A record's own convenience (`Retrieval` renders itself as a prompt), deferred into the method that needs it.
EXCEPTIONS = {("gfm.types", "gfm.generation.prompt")}

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "builtins.eval", "builtins.exec", "torch.load", "yaml.load", "yaml.unsafe_load"}

# The importer of foreign checkpoints, and only with `weights_only=True`.
FOREIGN_WEIGHTS = {("gfm.checkpoint.foreign", "torch.load")}

# Bracketed letters keep the patterns from matching themselves.
MACHINE_PATHS = re.compile(
    r"/wor[k]/(main|shared)\b|/tm[p]/w/|/roo[t]/\.|/hom[e]/[a-z][\w.-]*/|/User[s]/\w+/|[A-Z]:\\User[s]\\"
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, package: str) -> Iterator[tuple[ast.stmt, str]]:
    """Every dotted name that the module imports, wherever the statement stands; `package` resolves relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def direction_findings(source: str, module: str, package: str) -> list[str]:
    """Imports inside gfm that the table does not allow, and imports of stage folders."""
    tree = ast.parse(source)
    part = module.split(".")[1] if "." in module else ""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    deferred = {node for function in functions for node in ast.walk(function)}
    findings = []
    for node, name in imports_of(tree, package):
        top, _, rest = name.partition(".")
        if top in STAGES:
            findings.append(f"{module}:{node.lineno} imports the stage folder {top}")
        if top != "gfm" or not part:  # gfm/__init__.py only forwards names
            continue
        target = rest.partition(".")[0]
        if node in deferred and any(module == here and name.startswith(f"{there}.") for here, there in EXCEPTIONS):
            continue
        if target == "__version__" or target == part or target in ALLOWED.get(part, set()):
            continue
        findings.append(f"{module}:{node.lineno} imports gfm.{rest}; allowed there: {sorted(ALLOWED.get(part, set()))}")
    return findings


def dotted(node: ast.expr) -> str:
    """`torch.load` for the expression `torch.load`, empty for anything that is not a plain dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def danger_findings(source: str, module: str) -> list[str]:
    """Ways to run what was read: pickles in every disguise, `eval`, `exec`, `torch.load`."""
    tree = ast.parse(source)
    findings = []
    for node, name in imports_of(tree, module):
        if name.partition(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS:
            findings.append(f"{module}:{node.lineno} imports {name}")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func) in FORBIDDEN_CALLS and (module, dotted(node.func)) not in FOREIGN_WEIGHTS:
            findings.append(f"{module}:{node.lineno} calls {dotted(node.func)}")
        elif dotted(node.func) == "torch.load" and not any(
            keyword.arg == "weights_only" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            for keyword in node.keywords
        ):
            findings.append(f"{module}:{node.lineno} loads a pickle without weights_only=True")
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                findings.append(f"{module}:{node.lineno} allows pickle")
    return findings


def form_findings(source: str, module: str) -> list[str]:
    """A missing docstring, too many lines, a class named after its place in a hierarchy."""
    tree = ast.parse(source)
    findings = []
    if not ast.get_docstring(tree):
        findings.append(f"{module} has no docstring")
    if (lines := len(source.splitlines())) > MAX_LINES:
        findings.append(f"{module} has {lines} lines (at most {MAX_LINES}); does it hold more than one idea?")
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and re.search(r"^_*Base[A-Z_]|Manager$", node.name):
            findings.append(f"{module}:{node.lineno} class {node.name}; name it after what it does")
    return findings


def project_files() -> list[Path]:
    """Tracked files, and new ones that git does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip(f"not a git checkout: {listing.stderr.strip()}")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_imports_in_the_library_point_one_way() -> None:
    findings = []
    for path in LIBRARY:
        module = module_name(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        findings += direction_findings(path.read_text(encoding="utf-8"), module, package)
    assert findings == []


def test_every_part_of_the_library_has_a_place_in_the_import_order() -> None:
    parts = {path.relative_to(ROOT / "gfm").parts[0].removesuffix(".py") for path in LIBRARY}
    assert parts - {"__init__"} <= ALLOWED.keys()


def test_the_import_order_has_no_cycle() -> None:
    placed: set[str] = set()
    while ready := {part for part, needs in ALLOWED.items() if part not in placed and needs <= placed}:
        placed |= ready
    assert placed == ALLOWED.keys()


@pytest.mark.parametrize(
    "line",
    [
        "from gfm.retrieval.paths import find_paths",
        "import gfm.retrieval",
        "from gfm import retrieval",
        "from gfm import KGIndex",
        "from ..retrieval import paths",
        "from .. import cli",
        "def late():\n    from gfm.cli import main",
        "import pretrain.module",
        "from finetune import data",
    ],
)
def test_an_import_against_the_direction_is_found(line: str) -> None:
    assert len(direction_findings(line, "gfm.kg.build", "gfm.kg")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from gfm.text.names import tokens",
        "from gfm.errors import InputError",
        "from . import graph",
        "from .graph import KnowledgeGraph",
        "from gfm import __version__",
        "import torch",
    ],
)
def test_an_import_along_the_direction_is_accepted(line: str) -> None:
    assert direction_findings(line, "gfm.kg.build", "gfm.kg") == []


def test_the_exception_holds_for_the_deferred_import_only() -> None:
    line = "from gfm.generation.prompt import build_prompt"
    assert direction_findings(f"def render():\n    {line}", "gfm.types", "gfm") == []
    assert len(direction_findings(f"if TYPE_CHECKING:\n    {line}", "gfm.types", "gfm")) == 1
    assert len(direction_findings(line, "gfm.types", "gfm")) == 1
    assert len(direction_findings(f"def render():\n    {line}", "gfm.config", "gfm")) == 1


def test_the_library_runs_nothing_that_it_reads() -> None:
    assert [f for path in LIBRARY for f in danger_findings(path.read_text(encoding="utf-8"), module_name(path))] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "def late():\n    import joblib",
        "eval(text)",
        "exec(text)",
        "import builtins\nbuiltins.eval(text)",
        "torch.load(path)",
        "from torch import load",
        "import yaml\nyaml.load(text)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
    ],
)
def test_a_way_to_run_what_is_read_is_found(line: str) -> None:
    assert len(danger_findings(line, "gfm.kg.build")) == 1


def test_the_importer_of_foreign_weights_may_read_tensors_and_nothing_else() -> None:
    assert danger_findings("torch.load(path, weights_only=True)", "gfm.checkpoint.foreign") == []
    assert len(danger_findings("torch.load(path, weights_only=True)", "gfm.checkpoint.folder")) == 1
    for arguments in ("path", "path, weights_only=False", "path, weights_only=flag"):
        assert len(danger_findings(f"torch.load({arguments})", "gfm.checkpoint.foreign")) == 1


@pytest.mark.parametrize("line", ["model.eval()", "np.load(path, allow_pickle=False)", "yaml.safe_load(text)"])
def test_what_only_looks_dangerous_is_accepted(line: str) -> None:
    assert danger_findings(line, "gfm.kg.build") == []


def test_modules_are_documented_short_and_named_after_what_they_do() -> None:
    assert [f for path in SOURCES for f in form_findings(path.read_text(encoding="utf-8"), module_name(path))] == []


def test_a_breach_of_form_is_found() -> None:
    long = '"""Says what it is."""\n' + "x = 1\n" * MAX_LINES
    assert form_findings('"""Says what it is."""\n\n\nclass Graph:\n    pass\n', "gfm.kg.graph") == []
    assert len(form_findings("x = 1\n", "gfm.kg.graph")) == 1
    assert len(form_findings(long, "gfm.kg.graph")) == 1
    assert len(form_findings('"""Doc."""\nclass BaseRetriever: ...\nclass CacheManager: ...\n', "gfm.kg.graph")) == 2


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
    assert [str(path.relative_to(ROOT)) for path in project_files() if path.name in drawers] == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    findings = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # weights and pictures
        findings += [f"{path.relative_to(ROOT)}: {match[0]}" for match in MACHINE_PATHS.finditer(text)]
    assert findings == []


@pytest.mark.parametrize(
    "folders", ["wor" + "k/shared/data", "tm" + "p/w/venv", "hom" + "e/ann/gfm", "User" + "s/ann/gfm"]
)
def test_a_place_on_somebodys_machine_is_found(folders: str) -> None:
    assert MACHINE_PATHS.search(f"open('/{folders}/x.json')")


def test_importing_the_library_does_not_load_torch() -> None:
    heavy = ["torch", "transformers", "lightning", "lancedb", "numba"]
    code = f"import gfm, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", gfm.__all__)
def test_every_export_resolves(name: str) -> None:
    value = getattr(gfm, name)
    assert name in dir(gfm)
    if name != "__version__":
        assert value.__name__ == name
        assert getattr(gfm, name) is value


def test_an_unknown_export_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        gfm.Nothing  # noqa: B018
