"""``stacks.speedscope.json``: valid by speedscope's own schema, and saying what the capture says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from examples import hang_capture, hang_incident

from hangwatch.model.capture import Capture
from hangwatch.outputs.bundle.speedscope import encode_speedscope

sys.path.append(str(Path(__file__).resolve().parents[1] / "causes"))

from recorded import NAMES, load

_SCHEMA = json.loads((Path(__file__).resolve().parents[1] / "fixtures/speedscope/file-format-schema.json").read_text())


def written(capture: Capture) -> dict[str, Any]:
    """The file's content, checked against the schema."""
    content = json.loads(encode_speedscope(hang_incident(), capture))
    jsonschema.Draft7Validator(_SCHEMA).validate(content)
    frames = len(content["shared"]["frames"])
    for profile in content["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= number < frames for sample in profile["samples"] for number in sample)
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
    return dict(content)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_hang_is_valid(name: str) -> None:
    """Real captures of every kind of hang give files that speedscope accepts."""
    written(load(name))


def test_stacks_are_outermost_first_and_ranks_in_one_profile() -> None:
    """The first profile has one sample a rank, of its last stack, beginning at the program's outermost frame."""
    content = written(hang_capture())
    names = [frame["name"] for frame in content["shared"]["frames"]]
    first = content["profiles"][0]
    assert first["weights"] == [1, 1]
    assert {tuple(names[number] for number in sample)[:2] for sample in first["samples"]} == {("<module>", "main")}
    assert {names[sample[-1]] for sample in first["samples"]} == {"all_gather", "_sync_buffers"}
    assert [profile["name"] for profile in content["profiles"][1:]] == ["rank 0, main thread", "rank 1, main thread"]


def test_an_empty_capture_is_valid() -> None:
    """A bundle without a single stack still has a file that opens."""
    content = written(msgspec.structs.replace(hang_capture(), ranks=()))
    assert content["profiles"][0]["samples"] == []
