"""Commands that pages show: those in their blocks of shell, as words and as they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Every page that may hold commands: of causes and decisions too, and those outside of docs.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(path for folder in ("docs", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.md")),
]
_BLOCK = re.compile(r"^( *)```(?:sh|bash|shell|console)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
#: What ends a command, and what may stand before one.
_BETWEEN = re.compile(r"[;&|()]+")
_BEFORE = frozenset({"do", "then", "else", "if", "!"})


@dataclass(frozen=True)
class Shown:
    """A command on a page: its words, without variables before it and redirections."""

    page: str
    line: int
    words: tuple[str, ...]

    @property
    def tool(self) -> str:
        """The program's name without its folder."""
        return self.words[0].rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {' '.join(self.words)}"


def commands_of(script: str) -> Iterator[list[str]]:
    """The simple commands of a line of shell, those in ``$(...)`` as well."""
    for inner in re.findall(r"\$\(([^()]*)\)", script):
        yield from commands_of(inner)
    lexer = shlex.shlex(re.sub(r"\d?>&\d|\d?[<>]+ *\S+", " ", script), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if _BETWEEN.fullmatch(word):
            if words:
                yield words
            words = []
        elif words or not (word in _BEFORE or re.match(r"[A-Za-z_]\w*=", word)):
            words.append(word)


def shown_on(path: Path) -> Iterator[Shown]:
    """The commands in the blocks of shell on a page."""
    text = path.read_text()
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        script = block[2].replace("\\\n", "  ")
        for number, line in enumerate(script.splitlines()):
            for words in commands_of(line):
                yield Shown(path.relative_to(ROOT).as_posix(), first + number, tuple(words))


#: All of them, in the order of the pages.
SHOWN = [command for path in PAGES for command in shown_on(path)]
