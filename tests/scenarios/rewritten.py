"""Kept captures as if the same program had been written with other names, or installed elsewhere. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec

from neutral import PACKAGES

#: Where the programs of kept captures lie, and where the wheel has them.
_PROGRAMS = "/srv/train/"
_WHEEL = f"{PACKAGES}/shipped/"
#: A name of the program's own, also as an attribute of itself; not an attribute of something else, nor an argument's name.
_NAME = re.compile(r"(?:(?<![\w.])|(?<=\bself\.))[A-Za-z_]\w*(?!\w|=[^=])")
#: Names by which a program says that something is done by one rank.
_RANK = re.compile(
    r"\b\w*(?:rank|main|master|chief|primary|leader|process_(?:index|id|zero)|is_first|is_last|coord)\w*\b"
    r"|\b(?:r|rk|gpu|proc_id|pid|node_id)\b(?= *[!=]=)",
    re.IGNORECASE,
)
_LOADER = re.compile(r"(?i)loader")

_Frame = dict[str, Any]
_Rename = Callable[[str], str]


def in_a_wheel(capture: bytes) -> bytes:
    """The program is an installed package that nobody knows; ``python -m`` starts it."""
    return capture.replace(_PROGRAMS.encode(), _WHEEL.encode())


def in_a_wheel_behind_a_script(capture: bytes) -> bytes:
    """The program is such a package, and a script of three lines starts it."""

    def start(frames: list[_Frame]) -> None:
        if frames and frames[-1]["function"] == "<module>" and frames[-1]["file"].startswith(_WHEEL):
            frames[-1]["function"] = "start"
            frames.append(
                {"function": "<module>", "file": f"{_PROGRAMS}start.py", "line": 3, "source": "shipped.start()"}
            )

    return _with_stacks(in_a_wheel(capture), start)


def with_other_functions(capture: bytes) -> bytes:
    """The functions and classes of the program have names that say nothing, but for those that a library calls."""
    kept, found = {"start", "run"}, set[str]()

    def look(frames: list[_Frame]) -> None:
        for called, caller in pairwise(frames):
            if _is_program(called):
                found.update(called["function"].split("."))
                if not _is_program(caller):
                    kept.add(called["function"].rpartition(".")[2])

    _with_stacks(capture, look)
    names = sorted(name for name in found - kept if name.isidentifier() and not name.startswith("__"))
    new = {name: f"thing_{number}" for number, name in enumerate(names)}
    return _with_names(capture, lambda text: _NAME.sub(lambda name: new.get(name[0], name[0]), text), functions=new)


def without_words_of_rank(capture: bytes) -> bytes:
    """No variable or function that a condition names says that it is about the rank."""
    return _with_names(capture, lambda text: _RANK.sub("here", text))


def with_another_word_for_loader(word: str, capture: bytes) -> bytes:
    """What goes through the data is called by another word."""
    return _with_names(capture, lambda text: _LOADER.sub(word, text))


def _with_names(capture: bytes, rename: _Rename, functions: dict[str, str] | None = None) -> bytes:
    """The names in all lines and headers of the program, and of its variables; and those of its ``functions``."""

    def change(frames: list[_Frame]) -> None:
        for frame in filter(_is_program, frames):
            if functions:
                frame["function"] = ".".join(functions.get(part, part) for part in frame["function"].split("."))
            for one, field in ((frame, "source"), *((block, "text") for block in frame.get("blocks", ()))):
                if one.get(field):
                    one[field] = rename(one[field])
            for block in frame.get("blocks", ()):
                if "turns" in block:
                    block["turns"]["counter"] = rename(block["turns"]["counter"])
            for position in frame.get("positions", ()):
                position["variable"] = rename(position["variable"])
            if frame.get("locals"):
                frame["locals"] = {rename(name): value for name, value in frame["locals"].items()}

    return _with_stacks(capture, change)


def _is_program(frame: _Frame) -> bool:
    return frame["file"].startswith(_PROGRAMS)


def _with_stacks(capture: bytes, change: Callable[[list[_Frame]], None]) -> bytes:
    """The capture with every list of frames changed: of threads, coroutines and recorded operations."""
    decoded = msgspec.json.decode(capture)

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name == "frames" and inner is not None:
                    change(inner)
                elif isinstance(inner, dict | list):
                    visit(inner)
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, dict | list):
                    visit(inner)

    visit(decoded)
    return msgspec.json.encode(decoded)


#: What is changed -> how.
REWRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "in a wheel": in_a_wheel,
    "in a wheel behind a script": in_a_wheel_behind_a_script,
    "functions renamed": with_other_functions,
    "no words of rank": without_words_of_rank,
    "feed for loader": partial(with_another_word_for_loader, "feed"),
    "grouped_loader for loader": partial(with_another_word_for_loader, "grouped_loader"),
}
