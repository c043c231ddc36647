"""``SKILL.md``, which tells a coding agent when to call what. Standard library only: it is read without the MCP SDK too."""

from __future__ import annotations

from importlib import resources


def read_skill() -> str:
    """Return the text, with the front matter by which agents find it."""
    return resources.files("hangwatch.assistant").joinpath("SKILL.md").read_text(encoding="utf-8")
