"""The pages of the causes: docs/causes, from which every incident takes title, remedy and links."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

import hangwatch.causes
from hangwatch.causes.knowledge import FORMER, SECTIONS, PageError, parse_page, read_page
from hangwatch.diagnosis.registry import RULES, TRAINING_RULES
from hangwatch.slow.causes import match_slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "causes"
INDEX = PAGES / "README.md"
#: Ids with a page whose rule is still to come, and what it waits for.
RESERVED: dict[str, str] = {}

IDS = sorted(path.stem for path in PAGES.glob("*.md") if path != INDEX)


def stated() -> dict[str, set[str]]:
    """The ids of causes that each module names."""
    package = Path(hangwatch.__path__[0])
    found: dict[str, set[str]] = {}
    for path in (
        *package.glob("causes/rules/**/*.py"),
        *package.glob("[hs]*/causes.py"),
        *package.glob("training/causes/*.py"),
    ):
        module = ".".join((hangwatch.__name__, *path.relative_to(package).with_suffix("").parts))
        nodes = list(ast.walk(ast.parse(path.read_text())))
        firsts = {id(node.args[0]) for node in nodes if isinstance(node, ast.Call) and _calls_match(node)}
        texts = [(id(node), node.value) for node in nodes if isinstance(node, ast.Constant)]
        found[module] = {text for key, text in texts if isinstance(text, str) and (key in firsts or text in IDS)}
    return found


def _calls_match(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "Match"


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
    registered = {rule.__module__ for rule in (*RULES, *TRAINING_RULES, match_slow)}
    assert {module for module, ids in stated().items() if ids} <= registered


@pytest.mark.parametrize("cause", IDS)
def test_a_page_is_complete(cause: str) -> None:
    """Each page has all its parts, an example, and a remedy that reads well as single lines."""
    found = read_page(cause)
    assert found.id == cause
    assert tuple(found.sections) == SECTIONS
    assert not found.title.endswith(".")
    assert not re.match(r"Its? ", found.title), "it follows 'because of ranks 0-1: '"
    assert 1 < len(found.remedy) <= 8
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
    mechanism = read_page(cause).sections["Mechanism"]
    examples = re.findall(r"^```python\n(.*?)^```", mechanism, re.DOTALL | re.MULTILINE)
    assert len(examples) == mechanism.count("```python")
    for example in examples:
        ast.parse(example)


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_reads_well(path: Path) -> None:
    """Two pages at most, none of prose wider than a screen, no relative link that leads nowhere."""
    text = path.read_text()
    lines = text.splitlines()
    assert path == INDEX or 30 <= len(lines) <= 130
    assert not [line for line in lines if len(line) > 100 and "](" not in line and not line.startswith("|")]
    for target in re.findall(r"\]\((?!https?://)([^)#\s]+)", text):
        assert (path.parent / target).exists(), target


def test_the_index_names_every_page_once() -> None:
    """One row a page, and no row for anything else."""
    assert sorted(re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \|", INDEX.read_text(), re.MULTILINE)) == IDS


def test_the_pages_are_the_package_data() -> None:
    """What is read at run time is what stands in docs/causes; in the repository it is the same folder."""
    data = resources.files(hangwatch.causes) / "pages"
    assert {p.name: p.read_bytes() for p in data.iterdir()} == {p.name: p.read_bytes() for p in PAGES.iterdir()}


@pytest.mark.usefixtures("real")
def test_the_rules_are_loaded_without_reading_a_page() -> None:
    """Thirty files are not read at each start of an agent; the page is, when its cause is reported."""
    script = (
        "import hangwatch.diagnosis.registry, hangwatch.causes.knowledge as k;"
        "before = k.read_page.cache_info().currsize; k.read_page('debugger');"
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
    assert read_page("debugger") is read_page("debugger")


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


def test_remedies_for_how_the_ranks_parted_come_first() -> None:
    """All others follow in the order of the page; a former id leads to the same page."""
    found = read_page("ranks-diverged")
    for how in ("condition", "guard", "loop", "exception"):
        own = [item for item in found.remedy if item.lower().startswith(f"{how}: ")]
        ordered = found.remedy_of(how)
        assert [item.lower() for item in ordered[: len(own)]] == [i.lower().removeprefix(f"{how}: ") for i in own]
        assert list(ordered[len(own) :]) == [item for item in found.remedy if item not in own]
    assert found.remedy_of(None) == found.remedy
    assert all(read_page(former).id == "ranks-diverged" for former in FORMER)


def test_a_cause_without_a_page_is_refused() -> None:
    """Nothing is made up for it."""
    with pytest.raises(PageError, match=r"docs/causes/no-such-cause\.md is missing"):
        read_page("no-such-cause")
