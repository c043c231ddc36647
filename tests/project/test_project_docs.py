"""The documentation: links that lead somewhere, a README of one screenful or two, and the field's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    + [path for folder in ("docs", "benchmarks", "corpus", "tests/scenarios") for path in (ROOT / folder).rglob("*.md")]
)
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
#: Words that only the authors understood, and what to write instead.
PRIVATE = {
    r"stands? still|stood still": "hangs, is stuck",
    r"(?:is|are|was|were) told of": "is reported",
    r"has not come to": "has not reached",
    r"part(?:ed|ing) ways|ranks? parted": "diverged",
    r"(?:a|the|its|loop's) turns?\b(?! it)": "iteration",
    r"[Nn]obody's": "no rank at fault",
    r"unheard": "unnoticed",
    r"to be unseen": "not visible",
}
#: What users read; pages for developers (architecture, decisions) may use the words of the code.
USER_PAGES = [
    path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/causes/*.md")))
    if path.name != "architecture.md"
]
#: Words of the code, and what users read instead.
FOR_USERS = {
    r"\bpatien(?:ce|t)\b": "stall timeout",
    r"\b(?:the|an|its) exchange\b": "peer discovery",
    r"\bbeats?\b": "heartbeat",
    r"(?<!-)\bworlds?\b(?! size)": "job",
    r"\bguests?\b": "process that is no rank of the job",
    r"\bfrontiers?\b": "first operation that has not completed",
    r"\banew\b": "again",
}
#: Columns of a line that users read in a terminal or in a diff.
WIDTH = 100


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside blocks of code."""
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip() for _, line in prose(path) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    """Files exist, and so do the headings that a link names."""
    for number, line in prose(path):
        for target, anchor in _LINK.findall(line):
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"line {number}: {target}"
            assert not anchor or anchor in anchors(file), f"line {number}: {target}#{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_uses_private_words(path: Path) -> None:
    """A tired engineer gets it at once; names of scenarios (in backquotes) and titles of links are quoted as they are."""
    for number, line in prose(path):
        text = re.sub(r"`[^`]*`|\[[^\]]*\]\(https?[^)]*\)", "", line)
        found = [f"{word}: write {better}" for word, better in PRIVATE.items() if re.search(word, text)]
        assert not found, f"line {number}: {found}"


@pytest.mark.parametrize("path", USER_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_user_page_uses_words_of_the_code(path: Path) -> None:
    """Names of options, metrics and files (in backquotes, or between slashes and dots) are quoted as they are."""
    for number, line in prose(path):
        text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
        found = [
            f"{word}: write {better}" for word, better in FOR_USERS.items() if re.search(word, text, re.IGNORECASE)
        ]
        assert not found, f"line {number}: {found}"


def too_wide(text: str) -> list[int]:
    """The numbers of lines beyond ``WIDTH`` that could be broken: not of tables, with links, or of recorded JSON."""
    found, block = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            block = line.strip()[3:] if block is None else None
        elif len(line) > WIDTH and block != "json" and not line.startswith("|") and not re.search(r"\]\(|\]: ", line):
            found.append(number)
    return found


@pytest.mark.parametrize("path", USER_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_user_pages_are_short(path: Path) -> None:
    """They fit beside something else; commands can be broken too."""
    assert too_wide(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("word " * 20, []), ("word " * 21, [1]), ("```sh\n" + "word " * 21 + "\n```", [2]), ("| " + "word " * 30, []),
        ("```json\n" + "word " * 21 + "\n```\n" + "word " * 21, [4]), ("[a]: https://host/" + "a" * 100, []),
    ],
)  # fmt: skip
def test_wide_lines_would_be_seen(text: str, wide: list[int]) -> None:
    """In the text and in commands; a table, an address and recorded JSON cannot be broken."""
    assert too_wide(text) == wide


#: A file or a folder of ours, as prose names it: `agent/fleet/link.py`, `tests/scenarios`, `causes/`.
_PATH = re.compile(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9-]+\.[a-z]+)?|(?:[a-z_0-9]+/)+[a-z_0-9-]+(?:\.[a-z]+)?)`")
_ROOMS = {path.name for path in (ROOT / "watchdog" / "hangwatch").iterdir() if path.is_dir()}
_TOPS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(path: Path) -> None:
    """Modules move, and the pages with them. Names of rooms count from the package, all others from the repository."""
    for number, line in prose(path):
        for name in _PATH.findall(line):
            first = name.split("/")[0]
            if first in _ROOMS | _TOPS:
                places = (ROOT / name, ROOT / "watchdog" / "hangwatch" / name)
                assert any(place.exists() for place in places), f"line {number}: {name}"


def test_contributing_lists_every_room() -> None:
    """And none that is gone."""
    listed = re.search(
        r"^watchdog/hangwatch/\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert listed is not None
    assert set(re.findall(r"^  ([a-z]+)/ ", listed[1], re.MULTILINE)) == _ROOMS - {"__pycache__"}
    architecture = (ROOT / "docs" / "architecture.md").read_text()
    table = architecture[architecture.index("## Rooms") : architecture.index("Imports go one way")]
    assert set(
        re.findall(r"`([a-z]+)/`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `")))
    ) == (_ROOMS - {"__pycache__"})


def test_the_readme_is_short() -> None:
    """What it is, how to start and where to read on: no more than 120 lines."""
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


def test_the_index_names_every_page() -> None:
    """docs/README.md has a row for each page beside it."""
    named = {target for target, _ in _LINK.findall((ROOT / "docs" / "README.md").read_text())}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= named


def test_alerts_name_pages_that_exist() -> None:
    """Every runbook_url that is not made by the agent leads to a page and a heading of it."""
    rules = (ROOT / "deploy" / "prometheus" / "rules" / "hangwatch.rules.yml").read_text()
    urls = re.findall(r'runbook_url: .*reReplaceAll "{page}" "([\w/-]+)" }}(?:#([\w-]+))?{{ end }}', rules)
    assert len(urls) > 5
    for name, anchor in urls:
        page = ROOT / "docs" / f"{name}.md"
        assert page.exists(), page
        assert not anchor or anchor in anchors(page), anchor
