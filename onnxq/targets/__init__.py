"""Targets, a folder or a file of data each; one from outside is loaded by its path."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from onnxq.errors import ConfigError, did_you_mean
from onnxq.plugins import module_name, run_code
from onnxq.registry import Registry
from onnxq.types import Backend

BACKENDS: Registry[Backend] = Registry("backend", "onnxq.targets")
"""All targets by name; `BACKENDS.add("name", Backend(...))` adds one."""


def get_backend(backend: str | Backend) -> Backend:
    """A backend by name, by the path of a Python file or of a folder of them that registers one, or as it is.

    A name may carry the target's options: "ryzenai:precision=A16W8", "vitis:strategy=fs,academic=yes".
    """
    if isinstance(backend, Backend):
        return backend
    if not isinstance(backend, str):
        raise ConfigError(f"a backend is a name, the path of a file or a Backend, not a {type(backend).__name__}")
    code = _code_and_options(backend)
    if code is None:
        return registered_backend(backend)
    path, chosen = code
    loaded = load_backend(path)
    return _configured(loaded, loaded.name, chosen) if chosen else loaded


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """The target and the options that a text names: "vitis:strategy=fs" -> "vitis", {"strategy": "fs"}."""
    family, _, text = name.partition(":")
    pairs = (part.partition("=") for part in text.split(",") if part)
    return family.strip(), {key.strip(): value.strip() for key, _, value in pairs}


def joined_name(family: str, options: Mapping[str, str]) -> str:
    """The text that names a target with options: the other direction of `split_name`."""
    return f"{family}:{','.join(f'{key}={value}' for key, value in options.items())}" if options else family


def registered_backend(name: str) -> Backend:
    """A backend by its name, perhaps with options; no code is run for it, whatever the name says."""
    family, mark, chosen = name.partition(":")
    if family not in BACKENDS:
        beside = next((path for path in (Path(family), Path(f"{family}.py")) if family and path.exists()), None)
        if beside is not None:
            here = f".{os.sep}{beside}"
            raise ConfigError(
                f"unknown backend '{family}', but there is {here}: a file or folder of one's own is given by its path, "
                f"-b {here}. Known: {', '.join(BACKENDS.names())}"
            )
    return _configured(BACKENDS.get(family), family, chosen) if mark else BACKENDS.get(name)


def file_of_backend(backend: str) -> Path | None:
    """The file of Python, or the folder, that a text names as a backend, perhaps with options; None for a name.

    What follows the name of a backend are its options, whatever they look like: "sophgo:chip=x.py" is no file. A
    folder is told from a name by a separator: "chip/", "./chip", "chip/__init__.py".
    """
    code = _code_and_options(backend)
    return None if code is None else code[0]


def _code_and_options(backend: str) -> tuple[Path, str] | None:
    """The path that a text names, and the options behind it; None for the name of a backend."""
    if backend.partition(":")[0] in BACKENDS:
        return None
    path, is_file, chosen = backend.rpartition(".py")
    if is_file and (not chosen or chosen.startswith(":")):
        file = Path(f"{path}.py")
        return (file.parent if file.name == "__init__.py" else file), chosen.removeprefix(":")
    end = max(backend.rfind(separator) for separator in (os.sep, os.altsep or os.sep)) + 1
    name, _, chosen = backend[end:].partition(":")
    return (Path(backend[:end], name), chosen) if end else None


def _configured(backend: Backend, name: str, text: str) -> Backend:
    """The backend with the options written in `text`: "key=value,key=value"."""
    known = {option.name: option for option in backend.options}
    if not known or backend.configure is None:
        raise ConfigError(f"backend '{name}' has no options, write it without '{text}'")
    values = {option.name: option.default for option in backend.options}
    given: dict[str, str] = {}
    for part in text.split(","):
        key, mark, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            raise ConfigError(
                f"backend '{name}' has no option '{key}'.{did_you_mean(key, known)} Known: {', '.join(known)}"
            )
        if not mark:
            raise ConfigError(f"option '{key}' of backend '{name}' needs a value: {key}={known[key].default}")
        if key in given:
            raise ConfigError(f"option '{key}' of backend '{name}' is given twice")
        allowed = {choice.lower(): choice for choice in known[key].values}
        if value.lower() not in allowed:
            raise ConfigError(
                f"option '{key}' of backend '{name}' cannot be '{value}'.{did_you_mean(value, known[key].values)} "
                f"Known: {', '.join(known[key].values)}"
            )
        given[key] = allowed[value.lower()]
    chosen = {key: given[key] for key, option in known.items() if key in given and given[key] != option.default}
    return backend.configure({**values, **given}).replace(name=joined_name(name, chosen), chosen=chosen)


def load_backend(path: Path) -> Backend:
    """Run a Python file, or a folder of them, that registers one backend (`BACKENDS.add(...)`) and return that backend.

    Code that was run before is run again, and what it registers replaces what it registered then.
    """
    code = path.resolve()
    earlier = sys.modules.get(module_name(code, "backend"))
    if earlier is not None and earlier.__file__ in (str(code), str(code / "__init__.py")):
        BACKENDS.forget(getattr(earlier, "registered_backend", None))
    before = set(BACKENDS.names())
    module = run_code(code, "backend")
    added = [name for name in BACKENDS.names() if name not in before]
    if len(added) != 1:
        raise ConfigError(
            f"{path} must register exactly one backend with onnxq.targets.BACKENDS.add(name, backend), "
            f"it registered {', '.join(added) or 'none'}"
        )
    module.registered_backend = added[0]  # type: ignore[attr-defined]
    return BACKENDS.get(added[0])
