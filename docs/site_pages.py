"""A hook of MkDocs (mkdocs.yml): pages of the site that lie elsewhere in the repository, so that no file has to be there twice.

A page of ``docs`` links to others as they lie in the repository. What it links to outside of ``docs``, directly or
through others, becomes a page of the site as well: Markdown as it is, any other text as a block of code. Links are
rewritten to match; those that lead nowhere are left alone, so that a strict build fails on them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Where a page links to, in Markdown or in HTML; addresses of other hosts and headings of the page itself left out.
_TARGET = re.compile(r'(\]\(|\bhref="|\bsrc(?:set)?=")(?![a-z]+:|#)([^)#\s"]+)')
#: Its name on the site would be that of docs/README.md.
_READMES = {"README.md": "overview.md"}
_LANGUAGES = {".sbatch": "bash", ".sh": "bash", "": "text", ".service": "ini"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """An entry ``folder/*`` of the navigation stands for the pages of that folder, its README first."""
    for section in config.nav or []:
        for title, entries in section.items() if isinstance(section, dict) else ():
            if isinstance(entries, list):
                section[title] = [page for entry in entries for page in _spread(entry, Path(config.docs_dir))]
    return config


def _spread(entry: object, docs: Path) -> Iterator[object]:
    if not (isinstance(entry, str) and entry.endswith("/*")):
        yield entry
        return
    pages = sorted((docs / entry).parent.glob("*.md"), key=lambda path: (path.name != "README.md", path.name))
    for path in pages:
        name = path.relative_to(docs).as_posix()
        # A cause is called by its id, as in a verdict; a decision by its title.
        yield {path.stem: name} if entry == "causes/*" and path.name != "README.md" else name


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to outside of ``docs``."""
    left = [file for file in files if file.is_documentation_page()]
    while left:
        page = left.pop()
        for target in {_source(page, found[2], config) for found in _TARGET.finditer(page.content_string)}:
            uri = _uri(target, config)
            if target is None or uri is None or not target.is_file() or files.get_file_from_path(uri) is not None:
                continue
            if Path(config.docs_dir) in target.parents:
                continue  # left out on purpose (exclude_docs), so the link is a mistake
            added = _page(target, uri, config)
            files.append(added)
            left.append(added)
    return files


def _page(target: Path, uri: str, config: MkDocsConfig) -> File:
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        # What is between the lines of dashes is for programs.
        text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    else:
        language = _LANGUAGES.get(target.suffix, target.suffix[1:])
        # Searches are for pages that explain.
        head = f"---\nsearch:\n  exclude: true\n---\n\n# {target.relative_to(ROOT).as_posix()}\n"
        text = f"{head}\n````{language}\n{text.rstrip()}\n````\n"
    # The links lead there; those that the navigation names are in it all the same.
    return File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def _source(page: File, target: str, config: MkDocsConfig) -> Path | None:
    """The file in the repository that a page links to; of a folder its README. None where it does not exist."""
    if page.generated_by is None:
        folder = (Path(config.docs_dir) / page.src_uri).parent
    else:
        folder = (ROOT / {uri: name for name, uri in _READMES.items()}.get(page.src_uri, page.src_uri)).parent
    file = (folder / target).resolve()
    if file.is_dir():
        file /= "README.md"
    return file if file.exists() else None


def _uri(target: Path | None, config: MkDocsConfig) -> str | None:
    """The name on the site of a file of the repository."""
    if target is None:
        return None
    docs = Path(config.docs_dir)
    if docs in target.parents:
        return target.relative_to(docs).as_posix()
    if ROOT not in target.parents:
        return None
    name = target.relative_to(ROOT).as_posix()
    return _READMES.get(name, name if target.suffix == ".md" else f"{name}.md")


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page."""

    def rewritten(found: re.Match[str]) -> str:
        uri = _uri(_source(page.file, found[2], config), config)
        if uri is None:
            return found[0]
        file = files.get_file_from_path(uri)
        if found[1] == "](" or file is None:
            return found[1] + posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return found[1] + file.url_relative_to(page.file)  # MkDocs itself rewrites no HTML

    return _TARGET.sub(rewritten, markdown)
