"""What a header of a block says, and the calls in a line: the parts of ``Block.text`` and ``Frame.source``. Pure.

Only this module reads headers, each text once. Captures keep them as text, so that today's code reads captures of any age.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from keyword import iskeyword
from typing import Literal

from hangwatch.model.stacks import Block
from hangwatch.program.iterations import called

_PARTS = re.compile(r"(\w*) ?(.*?):?(?: (return|continue|break|raise))?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
#: Conditions that differ by rank, in the field's usual words.
_BY_RANK = re.compile(
    r"(?<![A-Za-z_])(?:(?!lora_|low_)\w*_)?rank(?:_?id|_?zero|_?0)?\b|get_rank|is_(?:\w+_)?(?:main|master|chief|primary|leader)"
    r"|main_process|\bmaster\b|process_(?:zero|index|id)|(?:rank|global|world)_?zero|\bRANK\b|LOCAL_RANK|coord_on_|is_first_|is_last_stage"
    r"|(?<![\w.])(?:r|rk|gpu|proc(?:ess)?_id|pid|node_id)\s*[!=]=\s*-?\d",
)
#: Conditions that are the same on every rank: the file is run and not imported, the process group exists.
_ALIKE = re.compile(r".*__name__.*|(?:torch\.)?(?:dist|distributed)\.is_(?:initialized|available)\(\)")
#: A comparison with a clock: ``time.monotonic() > deadline``, ``deadline < time.time()``, ``time.time() - began > limit``.
_CLOCK = re.compile(r"\b(?:time|monotonic|perf_counter)\(\)[^<>]*[<>]|[<>][^<>]*\b(?:time|monotonic|perf_counter)\(\)")
_OF_MODEL = re.compile(
    r"param|grad|named_|module|layer|block|bucket|head|tensor|group|state_dict|weight|buffers|callback|hook|handler|plugin",
    re.IGNORECASE,
)
#: The attribute in ``step % self.config.every``.
_EVERY = re.compile(r"% (\w+(?:\.\w+)+)(?![\w(])")
#: When a line makes a call: in any case, to decide on another one, or depending on that.
_When = Literal["always", "first", "partly"]

#: Functions that stop at the first item that decides.
_STOPPING = frozenset({"any", "all", "next"})


@dataclass(frozen=True)
class Header:
    """The parts of a header.

    ``word``: its keyword; empty for a decorator. ``said``: what follows. ``leaves``: the statement by which a guard leaves; empty
    for other blocks.
    """

    word: str
    said: str
    leaves: str

    @cached_property
    def names(self) -> frozenset[str]:
        """All names in it, including attributes and the words in strings."""
        return frozenset(name for name in _NAME.findall(self.said) if not iskeyword(name))

    @cached_property
    def binds(self) -> tuple[str, ...]:
        """The variables that a ``for`` binds."""
        return tuple(_NAME.findall(self.said.partition(" in ")[0])) if self.word == "for" else ()

    @cached_property
    def over(self) -> str:
        """The iterable of a ``for``; empty for any other block."""
        return self.said.partition(" in ")[2] if self.word == "for" else ""

    @cached_property
    def tree(self) -> ast.expr | None:
        """The condition or the iterable as a tree; None for any other block, and if the header was cut."""
        return parse(self.over or self.said) if self.word in {"if", "elif", "while", "for"} else None

    @cached_property
    def varies_by(self) -> frozenset[str]:
        """The names on which a condition depends, without constants and settings (``step % self.config.every``)."""
        said = self.said
        for setting in _EVERY.findall(said):
            said = said.replace(setting, "")
        return frozenset(name for name in _NAME.findall(said) if not name.isupper())

    @cached_property
    def by_rank(self) -> bool:
        """True if it depends on the rank."""
        return names_rank(self.said)

    @cached_property
    def by_clock(self) -> bool:
        """True if it compares a clock with something."""
        return _CLOCK.search(self.said) is not None

    @cached_property
    def alike(self) -> bool:
        """True if it is the same on every rank."""
        return _ALIKE.fullmatch(self.said) is not None

    @cached_property
    def of_model(self) -> bool:
        """True if a loop is over parameters, callbacks and the like, and not over batches.

        What is dealt out by rank (``for block in blocks(rank)``) is data, whatever its name.
        """
        over = self.over or self.said
        return _OF_MODEL.search(over) is not None and not names_rank(over)


def header_of(block: Block) -> Header:
    """Return the parts of the header of a block."""
    return read_header(block.text)


@lru_cache(maxsize=4096)  # the same few are asked for again and again
def read_header(text: str) -> Header:
    """Return the parts of a header."""
    parts = _PARTS.fullmatch(text)
    return Header(*parts.groups(default="")) if parts is not None else Header("", text, "")


def names_rank(text: str) -> bool:
    """True if a piece of code depends on the rank, by the usual names."""
    return _BY_RANK.search(text) is not None


def parse(text: str) -> ast.expr | None:
    """Return the text as an expression; None if it is not one."""
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_called_in_part(line: str, callee: str) -> bool:
    """True if the line may leave out a call because of what comes before it: ``a() and f()``, ``f() if a() else 0``.

    ``callee`` is the name of the function that runs, which the line may know by another one (an argument, a closure).
    """
    tree = _parse(line)
    if tree is None:
        return False
    if callee == "<genexpr>":
        return any(isinstance(node, ast.Call) and called(node) in _STOPPING for node in ast.walk(tree))
    found: dict[_When, set[str]] = {"always": set(), "first": set(), "partly": set()}
    for name, when in _calls(tree, "always"):
        found[when].add(name)
    if any(callee in names for names in found.values()):
        return callee in found["partly"] and callee not in found["always"] | found["first"]
    return bool(found["partly"]) and not found["always"]


def arguments_of_calls(line: str) -> set[tuple[str, str]]:
    """Return each pair of a function that is called in this line and one that is called within its arguments, by name."""
    tree = _parse(line)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    inner = ((outer, node) for outer in calls for node in ast.walk(outer) if node is not outer)
    return {(called(outer), called(node)) for outer, node in inner if isinstance(node, ast.Call)}


@lru_cache(maxsize=1024)  # the same few are asked for again and again
def _parse(line: str) -> ast.AST | None:
    """Return the line as a statement, a header without its suite; None for a part of a statement over several lines."""
    line = line.strip()
    for text in (line, f"{line.removeprefix('el')} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _calls(node: ast.AST, when: _When) -> Iterator[tuple[str, _When]]:
    """Yield the names of called functions, with when each is called: always, to decide, or depending on that."""
    if isinstance(node, ast.Call):
        yield called(node), when
    parts: list[tuple[ast.AST, _When]] = [(part, when) for part in ast.iter_child_nodes(node)]
    if isinstance(node, ast.IfExp):
        parts = [(node.test, "first"), (node.body, "partly"), (node.orelse, "partly")]
    elif isinstance(node, ast.BoolOp):
        parts = [(node.values[0], "first"), *((part, "partly") for part in node.values[1:])]
    for part, then in parts:
        yield from _calls(part, "partly" if when == "partly" else then)
