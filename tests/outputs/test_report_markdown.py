"""The report as Markdown: whatever a job's text holds, it stays text; the brief form is brief; both say the verdict."""

from __future__ import annotations

import msgspec
import pytest
from examples import hang_incident, with_text
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hangwatch.model.incident import Evidence
from hangwatch.outputs.markdown.report import BRIEF, WHOLE, Extent, render_markdown

HOSTILE = (
    "# heading", "- item", "1. one", "> quoted", "**bold** _it_ ~~gone~~ __init__", "[link](https://evil.example)",
    "![](https://evil.example/x.png)", "<script>alert(1)</script>", "<!-- gone", "`", "``` `code` ```", "a `b` c", "`x",
    "| a | b |\n|---|---|", "line\n\n# second", "</details>", "\\", "&lt;b&gt; &#64;octocat", "$a$ $$b$$", "    indented",
    "\x1b[2J\u202ehsur", "***", "x" * 100_000, "[x]: https://evil.example", "a\n===", "a\n---", "a  \nb", "+ x", "1) x", "{}%s",
)  # fmt: skip
#: What GitHub would turn into a notification or a link.
LIVE = (
    "@octocat",
    "cc @org/team.",
    "#17",
    "owner/repo#17",
    "GH-3",
    "https://evil.example/a",
    "www.evil.example",
    "a@b.example",
)
#: Marks in our own texts, which do not change where a line stands.
_INLINE = {"code_inline", "text", "text_special"}
_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def structure(markdown: str) -> list[str]:
    """The elements of a document, text and code in it left out."""

    def kinds(tokens: list[Token]) -> list[str]:
        return [kind for one in tokens for kind in (one.type, *kinds(one.children or ())) if kind not in _INLINE]

    return kinds(_READER.parse(markdown))


def words(markdown: str) -> str:
    """What a reader sees, code included."""
    inline = (one for token in _READER.parse(markdown) for one in token.children or ())
    return " ".join(" ".join(one.content for one in inline).split())


def texts(markdown: str) -> str:
    """What a reader sees that is not code, in which nothing is turned into a link."""
    inline = (one for token in _READER.parse(markdown) for one in token.children or ())
    return "\n".join(one.content for one in inline if one.type != "code_inline")


@pytest.mark.parametrize("extent", [WHOLE, BRIEF], ids=["whole", "brief"])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_a_job_never_becomes_markup(text: str, extent: Extent) -> None:
    """The elements are the same whatever the text, and what can be seen of it is seen as it is."""
    incident, _ = with_text(text)
    assert structure(render_markdown(incident, extent)) == structure(render_markdown(with_text("plain")[0], extent))


@given(st.text(min_size=1, max_size=60))
def test_no_text_at_all_becomes_markup(text: str) -> None:
    """The same of any text that hypothesis can think of, but an address of the web: as a reference that is a link."""
    assume(not text.startswith(("http://", "https://")))
    shown = structure(render_markdown(with_text(text if text.strip() else "plain")[0]))
    assert shown == structure(render_markdown(with_text("plain")[0]))


@pytest.mark.parametrize("text", LIVE)
def test_nobody_is_notified_and_nothing_is_linked(text: str) -> None:
    """Mentions, issue numbers and addresses of a job's are shown as code, where no renderer looks for them."""
    report = render_markdown(with_text(f"see {text} there")[0], BRIEF)
    assert text.rstrip(".") in words(report)
    assert not [mark for mark in ("@", "#", "://", "www.", "GH-") if mark in texts(report)]


@pytest.mark.parametrize("text", ["plain", *HOSTILE])
def test_the_brief_form_stays_under_sixty_lines(text: str) -> None:
    """With a hundred of everything, and within what a comment on GitHub may hold."""
    incident, _ = with_text(text)
    verdict, cause = incident.verdict, incident.verdict.cause
    assert cause is not None
    many = (text,) * 100
    incident = msgspec.structs.replace(
        incident,
        ended_at="2026-05-28T20:30:00Z",
        missing=many,
        job=msgspec.structs.replace(incident.job, nodes=many),
        verdict=msgspec.structs.replace(
            verdict,
            waits=many,
            culprit_ranks=tuple(range(0, 4096, 2)),
            alternatives=(cause,) * 100,
            cause=msgspec.structs.replace(
                cause, remedy=many, references=many, evidence=(Evidence(0, text, text),) * 100
            ),
        ),
    )
    report = render_markdown(incident, BRIEF)
    assert len(report.splitlines()) < 60
    assert len(report) < 65_536
    assert "and 97 more in `incident.json`" in report


@pytest.mark.parametrize("extent", [WHOLE, BRIEF], ids=["whole", "brief"])
def test_a_report_says_what_the_verdict_says(extent: Extent) -> None:
    """Kind, summary, both lines, cause, remedy, evidence, waits and what is missing."""
    incident = hang_incident()
    verdict, seen = incident.verdict, words(render_markdown(incident, extent))
    assert verdict.cause is not None
    assert "Deadlock, proven" in seen
    assert "finetune/train.py:88 in main : trainer.evaluate()" in seen
    said = [verdict.summary, *verdict.waits, *incident.missing, *(one.says for one in verdict.cause.evidence)]
    for text in (*said, verdict.cause.title, verdict.cause.explanation, *verdict.cause.remedy, verdict.proof or ""):
        assert " ".join(text.split()) in seen


def test_what_the_jobs_own_ranks_do_is_said_with_the_job() -> None:
    """Where there are processes of other worlds; their ranks are called by number all the same."""
    incident = hang_incident()
    trainers = msgspec.structs.replace(incident, job=msgspec.structs.replace(incident.job, role="trainer"))
    assert "2 ranks: trainer)" in render_markdown(trainers)
    assert "2 ranks)" in render_markdown(incident)


def test_processes_of_other_worlds_go_by_their_names() -> None:
    """And a name with markup in it is none."""
    number = 1_000_001_000_000
    incident = hang_incident()
    verdict = msgspec.structs.replace(incident.verdict, culprit_ranks=(number,), names={number: "engine`*/0"})
    assert "- Culprit: engine__/0" in render_markdown(msgspec.structs.replace(incident, verdict=verdict))


def test_only_an_address_becomes_a_link() -> None:
    """A bundle is untrusted: a reference that is no plain address of the web is shown as code."""
    incident = hang_incident()
    assert incident.verdict.cause is not None
    given = ("https://docs.example/a", "javascript:alert(1)", "https://a.example/><b>", "docs/x.md")
    cause = msgspec.structs.replace(incident.verdict.cause, references=given)
    report = render_markdown(
        msgspec.structs.replace(incident, verdict=msgspec.structs.replace(incident.verdict, cause=cause))
    )
    links = [one.attrs["href"] for token in _READER.parse(report) for one in token.children or () if one.attrs]
    assert links == ["https://docs.example/a"]
