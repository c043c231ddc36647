"""``python -m corpus.score TOOL``: run a tool on what is kept of every hang, and say how often it is right.

TOOL is one of the adapters (``hangwatch``, ``recorder``, ``dumps``, ``torchfrtrace``, ``nvrx``), or a command of any tool with
``{job}`` in it, the folder of a job. The command prints an ``Answer`` (``corpus.judging``) as JSON.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from corpus.catalogue import HOLDOUT, captured, load_capture, load_catalogue, read_capture
from corpus.dumps import load_kept, unpack_dumps
from corpus.entries import Entry
from corpus.judging import Answer, Mark, mark
from corpus.tools import captures, hangwatch_diagnose, nvrx, torchfrtrace
from corpus.tools.commands import Tool, failure, run

#: Those that read a capture: ranks, stacks, processes and recorders of the whole job.
ON_CAPTURES = {"hangwatch": captures.hangwatch, "recorder": captures.recorder}
#: Those that read PyTorch's own dumps.
ON_DUMPS = {"dumps": hangwatch_diagnose.TOOL, "torchfrtrace": torchfrtrace.TOOL}


class Score(msgspec.Struct, frozen=True):
    """What a tool said of one hang, and what of it is right. ``failed``: how it failed, where it did."""

    name: str
    family: str
    cause: str
    answer: Answer
    mark: Mark
    failed: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where nothing matches."""
    options = _parse(arguments)
    ask, entries = _tool(options)
    if not entries:
        print("score: nothing is kept of a hang of that name", file=sys.stderr)
        return 2
    scores = []
    for number, (entry, (answer, failed)) in enumerate(((entry, ask(entry)) for entry in entries), 1):
        scores.append(Score(entry.name, entry.family, entry.cause, answer, mark(entry, answer), failed))
        if number % 100 == 0:
            print(f"{number} of {len(entries)}", file=sys.stderr)
    if options.json is not None:
        options.json.write_bytes(b"\n".join(map(msgspec.json.encode, scores)) + b"\n")
    print(render(scores, by_family=options.by_family))
    return 0


def render(scores: Collection[Score], *, by_family: bool) -> str:
    """Return a table: all, the held-out families apart, and each family of the others where that is asked for.

    Which hang of a held-out family is wrong is not shown, as nobody is to mend a rule on it.
    """
    held_out = [score for score in scores if score.family in HOLDOUT]
    others = [score for score in scores if score.family not in HOLDOUT]
    rows = [("all", list(scores)), ("held out", held_out), ("others", others)]
    if by_family:
        rows += [(f"`{f}`", [s for s in scores if s.family == f]) for f in sorted({s.family for s in scores})]
    head = (
        "families",
        "hangs",
        "culprits",
        "some",
        "only others",
        "nobody",
        "first cause",
        "among three",
        "wrong proofs",
    )
    lines = [head, ("---",) * len(head), *(_row(what, found) for what, found in rows if found)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(what: str, scores: Sequence[Score]) -> tuple[str, ...]:
    marks = [score.mark for score in scores]

    def share(right: Sequence[bool]) -> str:
        return f"{sum(right)} ({sum(right) / len(right):.1%})"

    return (
        what,
        str(len(marks)),
        share([mark.culprits for mark in marks]),
        *(str(sum(mark.named == named for mark in marks)) for named in ("some", "wrong", "nobody")),
        share([mark.first for mark in marks]),
        share([mark.three for mark in marks]),
        str(sum(mark.wrong_proof for mark in marks)),
    )


_Said = tuple[Answer, str | None]


def _tool(options: argparse.Namespace) -> tuple[Callable[[Entry], _Said], list[Entry]]:
    """Return what answers for the tool, and the hangs of which there is what it reads."""
    entries, kept = load_catalogue(options.patterns), load_kept()
    with_dumps = [entry for entry in entries if entry.name in kept and kept[entry.name].dumps]
    if (reads := ON_CAPTURES.get(options.tool)) is not None:
        return lambda entry: (reads(load_capture(entry)), None), captured(entries)
    if "{job}" in options.tool:
        return lambda entry: _ask_command(options.tool, entry), with_dumps if options.dumps else captured(entries)
    tool = nvrx.tool(options.checkout) if options.tool == "nvrx" else ON_DUMPS[options.tool]
    return lambda entry: _ask_adapter(tool, entry), with_dumps


def _ask_adapter(tool: Tool, entry: Entry) -> _Said:
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        output = run(tool.command(unpack_dumps(entry.name, Path(folder))), tool.environment)
        return tool.read(output), failure(output)


def _ask_command(command: str, entry: Entry) -> _Said:
    """Run it on the folder of a job: ``capture.json``, and the dumps where PyTorch wrote some."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        job = unpack_dumps(entry.name, Path(folder))
        (job / "capture.json").write_bytes(_capture(entry))
        output = run(shlex.split(command.replace("{job}", str(job))), {})
    try:
        return msgspec.json.decode(output.stdout, type=Answer), None
    except msgspec.MsgspecError as error:
        return Answer(), failure(output) or str(error)


def _capture(entry: Entry) -> bytes:
    return read_capture(entry.family, entry.name)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m corpus.score", description=__doc__)
    names = [*ON_CAPTURES, *ON_DUMPS, "nvrx"]
    parser.add_argument("tool", metavar="TOOL", help=f"{', '.join(names)}, or a command with {{job}} in it")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="some hangs: name, family/name or cause")
    parser.add_argument("--by-family", action="store_true", help="a line for each family")
    parser.add_argument("--dumps", action="store_true", help="a command: of the hangs with PyTorch's own dumps alone")
    parser.add_argument("--checkout", type=Path, metavar="FOLDER", help="nvrx: a checkout of nvidia-resiliency-ext")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what it said of each hang, a line each")
    options = parser.parse_args(arguments)
    if options.tool not in names and "{job}" not in options.tool:
        parser.error(f"TOOL is one of {', '.join(names)}, or has {{job}} in it")
    if options.tool == "nvrx" and options.checkout is None:
        parser.error("nvrx needs --checkout")
    return options


if __name__ == "__main__":
    sys.exit(main())
