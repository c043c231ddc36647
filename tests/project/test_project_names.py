"""One name, one thing; and none of the words that only the authors understood."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "watchdog" / "hangwatch"
#: The probe runs in another process and shares nothing with us, so it may call its things as we call ours.
APART = {"probe", "demos"}
#: Words of names that were replaced, and by what.
REPLACED = {
    "told": "reported",
    "heard": "owned_by_peer",
    "parted": "diverged",
    "kin": "alternatives",
    "lookalikes": "alternatives",
    "turn": "iteration",
    "turns": "iterations",
    "lanes": "histories",
    "endings": "shutdown",
    "remains": "training_files",
}
#: Names with such a word that mean something else.
MEANT = {"_ENDINGS", "_SIZES_TOLD"}


def definitions() -> Iterator[tuple[str, ast.AST, str]]:
    """Every class, function, argument and variable that the package defines: its file, the node, its name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield file, node, node.name
            elif isinstance(node, ast.arg):
                yield file, node, node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield file, node, node.id


def test_no_two_classes_have_one_name() -> None:
    """A reader who has met a name knows what it is in the next file as well."""
    places = defaultdict(set)
    for file, node, name in definitions():
        if isinstance(node, ast.ClassDef) and not name.startswith("_") and file.split("/")[0] not in APART:
            places[name].add(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_name_has_a_word_that_was_replaced() -> None:
    """The words that are used instead are in docs/architecture.md, under *Words*."""
    found = {
        f"{file}: {name}": REPLACED[word]
        for file, _, name in definitions()
        for word in re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
        if word in REPLACED and name not in MEANT
    }
    assert found == {}
