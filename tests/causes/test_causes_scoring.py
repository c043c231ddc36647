"""One place weighs: by level and by what beats what, whatever the order in which rules are listed."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
from itertools import permutations
from pathlib import Path

import pytest

from hangwatch import causes
from hangwatch.causes import alternatives, registry
from hangwatch.causes.scoring import beats, order, with_alternatives
from hangwatch.causes.signature import LEVELS, Match, Signature
from hangwatch.diagnosis.verdict import diagnose
from recorded import NAMES, load

RULES = Path(causes.__path__[0])


def rows() -> dict[str, Signature]:
    """Every row by its id."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(causes.__path__, f"{causes.__name__}.")]
    found = {id(v): v for m in modules for v in vars(m).values() if isinstance(v, Signature)}
    assert len({row.id for row in found.values()}) == len(found), "two rows of one id"
    return {row.id: row for row in found.values()}


def match(row: Signature, says: str = "Seen.") -> Match:
    """A match of a row, without evidence."""
    return Match(row, says, ())


SURE, WEAK = Signature("a", "sure", "strong"), Signature("b", "weak", "likely", beats=("a",))
FIRST, SECOND = Signature("z", "first", "strong", beats=("a",)), Signature("m", "second", "strong", beats=("z/other",))
GENERAL = Signature("c", "general", "certain", general=True)


def test_levels_come_before_precedence_and_names_last() -> None:
    """The general come after all, and a weaker row beats none of a stronger level."""
    found = [match(row) for row in (SURE, WEAK, FIRST, SECOND, GENERAL)]
    for shuffled in permutations(found):
        assert [m.signature for m in order(shuffled)] == [SECOND, FIRST, SURE, WEAK, GENERAL]


def test_a_cause_is_named_once() -> None:
    """By its surest row."""
    other = Signature("a", "other", "possible")
    assert [m.signature for m in order([match(other), match(SURE)])] == [SURE]


def test_alternatives_never_come_first() -> None:
    """They stand before what only says what was seen, and not beside a row of the same cause."""
    more = [match(Signature("n", "beside", "possible")), match(Signature("b", "beside", "possible"))]
    found = with_alternatives(order([match(SURE), match(WEAK), match(GENERAL)]), more)
    assert [m.signature.cause for m in found] == ["a", "b", "n", "c"]


@pytest.mark.parametrize("name", NAMES)
def test_no_verdict_depends_on_the_order_of_the_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole verdict, sentences and evidence included, with the rules backwards and shuffled."""
    before = diagnose(load(name)).verdict
    shuffled = random.Random(name).sample(registry.RULES, len(registry.RULES))
    for rules in (tuple(reversed(registry.RULES)), tuple(shuffled)):
        monkeypatch.setattr(registry, "RULES", rules)
        assert diagnose(load(name)).verdict == before


def test_what_a_row_beats_is_there_and_is_not_itself() -> None:
    """A row or a cause that is named in ``beats`` exists."""
    known = rows()
    names = {*known, *(row.cause for row in known.values())}
    for row in known.values():
        assert set(row.beats) <= names, row.id
        assert row.id not in row.beats


def test_no_rows_beat_each_other_in_a_circle() -> None:
    """Within a level, what beats what is an order."""
    for weight in range(len(LEVELS) + 1):
        left = [row for row in rows().values() if row.weight == weight]
        while left:
            free = [row for row in left if not any(beats(other, row) for other in left if other is not row)]
            assert free, [row.id for row in left]
            left = [row for row in left if row not in free]


def test_no_rule_has_a_number_for_how_sure_it_is() -> None:
    """Rows have levels: floats in rules are seconds and shares that were measured, and none stands where a row is made."""
    for path in [*RULES.glob("rules/**/*.py"), *RULES.glob("training/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"Signature", "Match"}
            ):
                floats = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
                assert not floats, f"{path.name}:{node.lineno}"
            assert not (isinstance(node, ast.Name) and node.id == "confidence"), f"{path.name}: {node}"


def test_the_table_of_alternatives_names_causes_that_have_rows() -> None:
    """On both sides of it, and none stands beside itself."""
    known = {row.cause for row in rows().values()}
    for cause, others in alternatives.TABLE.items():
        assert {cause, *(other.cause for other in others)} <= known
        assert cause not in {other.cause for other in others}
