"""Checks who imports whom in onnxq, who knows targets or formats by name, and that tables have types.

Prints each finding with its line, exits with 1.

The tables below are the architecture (docs/architecture.md draws them); every import statement counts, also one inside
a function or under TYPE_CHECKING. Usage: python tools/check_layers.py [folder that holds the onnxq package]

Outside `targets/` no code names a target. What counts is identifiers, imports, names of files and string literals;
docstrings and comments may give examples. A name is a folder of `targets/`, what is registered there as a backend or a
dialect, and PREFIXES, as a word of its own (`sophgo_mq`, `SophgoOption`); and anything that is registered there as an
emitter, refinement, simulation or lint rule, as a whole literal ("dpu_positions"). Where such a word means something
else too, only a literal that is the name (WORDS), or only an import or a comparison (OTHER_MEANINGS) counts.
MAY_NAME_TARGETS are left out: targets, what speaks of MQBench's own names for them, and the modules' former names.

No stage knows a number format by its name: it asks the value (`QuantSpec.format`). Outside of the folders in
MAY_NAME_FORMATS these are branches on names, and wrong:

    dtype == "int8", dtype in ("fp16", "bf16"), case "int8"    a comparison with a name
    dtype.startswith("fp8"), dtype.removeprefix("u")           a text taken apart
    {"int8": ...}                                              a table by name
    ("fp16", "bf16")                                           a list of names that no other type has
    from onnxq.numerics.formats ...                            a class, which could be asked for with isinstance

Saying a name is no branch: QuantSpec("int32"), {"dtype": "fp8_e4m3"}. Names of numpy's and ONNX's own types are
written as such (np.float16) where they are compared.

Outside of MAY_SPELL_UNTYPED nobody writes dict[str, Any] or Mapping[str, Any]: a table of a document is a JsonObject
or a JsonMapping of json_file.py, and what is no document has a type. Where there is none, because a library or a user
says what is in it, the module gives it a name (`ParameterGroup = dict[str, Any]`) or makes it the base of a class.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path

PACKAGE = "onnxq"
ROOT = "__init__"  # the unit of onnxq/__init__.py

FOR_EVERYONE = frozenset(
    {"collector", "errors", "registry", "temporary", "escapes", "files", "glance", "json_file", "machine", "moved",
     "plugins", "progress", "user_code", "version", "warned", "yaml_text"}
)  # fmt: skip
"""Units at the bottom, which every unit after them in the table may import."""


def _units(names: str) -> frozenset[str]:
    return frozenset(names.split())


MAY_IMPORT: dict[str, frozenset[str]] = {
    unit: _units(allowed)
    for unit, allowed in {
        "errors": "",
        "version": "",
        "locks": "",
        "escapes": "",
        "glance": "",
        "text_tables": "",
        "warned": "",
        "progress": "",
        "plugins": "",
        "registry": "",
        "user_code": "",
        "json_file": "",
        "yaml_text": "",
        "temporary": "locks",
        "files": "",
        "collector": "",
        "machine": "",
        "moved": "",
        "distributed": "",
        "chart": "",
        "switch": "locks",
        "output_folder": "locks switch",
        "types": "",
        "match": "",
        "demo": "",
        "numerics": "types",
        "observers": "types numerics",
        "graph": "types",
        "passes": "graph match numerics",
        "strip": "types graph numerics passes",
        "runtime": "types graph numerics observers",
        "half": "types match graph numerics observers runtime",
        "costs": "types graph runtime",
        "place": "types graph match numerics",
        "calibrate": "types graph runtime numerics observers",
        "refine": "types graph",
        "emit": "types graph numerics half",
        "lint": "types graph",
        "verify": "types graph numerics runtime lint",
        "torchnet": "types graph numerics",
        "ptq": "types graph numerics observers runtime costs calibrate emit",
        "ptq.reconstruction": "types graph numerics runtime torchnet ptq",
        "targets": "types graph numerics observers runtime half emit refine lint ptq",
        "config": "types observers runtime refine ptq targets",
        "session": "types graph match observers runtime passes strip place calibrate refine ptq targets config"
        " distributed",
        "prepare": "session",
        "ptq.search": "types graph runtime calibrate refine emit verify ptq config session",
        "pipeline": "types graph runtime passes half place calibrate emit verify output_folder config session ptq"
        " ptq.search text_tables",
        "latency": "types graph runtime emit verify config session ptq ptq.search",
        "mixed_precision": "types graph runtime costs passes place calibrate refine chart output_folder config session"
        " ptq ptq.search",
        "diagnose": "types match graph numerics observers runtime place calibrate refine emit verify targets config"
        " session ptq ptq.search pipeline mixed_precision",
        "page": "types graph numerics observers runtime costs strip place calibrate emit config ptq.search pipeline",
        "diff": "types pipeline page",
        "bench": "types graph runtime verify pipeline mixed_precision",
        "evaluate": "types graph ptq.search pipeline mixed_precision",
        "quantize": "types latency passes verify output_folder distributed config session ptq ptq.search pipeline"
        " mixed_precision diagnose page",
        "qat": "types graph numerics runtime passes calibrate refine emit verify torchnet chart output_folder"
        " distributed config session ptq ptq.search pipeline page",
        "compat": "types graph observers runtime passes targets config session ptq pipeline quantize qat",
        "targets.dialects": "types graph observers passes place targets config session pipeline compat",
        "integrations": "types graph numerics runtime passes calibrate emit verify targets config session ptq"
        " ptq.search pipeline page quantize",
        "cli": "types match graph numerics observers runtime costs passes strip place calibrate refine emit lint verify"
        " targets config session ptq ptq.search pipeline mixed_precision diagnose page diff bench quantize qat compat"
        " demo output_folder distributed text_tables integrations",
        "__main__": "cli",
        ROOT: "types graph passes place calibrate refine emit lint verify targets config session pipeline"
        " mixed_precision diagnose bench evaluate quantize prepare",
    }.items()
}
"""Unit (a package or module directly under onnxq, or one of SUBUNITS) -> the units it may import besides itself and
FOR_EVERYONE. The order is that of the layers: a unit imports only units before it."""

SUBUNITS = {
    "ptq/reconstruction": "ptq.reconstruction",
    "ptq/search": "ptq.search",
    "targets/*/dialect": "targets.dialects",
}
"""Folders inside a package that stand in another layer than the package."""

ONLY_IN: dict[str, frozenset[str]] = {
    "torch": frozenset({"numerics", "torchnet", "qat", "ptq.reconstruction", "distributed"}),
    "onnx_graphsurgeon": frozenset({"graph"}),
    "onnxruntime": frozenset({"runtime", "verify"}),
}
"""Library -> the only units that may import it. torch in numerics: inside functions of number formats."""

MAY_NAME_TARGETS = ("targets/*", "compat/mqbench*", "moved.py")

PREFIXES = frozenset({"dpu"})
"""Chips whose name no folder and no target has."""

WORDS = frozenset({"academic", "weight_only", "qnn"})
"""Names that are words of the field, or of another tool, as well."""

OTHER_MEANINGS = frozenset({"onnxruntime", "nnie", "fake_quantize"})
"""Names of the library that runs models, of a number format, and of its arithmetic."""

TARGET_REGISTRIES = frozenset({"BACKENDS", "DIALECTS"})
PART_REGISTRIES = frozenset({"EMITTERS", "REFINEMENTS", "SIMULATIONS", "LINTS"})


@dataclass(frozen=True)
class TargetNames:
    """What code outside `targets/` must not say: `words` anywhere, `literals` whole, `folders` in imports."""

    words: frozenset[str]
    literals: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def of(cls, targets: Path) -> TargetNames:
        folders = {path.name for path in targets.glob("*/") if path.name != "__pycache__"}
        registered: dict[str, set[str]] = {}
        for path in sorted(targets.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id=registry), attr="add" | "register"),
                        args=[ast.Constant(value=str(name)), *_],
                    ):
                        registered.setdefault(registry, set()).add(name)
        names = folders.union(PREFIXES, *(registered.get(registry, ()) for registry in TARGET_REGISTRIES))
        parts = set().union(*(registered.get(registry, ()) for registry in PART_REGISTRIES))
        return cls(
            frozenset(names - WORDS - OTHER_MEANINGS),
            frozenset((names | parts) - OTHER_MEANINGS),
            frozenset(folders),
        )

    def named_in(self, text: str, *, literal: bool = False) -> str | None:
        """The name that an identifier or a string says; None where it says none."""
        if literal and text.partition(":")[0] in self.literals:
            return text.partition(":")[0]
        plain = text.lower()
        for form in (plain, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()):
            for word in sorted(self.words):
                if word in form and re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z])", form):
                    return word
        return None


MAY_NAME_FORMATS = {
    "numerics/formats": "the formats themselves",
    "targets": "which formats a chip takes, and what its vendor calls them",
    "config": "names that users write",
    "compat": "names that other tools write",
}
"""Folder -> the names of formats that are data there."""

BLOCK_FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "nvfp4", "nf4")
ONLY_FORMATS = frozenset({"fp8_e4m3", "fp8_e5m2", "fp16", "bf16", "bfp16", "nnie8", *BLOCK_FORMATS})
"""Names that nothing but a number format has; numpy and ONNX have types called int8."""
FORMATS = ONLY_FORMATS | {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 17)} | {"int32"}
BEGINNINGS = frozenset({"u", "int", "uint", "fp", "fp8", "bf", "bfp", "nnie"})
TAKE_APART = frozenset({"startswith", "endswith", "removeprefix", "lstrip", "rstrip", "find", "split", "partition"})

MAY_SPELL_UNTYPED = ("config/*", "json_file.py")
"""Files that read and write documents of any kind."""
UNTYPED = frozenset(f"{kind}[str, Any]" for kind in ("dict", "Mapping", "MutableMapping"))


@dataclass(frozen=True)
class Import:
    """One imported module, by its absolute dotted name, and the line that imports it."""

    module: str
    line: int


@functools.lru_cache(maxsize=2048)
def parsed(text: str) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """The syntax of a file and all nodes of it; each is looked at four times."""
    tree = ast.parse(text)
    return tree, tuple(ast.walk(tree))


def check_tree(folder: Path) -> list[str]:
    """Return one line of text for each wrong import of the package in `folder`, in the order of the files."""
    package = folder / PACKAGE
    units = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    findings = []
    for path in sorted(package.rglob("*.py")):
        shown = path.relative_to(folder).as_posix()
        unit = unit_of(path.relative_to(package).as_posix().removesuffix(".py"))
        if unit not in MAY_IMPORT:
            findings.append(f"{shown}:1: '{unit}' is in no table; add it to MAY_IMPORT in tools/check_layers.py")
            continue
        for found in imports_of(path, folder, units):
            problem = problem_of(unit, found.module)
            if problem:
                findings.append(f"{shown}:{found.line}: {problem}")
    return findings


def check_names(folder: Path) -> list[str]:
    """Return one line of text for each place outside `targets/` that names a target."""
    package = folder / PACKAGE
    names = TargetNames.of(package / "targets")
    findings = []
    for path in sorted(package.rglob("*.py")):
        inside, shown = path.relative_to(package).as_posix(), path.relative_to(folder).as_posix()
        if any(fnmatch(inside, pattern) for pattern in MAY_NAME_TARGETS):
            continue
        for line, name in sorted(set(_named(path, inside, names))):
            findings.append(
                f"{shown}:{line}: names '{name}', which belongs to a target: ask the backend, or declare it in the "
                "target's folder"
            )
    return findings


def _named(path: Path, inside: str, names: TargetNames) -> Iterator[tuple[int, str]]:
    """The lines of a file that name a target, and which."""
    _, nodes = parsed(path.read_text(encoding="utf-8"))
    said = [(1, inside.removesuffix(".py"), False)]
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                said.append((node.lineno, text, True))
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                said.append((node.lineno, text, False))
            case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
                said.append((node.lineno, text, False))
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                for alias in aliases:
                    full = f"{module}.{alias.name}"
                    vendor = re.search(rf"\b{PACKAGE}\.targets\.(\w+)", full)
                    if vendor and vendor[1] in names.folders:
                        yield node.lineno, vendor[1]
                    said += [(node.lineno, full, False), (node.lineno, alias.asname or "", False)]
            case ast.Compare():
                for other in _texts(node.left, *node.comparators) & OTHER_MEANINGS:
                    yield node.lineno, other
    for line, text, literal in said:
        name = names.named_in(text, literal=literal)
        if name is not None:
            yield line, name


def unit_of(path: str) -> str:
    """The unit of a module, by its path below the package."""
    for folder, unit in SUBUNITS.items():
        if fnmatch(path, folder) or fnmatch(path, f"{folder}/*"):
            return unit
    return path.partition("/")[0]


def imports_of(path: Path, folder: Path, units: set[str]) -> Iterator[Import]:
    """Yield what a file imports, by absolute name; `from onnxq import graph` counts as onnxq.graph."""
    home = path.relative_to(folder).parts[:-1]
    for node in parsed(path.read_text(encoding="utf-8"))[1]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module != PACKAGE:
                yield Import(module, node.lineno)
                continue
            for alias in node.names:
                yield Import(f"{PACKAGE}.{alias.name}" if alias.name in units else PACKAGE, node.lineno)


def check_formats(folder: Path) -> list[str]:
    """Return one line of text for each line that branches on the name of a number format."""
    package = folder / PACKAGE
    return [
        f"{path.relative_to(folder).as_posix()}:{branch}"
        for path in sorted(package.rglob("*.py"))
        for branch in format_branches(path, package)
    ]


def format_branches(path: Path, package: Path) -> Iterator[str]:
    """Yield each line with a branch on the name of a number format, and what it says."""
    place = path.relative_to(package).as_posix()
    if any(place.startswith(f"{folder}/") for folder in MAY_NAME_FORMATS):
        return
    lines: dict[int, set[str]] = {}
    for node in parsed(path.read_text(encoding="utf-8"))[1]:
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            partly = any(isinstance(part, ast.In | ast.NotIn | ast.Subscript) for part in (*node.ops, *sides))
            found = _texts(*sides) & (FORMATS | BEGINNINGS if partly else FORMATS)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKE_APART:
            found = _texts(*node.args) & (FORMATS | BEGINNINGS)
        elif isinstance(node, ast.Dict):
            found = _texts(*(key for key in node.keys if key is not None)) & FORMATS
        elif isinstance(node, ast.MatchValue):
            found = _texts(node.value) & FORMATS
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            found = _texts(node) & ONLY_FORMATS
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.numerics.formats"):
            found = set() if place.startswith("numerics/") else {str(node.module)}
        else:
            continue
        if found:
            lines.setdefault(node.lineno, set()).update(found)
    for line, said in sorted(lines.items()):
        names = ", ".join(sorted(said))
        yield f"{line}: a branch on the name of a number format ({names}); ask QuantSpec.format instead"


def _texts(*nodes: ast.AST) -> set[str]:
    """The texts that are written out in expressions, and in lists of them."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            found |= _texts(*node.elts)
    return found


def check_untyped(folder: Path) -> list[str]:
    """Return one line of text for each table of anything that has no name."""
    package = folder / PACKAGE
    return [
        f"{path.relative_to(folder).as_posix()}:{line}: {said}: say JsonObject or JsonMapping (onnxq.json_file) where "
        "it is a table of a document, give it a type where it is not"
        for path in sorted(package.rglob("*.py"))
        if not any(fnmatch(path.relative_to(package).as_posix(), pattern) for pattern in MAY_SPELL_UNTYPED)
        for line, said in untyped_tables(path)
    ]


def untyped_tables(path: Path) -> list[tuple[int, str]]:
    """The lines that spell a table of anything, and how; not where it gets a name."""
    tree, nodes = parsed(path.read_text(encoding="utf-8"))
    named = {id(node.value) for node in tree.body if isinstance(node, ast.Assign)}
    named |= {id(base) for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases}
    return sorted(
        (node.lineno, said)
        for node in nodes
        if isinstance(node, ast.Subscript) and id(node) not in named and (said := ast.unparse(node)) in UNTYPED
    )


def allowed_for(unit: str) -> frozenset[str]:
    """The units that a unit may import, itself included."""
    above = takewhile(lambda other: other != unit, MAY_IMPORT)
    return MAY_IMPORT[unit] | {unit} | FOR_EVERYONE.intersection(above)


def check_table(table: Mapping[str, frozenset[str]]) -> list[str]:
    """Return one line of text for each entry that does not stand before its unit; a table without one is acyclic."""
    order = {unit: number for number, unit in enumerate(table)}
    return [
        f"tools/check_layers.py: '{unit}' may import '{other}', which does not stand before it in MAY_IMPORT"
        for unit, allowed in table.items()
        for other in sorted(allowed)
        if order.get(other, len(order)) >= order[unit]
    ]


def problem_of(unit: str, module: str) -> str | None:
    """Say why `unit` may not import `module`, or return None when it may."""
    top, _, rest = module.partition(".")
    if top in ONLY_IN and unit not in ONLY_IN[top]:
        homes = ", ".join(sorted(ONLY_IN[top]))
        return f"'{unit}' imports {module}; only these may: {homes}. Call a function of theirs instead"
    if top != PACKAGE:
        return None
    target = unit_of(rest.replace(".", "/")) if rest else ROOT
    allowed = allowed_for(unit)
    if target in allowed:
        return None
    names = ", ".join(f"{PACKAGE}.{name}" for name in sorted(allowed))
    return f"'{unit}' imports {module}; allowed: {names}. Take the value as an argument, or move the code to its layer"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    if not (folder / PACKAGE).is_dir():
        print(f"there is no package '{PACKAGE}' in {folder}; give the folder that holds it", file=sys.stderr)
        return 2
    imports = check_table(MAY_IMPORT) + check_tree(folder)
    names = check_names(folder)
    branches = check_formats(folder)
    untyped = check_untyped(folder)
    for finding in imports + names + branches + untyped:
        print(finding)
    for findings, what in (
        (imports, "wrong import(s)"),
        (names, "name(s) of targets outside targets/"),
        (branches, "branch(es) on names of number formats"),
        (untyped, "table(s) of anything without a name"),
    ):
        if findings:
            print(f"{len(findings)} {what}")
    return 1 if imports or names or branches or untyped else 0


if __name__ == "__main__":
    gc.disable()  # nothing of the trees of all files is garbage
    sys.exit(main())
