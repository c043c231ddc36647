"""The corpus: nothing is lost or there twice, the index tells what is there, and the core is chosen by what it covers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from corpus import catalogue, tracing
from corpus.archives import pack, read
from corpus.catalogue import HOLDOUT, captured, has_capture, in_core, line_of, load_catalogue, read_index, unpack
from corpus.choose import TIMES, Program, choose
from corpus.judging import Answer, Mark
from corpus.score import Score, main, render
from corpus.tracing import Marks
from hangwatch.model.capture import Capture
from hangwatch.model.stacks import Frame
from hangwatch.program.blocks import SourceTree

ENTRIES = load_catalogue()


def test_an_archive_gives_back_what_was_put_in(tmp_path: Path) -> None:
    """In the same order, and the same files make the same archive."""
    files = {"programs/b.py": b"import torch\n", "programs/a.toml": b"", "captures/c.json": b"{}" * 10_000}
    (tmp_path / "family.tar.xz").write_bytes(pack(files))
    assert list(read(tmp_path / "family.tar.xz")) == list(files.items())
    assert pack(files) == pack(dict(files))


def test_the_index_is_of_what_is_there() -> None:
    """A line for each scenario, in their order."""
    assert read_index() == [line_of(entry, has_capture(entry)) for entry in ENTRIES]


def test_a_capture_has_the_blocks_that_its_program_has_today() -> None:
    """As it was taken it had those that hangwatch found at the time."""
    entry = next(entry for entry in captured(ENTRIES) if in_core(entry))
    kept = catalogue.decode_capture(catalogue.read_capture(entry.family, entry.name))
    stripped = [replace(f, blocks=()) for f in _frames(kept)]
    tree = SourceTree(entry.text)
    for stored, frame in zip(stripped, _frames(catalogue.load_capture(entry)), strict=True):
        assert replace(frame, blocks=()) == stored
        if frame.file.endswith(entry.program):
            assert frame.blocks == tree.blocks_at(frame.line)


def _frames(capture: Capture) -> list[Frame]:
    return [f for r in capture.ranks for s in r.stacks for t in s.threads for f in t.frames]


def test_no_program_is_there_twice() -> None:
    """What lies in the core is not packed as well."""
    core = {(entry.family, entry.program) for entry in ENTRIES if in_core(entry)}
    packed = {(family, name) for family in catalogue.families() for name in catalogue.packed_programs(family)}
    assert not core & packed
    assert {(entry.family, entry.program) for entry in ENTRIES} <= core | packed


@pytest.mark.soak
def test_every_capture_that_the_index_names_can_be_read() -> None:
    """And no other is packed, or lies in the core."""
    there = {Path(name).stem for f in catalogue.families() for name in catalogue.read_family(f) if "captures" in name}
    there |= {path.name.removesuffix(".json.gz") for path in catalogue.CORE.glob("*/*.json.gz")}
    assert there == {line.name for line in read_index() if line.capture == "yes"}


def test_the_core_is_small_and_has_every_cause() -> None:
    """In folders by cause; of held-out families there is nothing in it."""
    core = [entry for entry in captured(ENTRIES) if in_core(entry)]
    assert 300 < len(core) < 800
    assert {e.cause for e in core} == {e.cause for e in captured(ENTRIES) if e.family not in HOLDOUT}
    assert not HOLDOUT & {entry.family for entry in core}
    folders: dict[object, set[str]] = {}
    for entry in core:
        folders.setdefault((catalogue.core_folder(entry), entry.program), set()).add(entry.cause)
    assert all(folder.name in causes for (folder, _), causes in folders.items())


def test_the_programs_of_a_family_are_unpacked_together(tmp_path: Path) -> None:
    """Those of the core, and those that are packed, with what they start."""
    folder = unpack("class_rooms", tmp_path / "train")
    assert {entry.program for entry in ENTRIES if entry.family == "class_rooms"} <= {p.name for p in folder.iterdir()}
    assert (folder / "classb_gradebook_server.py").exists()
    nccl = unpack("nccl", tmp_path / "nccl")
    for entry in ENTRIES:
        if entry.family == "nccl":
            assert (nccl / entry.program).read_text() == entry.text


def test_a_family_is_packed_as_it_was_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with what was corrected in the folder."""
    family = "serving"
    before = catalogue.read_family(family)
    for name in ("FAMILIES", "CORE", "INDEX"):
        monkeypatch.setattr(catalogue, name, tmp_path / name)
    catalogue.forget()
    catalogue.write_family(family, before)
    folder = unpack(family, tmp_path / "train")
    catalogue.write_family(family, {n: content for n, content in before.items() if n.startswith("captures/")})
    corrected = min(folder.glob("*.py"))
    corrected.write_text(f"{corrected.read_text()}# corrected\n")
    catalogue.keep_programs(family, folder)
    after = catalogue.read_family(family)
    assert list(after) == list(before)
    assert {name for name in after if after[name] != before[name]} == {f"programs/{corrected.name}"}


def test_the_chosen_cover_everything_as_often_as_is_wanted() -> None:
    """Where fewer captures pass a mark, all of them; what adds nothing is left out, also where it was chosen before."""
    programs: list[Program] = [("a", f"{number}.py") for number in range(8)]
    passes = (0b0011, 0b0011, 0b0001, 0b0011, 0b0111, 0b0001, 0b1000, 0b0011)
    reach = {program: [marks] for program, marks in zip(programs, passes, strict=True)}
    places = {program: ("cause", program[1]) for program in programs}
    chosen = choose(reach, places, pinned=[programs[5]], before=[programs[2], programs[0]])
    passed = [one for program in chosen for one in reach[program]]
    assert [sum(one >> mark & 1 for one in passed) for mark in (2, 3)] == [1, 1]
    assert all(sum(one >> mark & 1 for one in passed) >= TIMES for mark in (0, 1))
    assert programs[5] in chosen
    assert programs[2] not in chosen


def test_two_programs_never_want_one_place() -> None:
    """Of two with one file name the second is chosen only if it has another cause."""
    first, second = ("a", "ad_clicks.py"), ("b", "ad_clicks.py")
    places = {first: ("early-exit", "ad_clicks.py"), second: ("early-exit", "ad_clicks.py")}
    assert len(choose({first: [1], second: [1]}, places, [], [])) == 1


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that decides something."""
    (tmp_path / "judged_room.py").write_text("def sign(n):\n    if n > 0:\n        return 'plus'\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tracing, "ROOMS", ("judged_room",))
    before = sys.meta_path.copy()
    yield "judged_room"
    sys.meta_path[:] = before
    sys.modules.pop("judged_room", None)


def test_branches_and_answers_are_marked(room: str) -> None:
    """A branch that is taken, and a function's yes; its no is none."""
    marks = Marks()
    marks.install()
    sign = importlib.import_module(room).sign
    for number, expected in ((1, {"1", "2", "3 true"}), (-1, {"1", "2 else"})):
        sign(number)
        passed = marks.take()
        places = {place for mark, place in enumerate(marks.places) if passed >> mark & 1}
        assert places == {f"{room}:{place}" for place in expected}


def test_a_tool_that_says_nothing_is_wrong_everywhere(capsys: pytest.CaptureFixture[str], real: None) -> None:
    """Any command is a tool: this one reads its job and answers with rank 1 alone."""
    command = (
        f"{sys.executable} -c 'import sys,json; json.load(open(sys.argv[1])); print(sys.argv[2])' {{job}}/capture.json"
    )
    (hang,) = load_catalogue(["tuple-labels-*"])[:1]
    assert main([f"{command} '{{}}'", hang.name]) == 0
    assert "| all | 1 | 0 (0.0%) | 0 | 0 | 1 | 0 (0.0%) | 0 (0.0%) | 0 |" in capsys.readouterr().out


def test_held_out_families_have_a_line_of_their_own() -> None:
    """In the table that everybody reads."""
    scores = [Score("a", "zoo_keepers", "early-exit", Answer(), Mark("exact", True, True, False))]
    scores += [Score("b", "nccl", "early-exit", Answer(), Mark("some", False, True, False))]
    lines = render(scores, by_family=False).splitlines()[2:]
    assert lines[0] == "| all | 2 | 1 (50.0%) | 1 | 0 | 0 | 1 (50.0%) | 2 (100.0%) | 0 |"
    assert lines[1].startswith("| held out | 1 | 1 (100.0%) | 0 ")
