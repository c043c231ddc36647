"""Bundles: what is written can be read, damage stays local, and no reader ever sees half of one."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from examples import AT_NS, hang_capture, hang_incident
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.devices import Gpu, NodeFacts
from hangwatch.model.incident import Incident
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.outputs.bundle.bundle import BundleError, list_incidents, read_bundle, write_bundle
from hangwatch.outputs.html.incident import render_report
from hangwatch.outputs.markdown.report import WHOLE, render_markdown

GOLDEN = Path(__file__).parent / "golden"
TEXT = st.text(max_size=12) | st.sampled_from(["", "größe", "\x1b[31m", "\u202e", "日本\x00", '"\\\n', "🚀"])
INTS = st.integers(0, 2**62)
RANKS = st.lists(st.integers(0, 40), max_size=4, unique=True).map(tuple)
SHAPES = st.lists(RANKS, max_size=3).map(tuple)
FRAMES = st.builds(
    Frame, TEXT, TEXT, INTS, st.none() | TEXT, st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=3)
)
THREADS = st.builds(
    ThreadStack,
    INTS,
    st.none() | TEXT,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(FRAMES, max_size=3).map(tuple),
)
GROUPS = st.builds(Group, TEXT, RANKS, TEXT)
PROGRESS = st.builds(GroupProgress, GROUPS, INTS, st.just(-1), INTS)
OPERATIONS = st.builds(
    Operation,
    INTS,
    GROUPS,
    INTS,
    TEXT,
    st.booleans(),
    INTS,
    peer=st.none() | st.integers(0, 9),
    input_sizes=SHAPES,
    frames=st.none() | st.lists(FRAMES, max_size=2).map(tuple),
)
FLIGHTS = st.builds(
    FlightRecord,
    INTS,
    TEXT,
    TEXT,
    st.lists(OPERATIONS, max_size=3).map(tuple),
    st.lists(PROGRESS, max_size=2).map(tuple),
)
PROCESSES = st.builds(
    ProcessSample, INTS, INTS, TEXT, st.floats(0, 1e9), io_bytes=st.none() | INTS, syscall=st.none() | TEXT
)


@st.composite
def captures(draw: st.DrawFn) -> Capture:
    """A capture of a few ranks with all kinds of holes."""
    ranks = tuple(
        RankCapture(
            identity=RankIdentity(rank, draw(INTS), draw(st.floats(0, 1e10)), draw(TEXT)),
            processes=tuple(draw(st.lists(PROCESSES, max_size=2))),
            stacks=tuple(StackSample(k, tuple(draw(st.lists(THREADS, max_size=2)))) for k in range(draw(INTS) % 3)),
            flight=draw(st.none() | FLIGHTS),
            progress=draw(st.none() | st.lists(PROGRESS, max_size=2).map(tuple)),
            beat_age_s=draw(st.none() | st.floats(0, 1e6)),
            log_error=tuple(draw(st.lists(TEXT, max_size=2))),
        )
        for rank in draw(RANKS)
    )
    gaps = draw(st.lists(st.builds(Gap, TEXT, TEXT, st.none() | INTS, TEXT), max_size=2).map(tuple))
    return Capture(Job(draw(TEXT), draw(st.none() | INTS), command=draw(TEXT)), draw(INTS), ranks, gaps)


@settings(max_examples=40, deadline=None)
@given(capture=captures())
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, capture: Capture) -> None:
    """Any capture survives the way to disk and back, whatever its text holds."""
    folder = write_bundle(tmp_path_factory.mktemp("state"), hang_incident(), capture)
    assert read_bundle(folder) == (hang_incident(), capture)


def test_a_bundle_has_the_documented_files_for_its_owner_alone(tmp_path: Path) -> None:
    """Directories are 0700 and files 0600, whatever the umask, and nothing temporary is left."""
    old = os.umask(0)
    try:
        folder = write_bundle(tmp_path / "deep" / "state", hang_incident(), hang_capture())
    finally:
        os.umask(old)
    found = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    texts = {"incident.json", "capture.json", "ranks.jsonl", "stacks.jsonl", "stacks.txt"}
    assert found == dict.fromkeys(texts | {"report.html"}, 0o600)
    assert [stat.S_IMODE(place.stat().st_mode) for place in (folder, folder.parent)] == [0o700, 0o700]
    assert folder == tmp_path / "deep" / "state" / "incidents" / hang_incident().id


def test_the_document_is_readable_and_bears_its_schema(tmp_path: Path) -> None:
    """incident.json is indented JSON under its contract's schema name."""
    text = (write_bundle(tmp_path, hang_incident(), None) / "incident.json").read_text()
    assert text.startswith('{\n  "id"')
    assert msgspec.json.decode(text)["schema"] == "hangwatch.incident/3"


def test_a_bundle_of_the_schema_before_is_read_listed_and_diagnosed_as_ever() -> None:
    """Written by hangwatch when processes of other worlds had no names: schema 1, and only paths of it were changed."""
    (listed,) = list_incidents(GOLDEN)
    incident, capture = read_bundle(GOLDEN / "incidents" / listed.id)
    assert listed == incident
    assert incident.schema == "hangwatch.incident/1"
    for found in (incident.verdict, diagnose(capture).verdict):
        assert found.cause is not None
        assert (found.proven, found.culprit_ranks, found.cause.id) == (True, (0, 1), "group-order-inversion")
    assert "Ranks 0-1 wait for each other" in render_markdown(incident, WHOLE)
    assert "group_order.py" in render_report(incident, capture)


def test_an_update_keeps_the_capture(tmp_path: Path) -> None:
    """Writing the end of an incident without a capture replaces the document alone."""
    write_bundle(tmp_path, hang_incident(), hang_capture())
    ended = hang_incident(ended_at="2026-05-28T20:30:00Z")
    assert read_bundle(write_bundle(tmp_path, ended, None)) == (ended, hang_capture())


def test_a_path_that_is_no_utf8_is_stored_all_the_same(tmp_path: Path) -> None:
    """Lone surrogates, as Python makes them of such paths, become their escape instead of losing the incident."""
    capture = msgspec.structs.replace(hang_capture(), job=Job("job-\udcff"))
    _, read = read_bundle(write_bundle(tmp_path, hang_incident(), capture))
    assert read.job.id == "job-\\udcff"


def change_line(file: Path, number: int, content: bytes) -> bytes:
    """Put something else in the place of a line; returns what it was."""
    lines = file.read_bytes().splitlines()
    before, lines[number] = lines[number], content
    file.write_bytes(b"\n".join(lines) + b"\n")
    return before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"capture_at_ns": "x"}'])
def test_a_broken_line_of_a_rank_is_a_gap(tmp_path: Path, content: bytes) -> None:
    """Damage to one rank's line costs that rank and nothing else."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    change_line(folder / "ranks.jsonl", 1, content)
    incident, capture = read_bundle(folder)
    assert incident == hang_incident()
    assert capture.ranks == hang_capture().ranks[:1]
    first, second = [gap for gap in capture.gaps if gap not in hang_capture().gaps]
    assert first.reason.startswith("line 2 of ranks.jsonl is damaged")
    assert second == Gap("bundle", "ranks.jsonl has no line of it that can be read", 1)


def test_a_broken_stack_costs_those_who_stood_in_it(tmp_path: Path) -> None:
    """All else of such a rank is there, and the gap says whose stacks are not."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    line = msgspec.json.decode((folder / "ranks.jsonl").read_bytes().splitlines()[1])
    ((_, (place, *_)), *_) = line["stacks"]
    change_line(folder / "stacks.jsonl", place, b"?")
    _, capture = read_bundle(folder)
    assert capture.ranks[1].flight == hang_capture().ranks[1].flight
    assert capture.ranks[1].stacks != hang_capture().ranks[1].stacks
    assert Gap("bundle", "stacks.jsonl lacks stacks of it, or is of another capture", 1) in capture.gaps


def test_what_ranks_have_in_common_is_written_once(tmp_path: Path) -> None:
    """A bundle of a thousand ranks in one group is not a thousand lists of a thousand ranks, nor as many stacks."""
    world = Group("0", tuple(range(1000)), "default_pg")
    frames = tuple(Frame(f"function_{k}", "train.py", k) for k in range(40))
    thread = ThreadStack(1, "MainThread", True, True, False, frames)
    ranks = tuple(
        RankCapture(
            RankIdentity(rank, rank + 1, 1.0),
            stacks=(StackSample(1, (thread,)),),
            flight=FlightRecord(
                1, "json", "2.10", tuple(Operation(k, world, k, "all_reduce", False, 1) for k in range(9)), ()
            ),
        )
        for rank in world.ranks
    )
    capture = Capture(Job("j", 1000), 1, ranks)
    folder = write_bundle(tmp_path, hang_incident(), capture)
    assert read_bundle(folder)[1] == capture
    sizes = {name: (folder / name).stat().st_size for name in ("ranks.jsonl", "stacks.jsonl", "capture.json")}
    assert sizes["ranks.jsonl"] < 2_000_000
    assert sizes["stacks.jsonl"] < 10_000
    assert sizes["capture.json"] < 20_000


def test_ranks_that_cannot_be_opened_are_a_gap(tmp_path: Path) -> None:
    """A FIFO in the place of the ranks is not waited for, and neither is a missing file."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    (folder / "ranks.jsonl").unlink()
    os.mkfifo(folder / "ranks.jsonl")
    (folder / "stacks.jsonl").unlink()
    _, capture = read_bundle(folder)
    assert capture.ranks == ()
    assert [str(gap) for gap in capture.gaps[1:]] == [
        "bundle: stacks.jsonl is missing",
        "bundle: ranks.jsonl is not a regular file",
        "bundle of rank 0: ranks.jsonl has no line of it that can be read",
        "bundle of rank 1: ranks.jsonl has no line of it that can be read",
    ]


@pytest.mark.parametrize("name", ["ranks.jsonl", "stacks.jsonl"])
def test_ranks_of_two_captures_are_never_mixed(tmp_path: Path, name: str) -> None:
    """A file that an interrupted update left behind is a gap and no evidence."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    old = (folder / name).read_bytes()
    write_bundle(tmp_path, hang_incident(), msgspec.structs.replace(hang_capture(), at_ns=AT_NS + 7))
    (folder / name).write_bytes(old)
    _, capture = read_bundle(folder)
    assert all(rank.stacks == () for rank in capture.ranks)
    assert any("another capture" in gap.reason and gap.rank == 1 for gap in capture.gaps)


def test_a_broken_document_leaves_the_capture_readable(tmp_path: Path) -> None:
    """Without its verdict a bundle can still be diagnosed."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    (folder / "incident.json").write_text("{")
    incident, capture = read_bundle(folder)
    assert incident is None
    assert capture.ranks == hang_capture().ranks


def test_a_document_alone_gives_a_capture_without_ranks(tmp_path: Path) -> None:
    """The job and the time come from the document, and the missing capture is a gap."""
    incident, capture = read_bundle(write_bundle(tmp_path, hang_incident(), None))
    assert incident == hang_incident()
    assert capture.job.id == "torchrun-7c1f"
    assert capture.at_ns == 1_779_999_999_100_000_000
    assert [gap.reason for gap in capture.gaps] == ["capture.json is missing"]


@pytest.mark.parametrize("make", ["nothing", "file", "empty"])
def test_an_unusable_path_is_one_line(tmp_path: Path, make: str) -> None:
    """Neither a missing path nor a file nor an empty folder is a bundle, and the error says what to give."""
    path = tmp_path / "bundle"
    if make == "file":
        path.write_text("x")
    elif make == "empty":
        path.mkdir()
    with pytest.raises(BundleError, match=r"give the folder") as caught:
        read_bundle(path)
    assert "\n" not in str(caught.value)


def test_incidents_are_listed_by_onset_and_broken_ones_left_out(tmp_path: Path) -> None:
    """A state directory that was never used, or holds rubbish, lists what can be read."""
    assert list_incidents(tmp_path / "never") == []
    late = msgspec.structs.replace(hang_incident(), id="a-late", onset_at="2026-06-01T00:00:00Z")
    write_bundle(tmp_path, late, None)
    write_bundle(tmp_path, hang_incident(), hang_capture())
    (tmp_path / "incidents" / "rubbish").mkdir()
    (tmp_path / "incidents" / "rubbish" / "incident.json").write_text('{"id": 1}')
    (tmp_path / "incidents" / "file").write_text("")
    assert list_incidents(tmp_path) == [hang_incident(), late]


def test_a_place_that_cannot_be_written_is_one_line_with_the_repair(tmp_path: Path) -> None:
    """A file where the state directory should be names itself and the option that mends it."""
    (tmp_path / "state").write_text("")
    with pytest.raises(BundleError, match=r"cannot write the incident to .*state.*--state-dir DIR") as caught:
        write_bundle(tmp_path / "state", hang_incident(), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\x00", "-x", "x" * 200])
def test_an_id_cannot_leave_the_state_directory(tmp_path: Path, name: str) -> None:
    """An incident's id comes from a job's name; it names one folder or nothing."""
    with pytest.raises(BundleError, match="cannot name a directory"):
        write_bundle(tmp_path, msgspec.structs.replace(hang_incident(), id=name), None)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_bundle_as_it_was(tmp_path: Path) -> None:
    """When a file cannot be written to its end, none is replaced and no temporary one is left (a file size limit stands in)."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    bigger = msgspec.structs.replace(
        hang_capture(), at_ns=1, gaps=(), job=Job("x" * 10), ranks=hang_capture().ranks[:1]
    )
    big_document = msgspec.structs.replace(hang_incident(), missing=("y" * 300_000,))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(BundleError, match=r"incident\.json.* File too large; free or grant the space"):
            write_bundle(tmp_path, big_document, bigger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


_WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import msgspec
from examples import hang_capture, hang_incident
from hangwatch.outputs.bundle.bundle import write_bundle
at_ns = 0
while True:
    at_ns += 1
    capture = msgspec.structs.replace(hang_capture(), at_ns=at_ns)
    write_bundle(Path(sys.argv[1]), msgspec.structs.replace(hang_incident(), ended_at=str(at_ns)), capture)
    print(at_ns, flush=True)
"""


@pytest.mark.parametrize("rounds", [1, 4, 9])
@pytest.mark.usefixtures("real")
def test_a_writer_killed_at_any_moment_leaves_a_whole_document(tmp_path: Path, rounds: int) -> None:
    """Readers beside a writer, and after its SIGKILL, get a whole document and never ranks of two captures."""
    import hangwatch

    paths = [str(Path(__file__).parent), str(Path(hangwatch.__file__).parent.parent)]
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), *paths], stdout=subprocess.PIPE, text=True)
    folder = tmp_path / "incidents" / hang_incident().id
    try:
        assert writer.stdout is not None
        for _ in range(rounds):
            writer.stdout.readline()
            for _ in range(3):
                assert _reads_whole(folder).ended_at is not None
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    assert _reads_whole(folder).ended_at is not None
    assert len(list_incidents(tmp_path)) == 1
    write_bundle(tmp_path, hang_incident(), hang_capture())
    assert read_bundle(folder) == (hang_incident(), hang_capture())


def _reads_whole(folder: Path) -> Incident:
    incident, capture = read_bundle(folder)
    assert incident is not None
    damaged = [gap for gap in capture.gaps if gap.source == "bundle" and "another capture" not in gap.reason]
    assert damaged == []
    return incident


def test_facts_of_the_nodes_are_kept_and_older_bundles_have_none(tmp_path: Path) -> None:
    """What was written comes back; a capture from before there were any is read as it was."""
    facts = NodeFacts("node-0", 3, gpus=(Gpu(0, bus_id="0000:3b:00", xids=(79,)),), looked=("nvml",))
    folder = write_bundle(tmp_path, hang_incident(), msgspec.structs.replace(hang_capture(), nodes=(facts,)))
    assert read_bundle(folder)[1].nodes == (facts,)
    header = msgspec.json.decode((folder / "capture.json").read_bytes())
    del header["nodes"]
    (folder / "capture.json").write_bytes(msgspec.json.encode(header))
    assert read_bundle(folder)[1].nodes == ()
