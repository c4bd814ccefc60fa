"""How YAML files, their includes and `key=value` overrides become one typed object of settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from gfm.errors import InputError

Schema = TypeVar("Schema")


def load_config(path: str | Path | None, overrides: Sequence[str], schema: type[Schema]) -> Schema:
    """Builds a `schema` object from defaults, a YAML file with its includes, and `key=value` overrides.

    Later wins: defaults, then the files a YAML names under `include` (paths relative to it), then the YAML itself,
    then the overrides. A key the schema lacks is refused, since a misspelt setting that is ignored costs a run.

    Raises:
        InputError: missing file, YAML that does not parse, unknown key, wrong type, missing value, include cycle.
    """
    config = OmegaConf.structured(schema)
    try:
        for layer in [] if path is None else _layers(Path(path), ()):
            config = OmegaConf.merge(config, layer)
        for override in overrides:
            _apply(config, override)
        missing = sorted(str(key) for key in OmegaConf.missing_keys(config))
        if missing:
            raise InputError(f"config key {missing[0]!r} has no value; give it as {missing[0]}=... or in the YAML")
        built: Any = OmegaConf.to_object(config)
    except InputError:
        raise
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise InputError(f"config: {_first_line(error)}; see {schema.__name__} in gfm/config") from error
    assert isinstance(built, schema)
    return built


def defaults(schema: type[Any]) -> str:
    """All settings of a schema with their defaults, as YAML; `???` has to be given."""
    return OmegaConf.to_yaml(OmegaConf.structured(schema))


def save_config(config: Any, path: str | Path) -> None:
    """Writes the resolved config as YAML, so that every result says how it was made.

    Whole or not at all.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    OmegaConf.save(OmegaConf.structured(config), temporary)
    os.replace(temporary, path)


def flat_settings(config: Any) -> dict[str, Any]:
    """All settings of a config by dotted key."""
    return _flat(OmegaConf.create(OmegaConf.to_container(OmegaConf.structured(config))))


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted key."""
    items: Iterable[tuple[Any, Any]] = config.items() if isinstance(config, DictConfig) else enumerate(config)
    flat: dict[str, Any] = {}
    for key, value in items:
        if isinstance(value, DictConfig | ListConfig):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _layers(path: Path, including: tuple[Path, ...]) -> list[Any]:
    if not path.is_file():
        raise InputError(f"config file {str(path)!r} does not exist; check the path (it is relative to {Path.cwd()})")
    if path.resolve() in including:
        raise InputError(f"config {path} includes itself by way of {including[-1]}; remove one include")
    try:
        own = OmegaConf.load(path)
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
        raise InputError(f"config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(own, DictConfig):
        raise InputError(f"config {path} holds no mapping; write keys and values")
    included = own.pop("include", [])
    names = [included] if isinstance(included, str) else included
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"config {path}: include is {included!r}; give a file name or a list of them")
    below = (*including, path.resolve())
    return [layer for name in names for layer in _layers(path.parent / name, below)] + [own]


def _apply(config: Any, override: str) -> None:
    """Sets one `key=value` in place; the key may reach into a list (`graphs.0.path=...`)."""
    key, equals, text = override.partition("=")
    if not equals:
        raise InputError(f"override {override!r} has no '='; write key=value, for example trainer.max_steps=100")
    try:
        value = OmegaConf.from_dotlist([f"value={text}"])["value"]
        OmegaConf.update(config, key, value, merge=True)
    except (YAMLError, TypeError, ValueError, IndexError, OmegaConfBaseException) as error:
        raise InputError(f"override {override!r} does not fit: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
