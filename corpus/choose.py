"""``python -m corpus.choose``: choose the core anew, and move programs and captures into it and out of it.

The core is what the tests replay after each change: captures that go through every branch of the rules and the analysis three
times, and through every cause, where the corpus has that many; and those that a test asks for by name. It begins with what is
there, so that little moves. Held-out families are never in it, nor is what is judged wrongly today.
"""

from __future__ import annotations

import heapq
import multiprocessing
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from corpus import catalogue
from corpus.catalogue import CORE, HOLDOUT
from corpus.entries import Entry
from corpus.tracing import Marks

TESTS = CORE.parents[1]
#: How often the core goes through each place.
TIMES = 3

#: A program: its family and its file.
Program = tuple[str, str]

_MARKS = Marks()


def main() -> int:
    """Returns 0."""
    _MARKS.install()
    entries = catalogue.load_catalogue()
    scenarios: dict[Program, list[Entry]] = defaultdict(list)
    for entry in catalogue.captured(entries):
        if entry.family not in HOLDOUT:
            scenarios[entry.family, entry.program].append(entry)
    passed = _trace([entry for held in scenarios.values() for entry in held])
    named = _named_by_tests({entry.name for entry in entries})
    pinned = {program for program, held in scenarios.items() if any(entry.name in named for entry in held)}
    places = {program: (held[0].cause, program[1]) for program, held in scenarios.items()}
    before = [program for program, held in scenarios.items() if catalogue.in_core(held[0])]
    reach = {program: [passed[e.name] for e in held if e.name in passed] for program, held in scenarios.items()}
    chosen = choose(reach, places, pinned, before)
    moved = _move({program: places[program][0] for program in chosen}, entries)
    held = sum(len(scenarios[program]) for program in chosen)
    print(
        f"{len(chosen)} programs with {held} captures go through {len(_MARKS.places)} marks; {moved} programs were moved"
    )
    return 0


def choose(
    reach: Mapping[Program, list[int]],
    places: Mapping[Program, tuple[str, str]],
    pinned: Collection[Program],
    before: Collection[Program],
) -> list[Program]:
    """Return programs whose captures pass each mark ``TIMES`` times, or as often as all together do.

    ``reach``: of each program, the marks that each of its captures passes, one bit a mark. ``places``: folder and file in the
    core, of which no two may be the same. ``pinned`` are chosen in any case, those chosen ``before`` where they still serve.
    """
    total = Counter(mark for captures in reach.values() for passed in captures for mark in _bits(passed))
    wanted = {mark: min(times, TIMES) for mark, times in total.items()}
    first: dict[tuple[str, str], Program] = {}
    for program in (*pinned, *before):
        first.setdefault(places[program], program)
    chosen = list(first.values())
    have = Counter(mark for program in chosen for passed in reach[program] for mark in _bits(passed))
    taken = set(first)

    def gain(program: Program) -> float:
        passed = 0
        for one in reach[program]:
            passed |= one
        return (passed & missing).bit_count() / max(1, len(reach[program]))

    missing = sum(1 << mark for mark, times in wanted.items() if have[mark] < times)
    queue = [(-gain(program), program) for program in reach if program not in set(chosen)]
    heapq.heapify(queue)
    while missing and queue:
        _, program = heapq.heappop(queue)
        now = gain(program)
        if not now or places[program] in taken:
            continue
        if queue and now < -queue[0][0]:  # what it was worth before others were chosen
            heapq.heappush(queue, (-now, program))
            continue
        chosen.append(program)
        taken.add(places[program])
        for passed in reach[program]:
            have.update(_bits(passed))
        missing = sum(1 << mark for mark in _bits(missing) if have[mark] < wanted[mark])
    for program in reversed(chosen.copy()):
        own = Counter(mark for passed in reach[program] for mark in _bits(passed))
        if program not in pinned and all(have[mark] - times >= wanted[mark] for mark, times in own.items()):
            chosen.remove(program)
            have -= own
    return chosen


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _trace(entries: Collection[Entry]) -> dict[str, int]:
    """Diagnose each capture, and return what it passes of those that are judged rightly. One mark more is its cause."""
    _MARKS.load()  # before there are several processes, so that all count alike
    causes = {cause: _MARKS.new(f"cause {cause}") for cause in sorted({entry.cause for entry in entries})}
    passed = {}
    with multiprocessing.get_context("fork").Pool() as pool:
        for number, (entry, through) in enumerate(zip(entries, pool.imap(_passes, entries, 16), strict=True), 1):
            if through is not None:
                passed[entry.name] = through | 1 << causes[entry.cause]
            if number % 100 == 0:
                print(f"{number} of {len(entries)} captures diagnosed", file=sys.stderr)
    return passed


def _passes(entry: Entry) -> int | None:
    """Return the marks that the diagnosis of a hang passes; None where it is wrong."""
    from corpus.judging import answer_of, mark
    from hangwatch.diagnosis.verdict import diagnose

    capture = catalogue.load_capture(entry)
    _MARKS.take()
    verdict = diagnose(capture).verdict
    through = _MARKS.take()
    return through if mark(entry, answer_of(verdict)).right else None


def _named_by_tests(names: Collection[str]) -> set[str]:
    """Return the scenarios that stand between quotes in a test."""
    tests = (path for path in TESTS.rglob("*.py") if CORE not in path.parents)
    return {word for path in tests for word in re.findall(r'"([\w.-]+)"', path.read_text())} & set(names)


def _move(wanted: Mapping[Program, str], entries: Collection[Entry]) -> int:
    """Put these programs into the core, each into the folder of its cause, and all others into the archives.

    Returns how many were moved.
    """
    of_program: dict[Program, list[Entry]] = defaultdict(list)
    for entry in entries:
        of_program[entry.family, entry.program].append(entry)
    leaving: dict[str, dict[str, bytes]] = defaultdict(dict)
    entering: dict[str, dict[str, Path]] = defaultdict(dict)
    moved = 0
    for (family, program), held in of_program.items():
        folder = CORE / wanted[family, program] if (family, program) in wanted else None
        there = catalogue.core_folder(held[0])
        if folder == there:
            continue
        moved += 1
        files = {f"programs/{program}": program, f"programs/{Path(program).stem}.toml": f"{Path(program).stem}.toml"}
        files |= {f"captures/{e.name}.json": f"{e.name}.json.gz" for e in held if catalogue.has_capture(e)}
        for packed, name in files.items():
            if there is not None:
                content = (there / name).read_bytes()
                leaving[family][packed] = catalogue.unzipped(content) if name.endswith(".gz") else content
                (there / name).unlink()
            if folder is not None:
                entering[family][packed] = folder / name
    families = sorted({*leaving, *entering})
    with multiprocessing.get_context("fork").Pool() as pool:
        pool.starmap(_repack, [(family, leaving[family], entering[family]) for family in families], 1)
    for folder in CORE.iterdir():
        if not any(folder.iterdir()):
            folder.rmdir()
    catalogue.write_index()
    return moved


def _repack(family: str, leaving: Mapping[str, bytes], entering: Mapping[str, Path]) -> None:
    """Pack a family with what leaves the core, and without what enters it."""
    contents = {**catalogue.read_family(family), **leaving}
    for packed, path in entering.items():
        content = contents.pop(packed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(catalogue.zipped(content) if path.suffix == ".gz" else content)
    catalogue.write_family(family, contents)


if __name__ == "__main__":
    sys.exit(main())
