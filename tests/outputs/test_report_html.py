"""The parts of page and report: whatever a job's text holds, it stays text; whatever the size, it stays small."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from examples import hang_capture, hang_incident, rank_capture, with_text
from hypothesis import assume, given
from hypothesis import strategies as st

from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.outputs.archive import IncidentSummary
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.html.cells import render_cells
from hangwatch.outputs.html.elements import short_command
from hangwatch.outputs.html.group_progress import JobProgress, ProgressPoint
from hangwatch.outputs.html.incident import render_report
from hangwatch.outputs.html.live import lay_out, render_parts
from hangwatch.outputs.html.stacks import render_stacks
from hangwatch.outputs.stack_tree import merge_stacks

sys.path.append(str(Path(__file__).resolve().parents[1] / "causes"))

from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from recorded import NAMES, load

HOSTILE = (
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "</style></title></pre><b>", "javascript:alert(1)",
    "\x1b[2J\x1b]0;owned\x07", "first\nsecond\r\n\x00", "\u202egnol si siht\u202c", "{}{0}{x}%s",
    "&lt;b&gt;", "`code` `", "x" * 100_000,
)  # fmt: skip
#: Elements that our own words bring, by what the text looks like: a break after a slash, code between backticks.
_OF_TEXT = {"wbr", "code", "bdi"}
_VOID = {"meta", "link", "wbr", "input"}


class _Structure(HTMLParser):
    """The elements of a document with the names of their attributes, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _OF_TEXT:
            self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src", "action"}]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _live(text: str) -> str:
    incident, capture = with_text(text)
    progress = LiveProgress(text, text, (0, 1), 7, 6, 3.0)
    job = LiveJob(
        text, 2, text, text, tuple(LiveRank(r, text, 1, "waiting", 0.1, (progress,), text) for r in (0, 1)),
        (GroupFront(text, (0, 1), 7, 6, 5, (1,), 9.0),), incident, capture,
    )  # fmt: skip
    history = {text: JobProgress({text: (ProgressPoint(1.0, 3, 2), ProgressPoint(2.0, 7, 6))})}
    listed = IncidentSummary(incident.id, text, text, incident.onset_at, None, "deadlock", True, "critical", text, (0,))
    quiet = msgspec.structs.replace(job, id="quiet", incident=None, capture=None)
    return lay_out(render_parts(LiveView(5, (job, quiet)), history, (listed,)))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_a_job_never_becomes_structure(text: str) -> None:
    """Report and page have the same elements and attributes whatever the text, properly nested, and nothing that runs."""
    for render in (lambda t: render_report(*with_text(t)), _live):
        plain, hostile = _Structure(render("plain words")), _Structure(render(text))
        assert hostile.elements == plain.elements
        assert hostile.open == plain.open == []
        assert {name for _, names in hostile.elements for name in names} & {
            "style",
            "onerror",
            "onload",
            "onclick",
        } == set()
        assert hostile.addresses
        assert all(
            address.startswith(("https://", "http://", "data:,", "#", "incidents/", "causes/"))
            for address in hostile.addresses
        )
        assert not [c for word in hostile.words for c in word if c in "\x00\x1b\x07\u202e\u202c"]
        assert max(map(len, hostile.words)) < 30_000


@given(st.text(max_size=60))
def test_no_text_at_all_becomes_structure(text: str) -> None:
    """The same of any text that hypothesis can think of, but an address of the web: as a reference that is a link."""
    assume(not text.startswith(("http://", "https://")))
    report = _Structure(render_report(*with_text(text or "x")))
    assert report.elements == _Structure(render_report(*with_text("plain words"))).elements
    assert report.open == []


def test_text_of_100_kb_everywhere_gives_a_file_of_ordinary_size() -> None:
    """Each place shows the beginning of it."""
    assert len(render_report(*with_text("x" * 100_000))) < 400_000


@pytest.mark.parametrize("name", NAMES)
def test_a_report_says_what_the_verdict_says(name: str) -> None:
    """For every recorded hang: kind, summary, cause, all evidence and remedies, both lines, what is missing, and no script."""
    capture = load(name)
    incident = make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)
    report = _Structure(render_report(incident, capture))
    said = " ".join("".join(report.words).split())
    verdict = incident.verdict
    assert verdict.cause is not None
    wanted = [
        verdict.summary,
        verdict.cause.title,
        *verdict.waits,
        *incident.missing,
        *(e.says for e in verdict.cause.evidence),
    ]
    sides = (verdict.divergence.culprit, verdict.divergence.others) if verdict.divergence is not None else ()
    wanted += [side.source for side in sides if side is not None and side.source is not None]
    wanted += verdict.cause.remedy
    for text in wanted:  # words between backticks are set as code, and then without them
        assert " ".join(text.replace("`", "").split()) in said.replace("`", "")
    assert "script" not in {tag for tag, _ in report.elements}
    assert report.open == []


def test_cells_of_four_thousand_ranks_are_one_small_drawing() -> None:
    """A path a state instead of an element a rank; the culprit is a diamond with its number, and every state is listed."""
    states = dict.fromkeys(range(4096), "waiting") | {2741: "stuck"}
    drawing = render_cells(states, (2741,))
    assert len(drawing) < 20_000
    assert drawing.count("<path") == 3
    assert drawing.count('<path class="culprit"') == 1
    assert '">2741</text>' in drawing
    assert "0-2740,2742-4095" in drawing


def test_ranks_never_seen_are_shown_as_unknown() -> None:
    """A world of four of which two are here has four cells."""
    assert render_cells({0: "waiting", 1: "busy"}, (), 4).count("s-unknown") == 3  # two tiles and the legend


def test_stacks_that_part_everywhere_are_cut() -> None:
    """Hundreds of ranks in as many deep places give a page that a browser can show, which says that it is truncated."""
    stacks = {rank: tuple(Frame(f"f{rank}_{depth}", "/a.py", depth) for depth in range(300)) for rank in range(300)}
    shown = render_stacks(merge_stacks(stacks))
    assert len(shown) < 2_000_000
    assert "see stacks.txt for the rest" in shown


def test_a_recursion_as_deep_as_python_allows_is_shown() -> None:
    """Forks below forks, a thousand of them, neither overflow our stack nor the browser's."""
    frames = tuple(Frame("f", "/a.py", line) for line in range(1000))
    ladder = {rank: frames[-rank - 1 :] for rank in range(999)}
    assert "see stacks.txt for the rest" in render_stacks(merge_stacks(ladder))


def test_the_end_of_an_incident_is_in_its_report(tmp_path: Path) -> None:
    """An update without a capture renders the report anew, with the stacks that are stored."""
    folder = write_bundle(tmp_path, hang_incident(), hang_capture())
    before = (folder / "report.html").read_text()
    write_bundle(tmp_path, hang_incident(ended_at="2026-05-28T20:30:00Z"), None)
    after = (folder / "report.html").read_text()
    assert "2026-05-28 20:30:00 UTC" in after
    assert "2026-05-28 20:30:00 UTC" not in before
    assert after.count('class="frames"') == before.count('class="frames"') > 0


def test_a_rank_without_stacks_is_no_trouble() -> None:
    """Nobody's stack was seen: the report has no tree, and everything else."""
    blind = tuple(msgspec.structs.replace(rank_capture(rank), stacks=()) for rank in (0, 1))
    report = render_report(hang_incident(), msgspec.structs.replace(hang_capture(), ranks=blind))
    assert 'class="tree"' not in report
    assert hang_incident().verdict.cause is not None


def test_threads_that_left_python_are_no_trouble() -> None:
    """A main thread without a frame ends at the root."""
    bare = ThreadStack(1, "MainThread", True, False, False, ())
    rank = msgspec.structs.replace(rank_capture(0), stacks=(StackSample(1, (bare,)),))
    report = render_report(hang_incident(), msgspec.structs.replace(hang_capture(), ranks=(rank, rank_capture(1))))
    assert "rank 0: no Python frames" in _text_of(report)


def _text_of(document: str) -> str:
    return "".join(_Structure(document).words)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/venv/bin/python3.11 /venv/bin/torchrun --nproc-per-node 8 train.py", "torchrun --nproc-per-node 8 train.py"),
        ("/usr/bin/python -m torch.distributed.run train.py", "python -m torch.distributed.run train.py"),
        ("python train.py", "python train.py"),
        ("python /srv/train.py", "python /srv/train.py"),
        ("/srv/start", "start"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_command_is_shown_as_it_was_typed(command: str, shown: str) -> None:
    """Nobody types the interpreter of an installed program, and where it lies tells nothing of the job."""
    assert short_command(command) == shown
