"""Commands that the documentation shows: those of hangwatch parse as they stand, those of make exist, others are listed here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import typer.main
from typer.core import TyperCommand

from hangwatch.cli.main import COMMANDS, app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE))
_BLOCK = re.compile(r"^( *)```(?:sh|bash|shell|console)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
#: What ends a command, and what may stand before one.
_BETWEEN = re.compile(r"[;&|()]+")
_BEFORE = frozenset({"do", "then", "else", "if", "!"})
#: Programs of others -> why what the documentation says of them is not checked here.
OTHERS = {
    "amtool": "run on the same files by tests/deploy/test_deploy_prometheus.py",
    "docker": "not on machines that run the tests; its image and its files are checked in tests/deploy",
    "eval": "the shell's own; what it is given is looked at",
    "exit": "the shell's own",
    "export": "the shell's own",
    "for": "the shell's own",
    "done": "the shell's own",
    "[": "the shell's own",
    "echo": "the shell's own",
    "gh": "needs GitHub",
    "git": "a tag of the repository itself; its version is checked by tests/project/test_project_release.py",
    "grep": "every system has it",
    "install": "copies files of ours to places that root owns",
    "jq": "not needed by anything of ours; the fields that it selects are those of the events and the incident",
    "kubectl": "needs a cluster",
    "pip": "what it installs is checked by make, make matrix and tests/project/test_project_package.py",
    "promtool": "run on the same files by tests/deploy/test_deploy_prometheus.py",
    "pytest": "what this is",
    "python": "programs of the reader, and ours that tests start",
    "python3": "makes an environment, as the Makefile does",
    "sbatch": "needs a cluster; tests/deploy/test_deploy_slurm_cluster.py starts a small one",
    "scontrol": "needs a cluster; tests/deploy/test_deploy_slurm_cluster.py starts a small one",
    "srun": "needs a cluster; tests/deploy/test_deploy_slurm_cluster.py starts a small one",
    "systemctl": "needs systemd as the first process; tests/deploy/test_deploy_systemd.py checks the unit",
    "systemd-sysusers": "changes the users of the system; tests/deploy/test_deploy_systemd.py checks the file",
    "systemd-tmpfiles": "changes folders of the system; tests/deploy/test_deploy_systemd.py checks the file",
    "torchrun": "PyTorch's; end-to-end tests start it",
    "tr": "every system has it",
    "uv": "renews the pins, by hand and rarely",
}


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


SHOWN = [command for path in PAGES for command in shown_on(path)]
#: `hangwatch ...` and `make ...` in the text itself: what stands for something may be left open, names may not.
_QUOTED = re.compile(r"`(hangwatch|make) ([^`]+)`")


#: What typer raises for a command line that it does not take.
USAGE_ERROR = typer.BadParameter.__mro__[1]


def of_ours(name: str) -> TyperCommand:
    """A command as the program itself builds it."""
    assert name in COMMANDS, f"no such command: {name}"
    command: TyperCommand = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    return command


def check(words: tuple[str, ...]) -> None:
    """Parse the words after ``hangwatch`` without running anything; raises what a user would read."""
    name, *rest = words
    of_ours(name).make_context(name, list(rest))


def check_make(words: tuple[str, ...]) -> None:
    """Targets and variables after ``make``."""
    for word in words:
        variable, is_set, _ = word.partition("=")
        assert variable in (VARIABLES if is_set else TARGETS), f"the Makefile has no {variable}"


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.tool == "hangwatch"], ids=str)
def test_commands_of_hangwatch_parse(shown: Shown) -> None:
    """The subcommand, every option and every value are ones that the program takes."""
    check(shown.words[1:])


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.tool == "make"], ids=str)
def test_commands_of_make_exist(shown: Shown) -> None:
    """The target is in the Makefile, and so are the variables."""
    check_make(shown.words[1:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_commands_name_exist(path: Path) -> None:
    """Those of ours that are shipped; the others are the reader's."""
    for shown in shown_on(path):
        for word in shown.words:
            if word.startswith(("deploy/", "systemd/", "docs/")):
                assert list(ROOT.glob(word)), str(shown)


def test_other_programs_are_listed_with_a_reason() -> None:
    """And nothing is listed that no page shows."""
    tools = {one.tool for one in SHOWN} - {"hangwatch", "make"}
    assert tools == OTHERS.keys(), [str(one) for one in SHOWN if one.tool in tools - OTHERS.keys()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_text_exist(path: Path) -> None:
    """Between backquotes ``CMD`` and the like stand for something: the subcommand and the options are looked up by name."""
    for tool, rest in _QUOTED.findall(re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)):
        words = rest.replace("\\|", "|").split()
        if tool == "make":
            check_make(tuple(word for word in words if word != "..."))
        elif words[0] not in {"...", "--version", "--help"}:
            ours = words[: words.index("--")] if "--" in words else words
            known = {
                option for parameter in of_ours(words[0]).params for option in parameter.opts + parameter.secondary_opts
            }
            unknown = {word.partition("=")[0] for word in ours if word.startswith("--")} - known - {"--help"}
            assert not unknown, f"`hangwatch {rest}`: {unknown}"


@pytest.mark.parametrize(
    "wrong",
    [
        "hangwatch dumps", "hangwatch dump --pids 1", "hangwatch report --format pdf", "hangwatch diagnose",
        'x=1 eval "$(hangwatch enw)"', "true && hangwatch run --on-hung stop -- python train.py", "make demos",
        "make demo ONYL=x",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_found(wrong: str) -> None:
    """Planted faults: a subcommand, an option, a value, an argument that lacks, a target, a variable."""
    found = [words for words in commands_of(wrong) if words[0] in {"hangwatch", "make"}]
    (words,) = found
    with pytest.raises((AssertionError, USAGE_ERROR)):
        (check if words[0] == "hangwatch" else check_make)(tuple(words[1:]))
