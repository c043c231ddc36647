"""Changes values inside frozen structs, found by the types of their fields, so that new fields are covered too. Pure.

For what must hold of every text or every time of a capture, in whatever struct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

#: Returns the new value of one that was chosen.
Change = Callable[[Any], Any]
#: Returns the value with the chosen parts changed, or the value itself if nothing has.
Rewrite = Callable[[Any, Change], Any]
#: True to change a field's plain values, given the struct, the field's name, and the type of a value (``inspect.StrType``).
#: For a tuple or a dict it is asked for the items; keys of dicts are names, and never changed.
Chosen = Callable[[type, str, inspect.Type], bool]

_replace = msgspec.structs.replace
_CLASSES = {
    inspect.StrType: str, inspect.IntType: int, inspect.FloatType: float, inspect.BytesType: bytes, inspect.DictType: dict,
    inspect.VarTupleType: tuple, inspect.TupleType: tuple,
}  # fmt: skip
_PLAIN = (
    inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BytesType, inspect.BoolType, inspect.NoneType,
    inspect.LiteralType,
)  # fmt: skip


def compile_rewrite(shape: type, chosen: Chosen) -> Rewrite:
    """Return a function that changes what is ``chosen`` within a struct of this type.

    Raises ``TypeError`` for types that it cannot handle.
    """
    return _Compiler(chosen).compile(inspect.type_info(shape), shape, "") or _keep


def _keep(value: Any, change: Change) -> Any:
    del change
    return value


def _change(value: Any, change: Change) -> Any:
    after = change(value)
    return value if after == value else after


class _Compiler:
    """Compiles types to rewrites; None for a type in which nothing is chosen, so that it is not walked at all."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._structs: dict[type, Rewrite | None] = {}

    def compile(self, shape: inspect.Type, owner: type, field: str) -> Rewrite | None:
        """Return the rewrite for one type, in that field of that struct; None if nothing in it is chosen."""
        if isinstance(shape, inspect.StructType):
            if shape.cls not in self._structs:
                self._structs[shape.cls] = self._struct(shape)
            return self._structs[shape.cls]
        if isinstance(shape, inspect.VarTupleType):
            item = self.compile(shape.item_type, owner, field)
            return _each(item) if item is not None else None
        if isinstance(shape, inspect.TupleType):
            return _places([self.compile(item, owner, field) for item in shape.item_types])
        if isinstance(shape, inspect.DictType):
            item = self.compile(shape.value_type, owner, field)
            return _values(item) if item is not None else None
        if isinstance(shape, inspect.UnionType):
            return self._union(shape, owner, field)
        if not isinstance(shape, _PLAIN):
            raise TypeError(f"{owner.__name__}.{field}: cannot look into {type(shape).__name__}")
        plain = not isinstance(shape, (inspect.LiteralType, inspect.NoneType))
        return _change if plain and self._chosen(owner, field, shape) else None

    def _struct(self, shape: inspect.StructType) -> Rewrite | None:
        found = [(f.name, self.compile(f.type, shape.cls, f.name)) for f in shape.fields]
        fields = [(name, rewrite) for name, rewrite in found if rewrite is not None]

        def rewrite_struct(value: Any, change: Change) -> Any:
            changed = None
            for name, rewrite in fields:
                before = getattr(value, name)
                if (after := rewrite(before, change)) is not before:
                    changed = changed or {}
                    changed[name] = after
            return value if changed is None else _replace(value, **changed)

        return rewrite_struct if fields else None

    def _union(self, shape: inspect.UnionType, owner: type, field: str) -> Rewrite | None:
        by_class: dict[type, Rewrite] = {}
        for one in shape.types:
            rewrite = self.compile(one, owner, field)
            if rewrite is not None:
                by_class[one.cls if isinstance(one, inspect.StructType) else _CLASSES[type(one)]] = rewrite

        if len(by_class) == 1:
            ((only, rewrite),) = by_class.items()
            return lambda value, change: rewrite(value, change) if type(value) is only else value
        return (lambda value, change: by_class.get(type(value), _keep)(value, change)) if by_class else None


def _each(item: Rewrite) -> Rewrite:
    def rewrite_tuple(value: Any, change: Change) -> Any:
        for one in value:
            if item(one, change) is not one:
                return tuple([item(each, change) for each in value])
        return value

    return rewrite_tuple


def _places(items: list[Rewrite | None]) -> Rewrite | None:
    def rewrite_places(value: Any, change: Change) -> Any:
        return tuple([(item or _keep)(one, change) for item, one in zip(items, value, strict=True)])

    return rewrite_places if any(item is not None for item in items) else None


def _values(item: Rewrite) -> Rewrite:
    def rewrite_dict(value: Any, change: Change) -> Any:
        for one in value.values():
            if item(one, change) is not one:
                return {name: item(each, change) for name, each in value.items()}
        return value

    return rewrite_dict
