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

_PLAIN = {
    inspect.StrType: str, inspect.IntType: int, inspect.FloatType: float, inspect.BytesType: bytes, inspect.BoolType: bool,
}  # fmt: skip
_Classes = frozenset[type]


def compile_rewrite(shape: type, chosen: Chosen) -> Rewrite:
    """Return a function that changes what is ``chosen`` within a struct of this type.

    Raises ``TypeError`` for types that it cannot handle.
    """
    rewriter = _Rewriter(chosen)
    classes = rewriter.find(inspect.type_info(shape), shape, "")
    return lambda value, change: rewriter.rewrite(value, change, classes)


class _Rewriter:
    """Finds what is chosen, once, and changes it.

    ``fields``: by struct, those in which something is chosen, with the classes of what is; others are not walked at all.
    """

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self.fields: dict[type, dict[str, _Classes]] = {}

    def find(self, shape: inspect.Type, owner: type, field: str) -> _Classes:
        """Return the classes of the values of this type, in that field of that struct, in which something is chosen."""
        match shape:
            case inspect.StructType():
                if shape.cls not in self.fields:
                    found = {f.name: self.find(f.type, shape.cls, f.name) for f in shape.fields}
                    self.fields[shape.cls] = {name: classes for name, classes in found.items() if classes}
                return frozenset({shape.cls} if self.fields[shape.cls] else ())
            case inspect.VarTupleType(item_type=item) | inspect.DictType(value_type=item):
                return self.find(item, owner, field)
            case inspect.TupleType(item_types=types) | inspect.UnionType(types=types):
                return frozenset().union(*(self.find(one, owner, field) for one in types))
            case inspect.LiteralType() | inspect.NoneType():
                return frozenset()
        if type(shape) not in _PLAIN:
            raise TypeError(f"{owner.__name__}.{field}: cannot look into {type(shape).__name__}")
        return frozenset({_PLAIN[type(shape)]} if self._chosen(owner, field, shape) else ())

    def rewrite(self, value: Any, change: Change, classes: _Classes) -> Any:
        """Return the value with what is chosen changed: in structs and plain values of these classes, and in what holds them."""
        kind = type(value)
        if kind in classes:
            if (fields := self.fields.get(kind)) is None:
                after = change(value)
                return value if after == value else after
            changed = {}
            for name, inner in fields.items():
                before = getattr(value, name)
                if before is not None and (after := self.rewrite(before, change, inner)) is not before:
                    changed[name] = after
            return msgspec.structs.replace(value, **changed) if changed else value
        if kind is tuple:
            for one in value:
                if self.rewrite(one, change, classes) is not one:
                    return tuple([self.rewrite(each, change, classes) for each in value])
        elif kind is dict:
            named = {name: self.rewrite(one, change, classes) for name, one in value.items()}
            return named if named != value else value
        return value
