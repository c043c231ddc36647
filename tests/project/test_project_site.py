"""The site of the documentation: it builds strictly, a broken link fails it, and it loads nothing from another host."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from markdown_it import MarkdownIt
from mkdocs.exceptions import Abort

from documentation import ROOT, make_site

#: What a browser fetches by itself, and from which attribute. A link in the text is fetched by nobody.
FETCHED = {
    "script": ("src",), "img": ("src", "srcset"), "source": ("src", "srcset"), "iframe": ("src",), "video": ("src", "poster"),
    "audio": ("src",), "embed": ("src",), "object": ("data",), "link": ("href",),
}  # fmt: skip
#: The structure of a page, which the site and GitHub have to make alike of the same Markdown.
STRUCTURE = frozenset({"h1", "h2", "h3", "ol", "ul", "li", "table", "tr", "pre", "blockquote"})


class _Page(HTMLParser):
    """``fetched``: what a browser loads; ``links``: where it leads; ``names``: its anchors; ``structure`` of its article."""

    def __init__(self, text: str, *, whole: bool = False) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.structure: Counter[str] = Counter()
        self._inside = whole
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self._inside |= tag == "article"
        self.structure[tag] += self._inside and tag in STRUCTURE
        self.names.add(values.get("id", ""))
        for name in FETCHED.get(tag, ()):
            self.fetched += [part.split()[0] for part in values.get(name, "").split(",") if part.strip()]
        if tag == "a":
            self.links.append(values.get("href", ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site."""
    folder = tmp_path_factory.mktemp("site")
    make_site(folder)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """Every page by its address, as if the site lay at the root of a host."""
    return {
        f"/{path.parent.relative_to(site).as_posix()}/".replace("/./", "/"): _Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("index.html")
    }


def test_every_page_of_the_documentation_is_built(pages: dict[str, _Page]) -> None:
    """And what lies elsewhere and is linked to."""
    of_docs = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    elsewhere = {
        "overview",
        "CONTRIBUTING",
        "CHANGELOG",
        "benchmarks/README",
        "corpus/README",
        "tests/scenarios/README",
        "deploy/github/action.yml",
    }
    expected = {f"/{name}/".replace("/README/", "/") for name in of_docs | elsewhere}
    assert expected <= pages.keys()


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[str, _Page]) -> None:
    """Scripts, styles, fonts and pictures are files of the site."""
    for address, page in pages.items():
        for target in page.fetched:
            assert not re.match(r"(?:[a-z]+:)?//", target), f"{address}: {target}"
            assert (site / unquote(urljoin(address, target)).lstrip("/")).exists(), f"{address}: {target}"
    for style in site.rglob("*.css"):
        outside = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\s]+", style.read_text(encoding="utf-8"))
        assert not outside, style


def test_every_link_within_the_site_leads_somewhere(site: Path, pages: dict[str, _Page]) -> None:
    """Those in HTML too, which MkDocs does not look at: to a page, and to an anchor of it."""
    for address, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, anchor = urldefrag(urljoin(address, link))
            if target in pages:
                assert not anchor or unquote(anchor) in pages[target].names, f"{address}: {link}"
            else:
                assert (site / unquote(target).lstrip("/")).is_file(), f"{address}: {link}"


def test_the_site_shows_what_github_shows(pages: dict[str, _Page]) -> None:
    """As many headings, lists, tables and blocks: Python-Markdown reads some of them otherwise."""
    github = MarkdownIt("commonmark").enable("table")
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        there = _Page(github.render(path.read_text()), whole=True).structure
        assert pages[f"/{name}/".replace("/README/", "/")].structure == there, name


def planted(folder: Path, text: str) -> None:
    """Build a site of two pages, with the settings of ours and a text in one of them."""
    docs = folder / "docs"
    docs.mkdir()
    (docs / "README.md").write_text(f"# One\n\n## A heading\n\n{text}\n")
    (docs / "two.md").write_text("# Two\n\n## Another heading\n\n[one](README.md#a-heading)\n")
    make_site(folder / "site", docs_dir=str(docs), nav=["README.md", "two.md"], extra_css=[])


def test_a_sound_page_passes(tmp_path: Path) -> None:
    """So it is the planted faults that fail, and nothing else."""
    planted(tmp_path, "[two](two.md#another-heading), [here](#a-heading)")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[gone](../gone.yaml)", "gone.yaml"),
        ("[gone](/two.md)", "/two.md"),
        ("[gone](two.md#gone)", "#gone"),
        ("[gone](#gone)", "#gone"),
        ("![gone](gone.png)", "gone.png"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, says: str) -> None:
    """A page, a file, an absolute path, an anchor elsewhere, an anchor here, a picture."""
    with pytest.raises(Abort):
        planted(tmp_path, text)
    assert says in caplog.text


def test_a_page_that_the_navigation_lacks_fails_the_build(tmp_path: Path) -> None:
    """Nobody would find it."""
    (tmp_path / "docs").mkdir()
    for name in ("README", "two"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name}\n")
    with pytest.raises(Abort):
        make_site(tmp_path / "site", docs_dir=str(tmp_path / "docs"), nav=["README.md"], extra_css=[])
