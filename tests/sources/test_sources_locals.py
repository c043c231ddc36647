"""Locals leave a rank as types and shapes, never as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.sources.stacks.locals import MAX_DESCRIPTION_CHARS, describe_local

#: Nothing of ours contains this; it stands for what a user would not want to see leave.
PRIVATE = "Zqx"
NUMBER = 735391


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ('"hello"', "str(5)"),
        ('"said "hi" <x at 0x1>"', "str(20)"),
        ('"long..."', "str(4+)"),
        ("5", "int"),
        ("-3.5", "float"),
        ("NaN", "float"),
        ("-inf", "float"),
        ("1" + "0" * 300, "float"),
        ("+bigint", "int"),
        ("None", "None"),
        ("True", "bool"),
        ("?", "?"),
        ("", "?"),
        ("<Tensor at 0x7f2f10af1a90>", "Tensor"),
        ("<torch._C._distributed_c10d.Work at 0x7f2f10af1a90>", "Work"),
        ("<bytes at 0x7f19b8513bd0>", "bytes"),
        ("(<Tensor at 0x7f2f>, <Tensor at 0x7f2f>)", "tuple[Tensor, Tensor]"),
        ("(<Tensor at 0x7f2f>, ...)", "tuple[Tensor, ...]"),
        ("[<Tensor at 0x7f2f>, <Tensor at 0x7f2f>]", "list[Tensor, ...]"),
        ("[<Tensor at 0x7f2f>]", "list[Tensor]"),
        ("[[<Tensor at 0x7f2f>, ...], ...]", "list[list[Tensor, ...], ...]"),
        ("[]", "list[]"),
        ("()", "tuple[]"),
        ('{"ids": <Tensor at 0x7f>, "labels": (<Tensor at 0x7f>, 3)}', "dict[ids: Tensor, labels: tuple[Tensor, int]]"),
        ('{"a b": 1, 5: 2.5, (1, 2): None}', "dict[str: int, int: float, tuple[int, int]: None]"),
        ('{"id": "x", "labels": <Tensor at 0x7f>, "client": 1}', "dict[id: str, labels: Tensor, str: int]"),
        ('{"k"x": 1}', "dict[str: int]"),
        ("[1, 2, 3, ...", "list[int, ...]"),
        ("[1 2]", "list"),
        ("<weird <thing>>", "object"),
    ],
)  # fmt: skip
def test_value_is_described(text: str, description: str) -> None:
    """Each of py-spy's forms becomes a type with its shape."""
    assert describe_local(text) == description


def test_library_scalars_are_kept() -> None:
    """Peers and switches of library frames keep their value; strings and floats do not."""
    assert describe_local("3", keep_integers=True) == "int=3"
    assert describe_local("-1", keep_integers=True) == "int=-1"
    assert describe_local("3", keep_booleans=True) == "int"
    assert describe_local("False", keep_booleans=True) == "bool=False"
    assert describe_local("0.5", keep_integers=True, keep_booleans=True) == "float"
    assert describe_local('"3"', keep_integers=True, keep_booleans=True) == "str(1)"


def test_many_items_are_cut() -> None:
    """A description stays short however much there is."""
    assert describe_local(f"({', '.join(['1'] * 30)})") == "tuple[int, int, int, int, int, int, int, int, ...]"
    nested = "{" + ", ".join(f'"{"k" * 38}{i}": [{{"{"j" * 38}": 1.0}}]' for i in range(9)) + "}"
    assert len(describe_local(nested)) <= MAX_DESCRIPTION_CHARS


@given(st.text(max_size=300), st.booleans())
def test_nothing_fails(text: str, keep: bool) -> None:
    """Any text at all has a description, and a short one."""
    assert len(describe_local(text, keep_integers=keep, keep_booleans=keep)) <= MAX_DESCRIPTION_CHARS


def _render(value: object) -> str:
    """A value as py-spy 0.4.3 writes it: quotes inside strings are not escaped."""
    if isinstance(value, str):
        return '"' + value.replace("'", '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_render(key)}: {_render(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        opener, closer = "[]" if isinstance(value, list) else "()"
        return opener + ", ".join(map(_render, value)) + closer
    return str(value)


_pieces = st.sampled_from(
    [
        PRIVATE,
        str(NUMBER),
        '"',
        '", ',
        '": ',
        ", ",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        f"<{PRIVATE} at 0x1>",
        f'"{PRIVATE}": ',
        "...",
    ]
)
_private_texts = st.one_of(st.lists(_pieces, max_size=8).map("".join), st.text(max_size=20))
_values = st.recursive(
    st.one_of(_private_texts, st.none(), st.booleans(), st.just(NUMBER), st.just(NUMBER + 0.5)),
    lambda children: st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(st.sampled_from(["labels", "input_ids", "key", "a key"]), children, max_size=4),
    ),
    max_leaves=10,
)


@given(_values, st.integers(0, 40))
def test_no_private_text_or_number_comes_through(value: object, cut: int) -> None:
    """Whatever a user's strings and numbers are, and wherever a repr is cut, none of them is in the description."""
    rendered = _render(value)
    for text in (rendered, rendered[: max(1, len(rendered) - cut)]):
        description = describe_local(text)
        assert PRIVATE not in description
        assert str(NUMBER) not in description
