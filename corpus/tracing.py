"""Which branches of hangwatch's rules and analysis a diagnosis goes through.

Modules of ``ROOMS`` are imported with marks in them: one at the start of every block, and one at every ``return`` that counts
only where what is returned is true. A mark costs one assignment, so a traced diagnosis takes little longer than another.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import TypeVar

#: What decides a verdict: the packages whose branches count.
ROOMS = ("hangwatch.analysis", "hangwatch.causes", "hangwatch.diagnosis", "hangwatch.motion", "hangwatch.program")

_T = TypeVar("_T")
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.While, ast.ExceptHandler, ast.match_case)


class Marks(MetaPathFinder):
    """Marks every module of ``ROOMS`` that is imported from now on. ``places`` says which place each mark is at."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self._seen: set[int] = set()

    def install(self) -> None:
        """Begin. Raises RuntimeError where a module was imported before, which would have no marks."""
        early = [name for name in sys.modules if name.startswith(ROOMS)]
        if early:
            raise RuntimeError(f"imported before they could be marked: {', '.join(sorted(early))}")
        sys.meta_path.insert(0, self)

    def load(self) -> None:
        """Import all modules of ``ROOMS``."""
        for room in filter(importlib.util.find_spec, ROOMS):
            package = importlib.import_module(room)
            for module in pkgutil.walk_packages(package.__path__, f"{room}."):
                importlib.import_module(module.name)

    def take(self) -> int:
        """Return the marks that were passed since the last call, as a number with one bit for each."""
        passed = sum(1 << mark for mark in self._seen)
        self._seen.clear()
        return passed

    def new(self, place: str) -> int:
        """Return the number of a new mark."""
        self.places.append(place)
        return len(self.places) - 1

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module with a loader that marks it; None for all others."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname.startswith(ROOMS) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self)
        return spec

    def mark(self, number: int, value: _T) -> _T:
        """Pass a mark on the way to a value."""
        self._seen.add(number)
        return value

    def mark_true(self, number: int, value: _T) -> _T:
        """Pass a mark if the value is true."""
        if value:
            self._seen.add(number)
        return value


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, marks: Marks) -> None:
        super().__init__(fullname, path)
        self._marks = marks

    def get_code(self, fullname: str) -> CodeType:
        """Compile it anew: what is cached has no marks."""
        path = self.get_filename(fullname)
        tree = _Marker(fullname, self._marks).visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        """Give it what its marks call."""
        vars(module).update(__mark__=self._marks.mark, __mark_true__=self._marks.mark_true)
        super().exec_module(module)


class _Marker(ast.NodeTransformer):
    def __init__(self, module: str, marks: Marks) -> None:
        self._module = module
        self._marks = marks

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Mark the blocks of a node, after those within it."""
        super().generic_visit(node)
        if isinstance(node, _BLOCKS):
            place = getattr(node, "lineno", None) or node.body[0].lineno
            node.body = self._marked(node.body, place)
        if isinstance(node, ast.If):
            node.orelse = self._marked(node.orelse, f"{node.lineno} else")
        elif isinstance(node, ast.IfExp):
            node.body = self._call("__mark__", f"{node.lineno} if", node.body)
            node.orelse = self._call("__mark__", f"{node.lineno} else", node.orelse)
        elif isinstance(node, ast.Return) and node.value is not None:
            node.value = self._call("__mark_true__", f"{node.lineno} true", node.value)
        return node

    def _marked(self, body: list[ast.stmt], place: object) -> list[ast.stmt]:
        return [ast.Expr(self._call("__mark__", place, ast.Constant(None))), *body]

    def _call(self, function: str, place: object, value: ast.expr) -> ast.expr:
        number = self._marks.new(f"{self._module}:{place}")
        return ast.Call(ast.Name(function, ast.Load()), [ast.Constant(number), value], [])
