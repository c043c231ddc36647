"""Which cause comes first: by level, then by ``PRECEDENCE``, then by name, whatever the order in which rules are listed."""

from __future__ import annotations

import ast
import random
from graphlib import TopologicalSorter
from itertools import permutations
from pathlib import Path

import pytest

from hangwatch import causes
from hangwatch.causes import alternatives
from hangwatch.causes.knowledge import list_pages
from hangwatch.causes.match import LEVELS, Level, Match
from hangwatch.causes.precedence import GENERAL, PRECEDENCE, order, with_alternatives
from hangwatch.diagnosis import registry
from hangwatch.diagnosis.verdict import diagnose
from recorded import NAMES, load


def match(cause: str, level: Level) -> Match:
    """A match without evidence."""
    return Match(cause, level, "Seen.", ())


def test_levels_come_first_then_pairs_then_names() -> None:
    """A pair says nothing of matches of two levels."""
    before, after, _ = PRECEDENCE[-1]
    found = [
        match("z", "certain"), match("b", "strong"), match("c", "strong"), match(before, "likely"), match(after, "likely"),
        match("a", "seen"),
    ]  # fmt: skip
    for shuffled in permutations(found):
        assert list(order(shuffled)) == found
    assert [m.cause for m in order([match(before, "likely"), match(after, "strong")])] == [after, before]


@pytest.mark.parametrize(("before", "after"), [pair[:2] for pair in PRECEDENCE if pair[0] > pair[1]])
def test_a_pair_goes_against_the_names(before: str, after: str) -> None:
    """Where the names alone would say otherwise."""
    assert [m.cause for m in order([match(after, "likely"), match(before, "likely")])] == [before, after]


def test_pairs_name_two_causes_and_a_reason_and_make_no_circle() -> None:
    """Each cause has a page, and no pair stands there twice."""
    pages = set(list_pages())
    for before, after, why in PRECEDENCE:
        assert {before, after} <= pages
        assert before != after
        assert len(why.split()) > 3
    pairs = {(before, after) for before, after, _ in PRECEDENCE}
    assert len(pairs) == len(PRECEDENCE)
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for before, after in pairs:
        sorter.add(after, before)
    sorter.prepare()  # raises CycleError


def test_what_only_says_where_a_rank_is_goes_after_what_says_why() -> None:
    """At one level, whatever the names are; the most general last."""
    found = [match("z", "strong"), *(match(cause, "strong") for cause in GENERAL)]
    assert list(order(reversed(found))) == found
    assert set(GENERAL) <= set(list_pages())
    assert not set(GENERAL) & {cause for pair in PRECEDENCE for cause in pair[:2]}


def test_a_cause_is_named_once() -> None:
    """By its surest match."""
    assert [m.level for m in order([match("a", "possible"), match("a", "strong")])] == ["strong"]


def test_alternatives_never_come_first() -> None:
    """They stand before what only says what was seen, and not beside a match of the same cause."""
    found = order([match("a", "possible"), match("b", "possible"), match("c", "seen")])
    more = [match("n", "possible"), match("b", "possible")]
    assert [m.cause for m in with_alternatives(found, more)] == ["a", "b", "n", "c"]
    assert [m.cause for m in with_alternatives(order([match("c", "seen")]), more)] == ["c", "n", "b"]


@pytest.mark.parametrize("name", NAMES[::4])
def test_no_verdict_depends_on_the_order_of_the_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole verdict, sentences and evidence included, with the rules backwards and shuffled."""
    before = diagnose(load(name)).verdict
    shuffled = random.Random(name).sample(registry.RULES, len(registry.RULES))
    for rules in (tuple(reversed(registry.RULES)), tuple(shuffled)):
        monkeypatch.setattr(registry, "RULES", rules)
        assert diagnose(load(name)).verdict == before


def test_no_rule_has_a_number_for_how_sure_it_is() -> None:
    """Matches have levels, and rates are counted; floats in rules are seconds and shares that were measured."""
    package = Path(causes.__path__[0])
    stated = set()
    for path in (*package.glob("rules/**/*.py"), *package.glob("training/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Name) and node.id == "confidence"), path.name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Match":
                constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                assert not any(isinstance(value, float) for value in constants), f"{path.name}:{node.lineno}"
                stated |= set(LEVELS) & set(constants)
    assert stated == set(LEVELS)


def test_the_table_of_alternatives_names_causes_that_have_pages() -> None:
    """On both sides of it, and none stands beside itself."""
    for cause, others in alternatives.TABLE.items():
        assert {cause, *others} <= set(list_pages())
        assert cause not in others
