"""Local variables of a frame, from py-spy's ``repr`` of them to what may leave the machine: types and shapes.

Pure; may import hangwatch.model, ``sources.redaction``, msgspec and the standard library. Read from py-spy 0.4.3
(``--locals``): strings in double quotes with quotes inside *not* escaped, containers cut with ``...``, objects
``<module.Type at 0x7f..>``, unreadable values ``?``, integers beyond 64 bits ``+bigint``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping
from hashlib import blake2b

import msgspec

from hangwatch.model.stacks import Frame, StackSample
from hangwatch.sources.redaction import hide_named, redact_code

MAX_DESCRIPTION_CHARS = 200
_MAX_ITEMS = 8
_MAX_DEPTH = 6
_MAX_REPR_CHARS = 4096

_OBJECT = re.compile(r"<([A-Za-z_][\w.]{0,119})(?: at 0x[0-9a-f]+)?>")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|NaN|nan|bigint)")
_WORD = re.compile(r"None|True|False|\.\.\.|\?")
_KEY = re.compile(r'"([A-Za-z_]\w{0,38})": ')
_STRING_END = re.compile(r'"(?=, |[)\]}]|: |$)')
_BRACKETS = {"(": (")", "tuple"), "[": ("]", "list"), "{": ("}", "dict")}

#: Beyond a string inside a container nothing can be concluded from the string's own text (quotes are not escaped), so from
#: there on only words of ours are written.
_PLAIN_TYPES = frozenset(
    {"Tensor", "Parameter", "ndarray", "Size", "dtype", "device", "set", "bytes", "module", "function"}
)
_PLAIN_KEYS = frozenset(
    {
        "input_ids", "attention_mask", "labels", "pixel_values", "position_ids", "token_type_ids", "metadata", "images",
        "image", "inputs", "input", "targets", "target", "loss", "logits", "label", "label_ids", "input_features",
    }
)  # fmt: skip


#: Made anew by each process and never kept: digests of values cannot be traced back by trying values.
_KEY_OF_PROCESS = os.urandom(32)
#: A value of which it is not known yet whether it may be kept. No description looks so otherwise.
_UNSETTLED = re.compile(r"(?P<type>int|bool|float)~(?P<value>.+)")
#: Of what a condition names, integers with more digits are dropped: they may be anything, and decide little.
_MAX_DIGITS = 6
#: Variables of ``distributed_c10d`` that list the global ranks of a group.
_RANK_LISTS = frozenset({"ranks", "global_ranks_in_group"})
_GROUP_OBJECT = re.compile(r"<(?:[\w.]+\.)?ProcessGroup at (?P<address>0x[0-9a-f]{1,16})>")


class _UnreadableError(ValueError):
    """The rest of a repr is not what py-spy writes."""


def describe_local(text: str, *, keep_integers: bool = False, keep_booleans: bool = False) -> str:
    """Return what a variable is: ``int``, ``str(12)``, ``Tensor``, ``tuple[Tensor, Tensor]``, ``dict[labels: Tensor]``.

    ``text`` is py-spy's repr. Never a value of the user's: no text of strings, no numbers; keys of dictionaries only
    where they are short identifiers. A list of equals is ``list[Tensor, ...]``; what was cut ends in ``...``; what
    cannot be read is ``?``. With ``keep_integers`` and ``keep_booleans`` (for frames of libraries) a variable that *is*
    such a value keeps it, ``int=3``. None is always None. Never raises; at most ``MAX_DESCRIPTION_CHARS`` long.
    """
    text = text.strip()
    if text.startswith('"'):
        inner = text[1:-1] if len(text) > 1 and text.endswith('"') else text[1:]
        return f"str({len(inner.removesuffix('...'))}+)" if inner.endswith("...") else f"str({len(inner)})"
    if text in {"True", "False"}:
        return f"bool={text}" if keep_booleans else "bool"
    if keep_integers and re.fullmatch(r"-?\d{1,18}", text):
        return f"int={text}"
    reader = _Reader(text[:_MAX_REPR_CHARS])
    try:
        description = reader.read_value(0)
    except _UnreadableError:
        description = _BRACKETS[text[0]][1] if text[:1] in _BRACKETS else "object" if text.startswith("<") else "?"
    return _shorten(description)


def mark_value(text: str) -> str | None:
    """Return an integer, boolean or float with a mark for ``settle_values``; None for anything else.

    Whether its value is kept is decided once the source has been read. A float is for ``marked_numbers`` alone.
    """
    if text in {"True", "False"}:
        return f"bool~{text}"
    if re.fullmatch(r"-?\d{1,12}\.\d{1,20}", text):
        return f"float~{text}"
    return f"int~{text}" if re.fullmatch(r"-?\d{1,12}", text) else None


def settle_values(
    described: Mapping[str, str], counters: Container[str], deciders: Container[str] = ()
) -> dict[str, str]:
    """Return the descriptions of locals, with only those values left that may be kept.

    ``counters``: variables that count iterations. ``deciders``: variables that a condition names. Of these only booleans and
    small integers stay, and none whose name says that it is secret.
    """
    return {name: _settle(name, text, counters, deciders) for name, text in described.items()}


def _settle(name: str, text: str, counters: Container[str], deciders: Container[str]) -> str:
    marked = _UNSETTLED.fullmatch(text)
    if marked is None:
        return text
    kind, value = marked["type"], marked["value"]
    counts = kind == "int" and name in counters
    small = kind != "float" and len(value.lstrip("-")) <= _MAX_DIGITS and hide_named(name, value) == value
    return f"{kind}={value}" if counts or (name in deciders and small) else kind


def marked_numbers(described: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are still marked and are numbers, without the marks."""
    found = {name: _UNSETTLED.fullmatch(text) for name, text in described.items()}
    return {name: marked["value"] for name, marked in found.items() if marked is not None and marked["type"] != "bool"}


def digest_value(text: str) -> str:
    """Return a digest that is equal for equal values.

    It is keyed with a random key of this process, so the value cannot be found by guessing.
    """
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8, key=_KEY_OF_PROCESS).hexdigest()


def may_tell(description: str, *, numbers: bool, objects: bool) -> bool:
    """Return whether another value of the variable may mean that a loop has moved on. See ``Holder`` for the flags."""
    kind = re.split(r"[=(\[]", description, maxsplit=1)[0]
    if kind in {"", "None", "?", "bool"}:
        return False
    if kind in {"int", "float"}:
        return numbers
    return objects or kind in {"str", "tuple", "list", "dict"}


def describe_group(name: str, text: str) -> str | None:
    """Return the description of a variable in which torch names a process group: ``list[int]=[0,1]``, ``str=3``.

    Ranks of a group, a group's name where that is a number or a digest, and the address of its object (``ProcessGroup@0x7f10``),
    which is no name and the same in no other process: ``name_groups`` puts one there. None for anything else.
    """
    text = text.strip()
    if name in _RANK_LISTS and len(text) <= MAX_DESCRIPTION_CHARS - 16 and re.fullmatch(r"\[\d+(?:, \d+)*\]", text):
        return "list[int]=" + text.replace(" ", "")
    if name == "group_name" and re.fullmatch(r'"(?:\d{1,9}|[0-9a-f]{32,64})"', text):
        return "str=" + text.strip('"')
    if name == "group" and (found := _GROUP_OBJECT.fullmatch(text)) is not None:
        return f"ProcessGroup@{found['address']}"
    return None


def name_groups(stack: StackSample, names: Mapping[int, str]) -> StackSample:
    """Return the stack with the names of process groups in place of their objects' addresses.

    ``names``: by address. A group without a name keeps its type alone.
    """

    def named(frame: Frame) -> Frame:
        kind, _, address = (frame.locals or {}).get("group", "").partition("@")
        if kind != "ProcessGroup" or not address:
            return frame
        name = names.get(int(address, 16), "")
        group = f"{kind}={name}" if name else kind
        return msgspec.structs.replace(frame, locals={**(frame.locals or {}), "group": group})

    threads = (msgspec.structs.replace(t, frames=tuple(map(named, t.frames))) for t in stack.threads)
    return msgspec.structs.replace(stack, threads=tuple(threads))


def _shorten(description: str) -> str:
    """Cut at the limit."""
    if len(description) <= MAX_DESCRIPTION_CHARS:
        return description
    return description[: MAX_DESCRIPTION_CHARS - 3] + "..."


class _Reader:
    """Reads one value of py-spy's notation."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._after_string = False

    def read_value(self, depth: int) -> str:
        """Read the value that starts here, and return its description."""
        head = self._text[self._at : self._at + 1]
        if head in _BRACKETS:
            return self._read_container(depth)
        if head == '"':
            return self._read_string()
        if head == "<":
            match = self._take(_OBJECT)
            name = match.group(1).rsplit(".", 1)[-1] or "object"
            return name if not self._after_string or name in _PLAIN_TYPES else "object"
        word = _WORD.match(self._text, self._at)
        if word is not None:
            self._at = word.end()
            return {"True": "bool", "False": "bool"}.get(word.group(), word.group())
        number = self._take(_NUMBER).group()
        fraction = any(mark in number for mark in (".", "e", "inf", "NaN", "nan")) or len(number) > 21
        return "float" if fraction else "int"

    def _read_container(self, depth: int) -> str:
        """Read a tuple, list or dictionary."""
        closer, name = _BRACKETS[self._text[self._at]]
        self._at += 1
        if depth >= _MAX_DEPTH:
            raise _UnreadableError
        items: list[str] = []
        while not self._skip(closer):
            if self._at >= len(self._text):
                items += [] if items[-1:] == ["..."] else ["..."]
                break
            if items and not self._skip(", "):
                raise _UnreadableError
            if self._skip("..."):
                items.append("...")
                continue
            items.append(self._read_pair(depth) if name == "dict" else self.read_value(depth + 1))
        return f"{name}[{', '.join(_collapse(items, name))}]"

    def _read_pair(self, depth: int) -> str:
        """Read a key and its value. A key that is no short identifier is described by its type."""
        match = _KEY.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            key = match.group(1)
            if (self._after_string and key not in _PLAIN_KEYS) or redact_code(key) != key:
                key = "str"
        else:
            key = self.read_value(depth + 1)
            if not self._skip(": "):
                raise _UnreadableError
        return f"{key}: {self.read_value(depth + 1)}"

    def _read_string(self) -> str:
        """Read a string inside a container. Its length cannot be trusted, so it is left out."""
        match = _STRING_END.search(self._text, self._at + 1)
        self._at = match.end() if match is not None else len(self._text)
        self._after_string = True
        return "str"

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Match the pattern here, and move past it."""
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _UnreadableError
        self._at = match.end()
        return match

    def _skip(self, text: str) -> bool:
        """Step over a text if it is here."""
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False


def _collapse(items: list[str], name: str) -> list[str]:
    """Return the items as they are written: a list of equals once, at most ``_MAX_ITEMS``, then ``...``."""
    cut = bool(items) and items[-1] == "..."
    shown = items[:-1] if cut else items
    if name == "list" and len(shown) > 1 and len(set(shown)) == 1:
        return [shown[0], "..."]
    if len(shown) > _MAX_ITEMS:
        return [*shown[:_MAX_ITEMS], "..."]
    return [*shown, "..."] if cut else shown
