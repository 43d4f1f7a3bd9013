"""Finds control flow in onnxq that reads sentences: prints each comparison with its line, and exits with 1.

Whoever decides by a text breaks when somebody improves its words; a decision asks a code, an enum or another value. A
text counts as a sentence where a literal has letters and a space, also one that a constant of a module holds.
Usage: python tools/check_texts.py [folder that holds the onnxq package]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "onnxq"

READING = frozenset(
    {
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "partition",
        "rpartition",
        "split",
        "replace",
        "find",
        "index",
        "count",
    }
)
"""Methods of texts that look for their argument."""

WORDS = re.compile(r"[^\W\d_].* | .*[^\W\d_]")
"""A space with a letter somewhere beside it."""

Constants = Mapping[str, ast.expr]
"""Name -> what it is set to."""

ALLOWED: Mapping[str, str] = {
    "onnxq/cli/crash.py": "the stack that Python's faulthandler prints when native code ends the process",
    "onnxq/graph/load.py": "the error of protobuf for bodies that are nested too deep, which has no class of its own",
    "onnxq/runtime/memory.py": "files in which Linux says how much memory there is",
    "onnxq/runtime/messages.py": "messages of onnxruntime, which has no codes for what they say",
}
"""File -> whose sentences it reads, and why there is nothing else to ask."""


def check_tree(folder: Path) -> list[str]:
    """One line of text for each decision by a sentence in the package of `folder`, in the order of the files."""
    paths = sorted((folder / PACKAGE).rglob("*.py"))
    trees = {path.relative_to(folder): ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in paths}
    constants = {".".join(path.with_suffix("").parts): dict(_constants(tree)) for path, tree in trees.items()}
    findings = []
    for path, tree in trees.items():
        shown = path.as_posix()
        if shown in ALLOWED:
            continue
        for line, sentence in sorted(read_sentences(tree, constants)):
            findings.append(
                f"{shown}:{line}: decides by the text {sentence!r}; ask a code or an enum, or say in ALLOWED of "
                "tools/check_texts.py whose words these are"
            )
    return findings


def read_sentences(tree: ast.Module, modules: Mapping[str, Constants]) -> Iterator[tuple[int, str]]:
    """Each (line, sentence) that something is compared with, or that is looked for in a text.

    `modules` has the constants of every module, since a sentence may be imported.
    """
    known = dict(_constants(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            theirs = modules.get(node.module or "", {})
            known |= {alias.asname or alias.name: theirs[alias.name] for alias in node.names if alias.name in theirs}
    for node in ast.walk(tree):
        for read in _read_by(node):
            sentence = _sentence(read, known)
            if sentence is not None:
                yield read.lineno, sentence


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Constants of a module that hold texts."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _read_by(node: ast.AST) -> Iterator[ast.expr]:
    """What a comparison or a method of texts looks at."""
    if isinstance(node, ast.Compare):
        for operator, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            if isinstance(operator, ast.Eq | ast.NotEq):
                yield from (left, right)
            elif isinstance(operator, ast.In | ast.NotIn):
                yield left
                if isinstance(right, ast.Call) and isinstance(right.func, ast.Name) and right.func.id == "str":
                    yield ast.copy_location(ast.Constant(f"of {ast.unparse(right)}"), right)  # what an error says
                if isinstance(right, ast.Tuple | ast.List | ast.Set):
                    yield from right.elts
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_reading(node.func):
        for argument in node.args[:1]:
            yield from argument.elts if isinstance(argument, ast.Tuple) else (argument,)


def _is_reading(function: ast.Attribute) -> bool:
    return function.attr in READING or (isinstance(function.value, ast.Name) and function.value.id == "re")


def _sentence(read: ast.expr, constants: Constants) -> str | None:
    """The words of a text that is written in the code; None for everything else."""
    if isinstance(read, ast.Name) and read.id in constants:
        read = constants[read.id]
    if isinstance(read, ast.Constant) and isinstance(read.value, str):
        text = read.value
    elif isinstance(read, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in read.values)
    else:
        return None
    return text if WORDS.search(re.sub(r"\\.", "", text)) else None  # without escapes of regular expressions


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    if not (folder / PACKAGE).is_dir():
        print(f"there is no package '{PACKAGE}' in {folder}; give the folder that holds it", file=sys.stderr)
        return 2
    findings = check_tree(folder)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} decision(s) by a sentence")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
