"""The pages of the causes: docs/causes, from which every incident takes title, remedy and links."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from hangwatch import causes
from hangwatch.causes.knowledge import SECTIONS, PageError, known, parse_page, read_page
from hangwatch.causes.registry import RULES, TRAINING_RULES
from hangwatch.causes.signature import Signature

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "causes"
INDEX = PAGES / "README.md"
#: Ids with a page whose rule is still to come, and what it waits for.
RESERVED: dict[str, str] = {}

IDS = sorted(path.stem for path in PAGES.glob("*.md") if path != INDEX)


def stated() -> dict[str, set[str]]:
    """The ids of the causes whose rows each module has."""
    found = pkgutil.walk_packages(causes.__path__, f"{causes.__name__}.")
    modules = [importlib.import_module(m.name) for m in found if ".rules." in m.name or ".training." in m.name]
    return {m.__name__: {v.cause for v in vars(m).values() if isinstance(v, Signature)} for m in modules}


def page(**changed: str) -> str:
    """A page of the right form, with some of its sections changed."""
    sections = dict.fromkeys(SECTIONS, "Words.") | {
        "Remedy": "1. Do `this`,\n   then that.\n2. Or that.",
        "Links": "- [a report](https://example.org/1): why",
    }
    return "# some-id: It went wrong\n\n" + "\n\n".join(
        f"## {name}\n\n{text}" for name, text in (sections | changed).items()
    )


def test_every_cause_has_a_page_and_every_page_a_cause() -> None:
    """Rules name no cause without a page, and no page is of a cause that nothing names."""
    assert set.union(*stated().values()) | set(RESERVED) == set(IDS)
    assert not set.union(*stated().values()) & set(RESERVED)


def test_every_module_with_a_cause_is_in_the_registry() -> None:
    """A family of causes none of whose rules is registered would never be named."""
    registered = {rule.__module__ for rule in (*RULES, *TRAINING_RULES)}
    assert {module for module, ids in stated().items() if ids} <= registered


@pytest.mark.parametrize("cause", IDS)
def test_a_page_is_complete(cause: str) -> None:
    """Each page has all its parts, an example, and a remedy that reads well as single lines."""
    found = read_page(cause)
    assert found.id == cause
    assert tuple(found.sections) == SECTIONS
    assert not found.title.endswith(".")
    assert 1 < len(found.remedy) <= 6
    for item in found.remedy:
        assert item.endswith((".", ")"))
        assert item.count("`") % 2 == 0
        assert not re.search(r"\]\(|\*\*|\s{2}", item)
    assert "```" in found.sections["Mechanism"]
    assert found.references
    assert len(set(found.references)) == len(found.references)


@pytest.mark.parametrize("cause", IDS)
def test_examples_are_python(cause: str) -> None:
    """What people may copy parses."""
    for example in re.findall(
        r"^```python\n(.*?)^```", read_page(cause).sections["Mechanism"], re.DOTALL | re.MULTILINE
    ):
        ast.parse(example)


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_reads_well(path: Path) -> None:
    """A page or so long, none of prose wider than a screen, no relative link that leads nowhere."""
    text = path.read_text()
    lines = text.splitlines()
    assert path == INDEX or 30 <= len(lines) <= 75
    assert not [line for line in lines if len(line) > 120 and "](" not in line and not line.startswith("|")]
    for target in re.findall(r"\]\((?!https?://)([^)#\s]+)", text):
        assert (path.parent / target).exists(), target


def test_the_index_names_every_page_once() -> None:
    """One row a page, and no row for anything else."""
    assert sorted(re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \|", INDEX.read_text(), re.MULTILINE)) == IDS


def test_the_pages_are_the_package_data() -> None:
    """What is read at run time is what stands in docs/causes; in the repository it is the same folder."""
    data = resources.files(causes) / "pages"
    assert {p.name: p.read_bytes() for p in data.iterdir()} == {p.name: p.read_bytes() for p in PAGES.iterdir()}


@pytest.mark.usefixtures("real")
def test_the_rules_are_loaded_without_reading_a_page() -> None:
    """Thirty files are not read at each start of an agent; the page is, when its cause is reported."""
    script = (
        "import hangwatch.causes.registry, hangwatch.causes.knowledge as k;"
        "before = k.read_page.cache_info().currsize; k.known('debugger').title;"
        "print(before, k.read_page.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]


def test_knowledge_is_what_the_page_says() -> None:
    """Items broken over lines are joined, links give their addresses."""
    found = parse_page(page(), "some-id")
    assert found.title == "It went wrong"
    assert found.remedy == ("Do `this`, then that.", "Or that.")
    assert found.references == ("https://example.org/1",)
    assert known("debugger") is known("debugger")


def test_a_heading_in_code_is_no_section() -> None:
    """A comment of a shell script does not end the section it stands in."""
    found = parse_page(page(Mechanism="```bash\n## not a section\n```"), "some-id")
    assert found.sections["Mechanism"] == "```bash\n## not a section\n```"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "first line"),
        (page().replace("some-id", "other-id"), "first line"),
        (page().replace(": It went wrong", ""), "first line"),
        (page().replace("## Evidence", "## Proof"), "sections have to be"),
        (page(Symptom=""), "nothing is said under Symptom"),
        (page(Remedy="Do this."), "has to be a list"),
        (page(Remedy="1. Do\n   ```\n   this\n   ```"), "block of code"),
        (page(Links="- see the manual"), "list of"),
    ],
)
def test_a_page_of_another_form_is_refused(text: str, complaint: str) -> None:
    """The error says which page, and what is wrong with it."""
    with pytest.raises(PageError, match=rf"docs/causes/some-id\.md: .*{complaint}"):
        parse_page(text, "some-id")


def test_a_cause_without_a_page_is_refused() -> None:
    """Nothing is made up for it."""
    with pytest.raises(PageError, match=r"docs/causes/no-such-cause\.md is missing"):
        _ = known("no-such-cause").remedy
