"""Whether a thread waits for a person: at a debugger's prompt, or in a line that asks for input. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.places import calls, user_frame
from hangwatch.model.stacks import Frame

_PROMPTS = (
    ("/pdb.py", ()), ("/bdb.py", ()), ("/cmd.py", ("cmdloop",)), ("/code.py", ("interact", "raw_input")),
    ("/ipdb/", ()), ("/pudb/", ()), ("/IPython/core/debugger.py", ()), ("/IPython/terminal/", ()), ("/prompt_toolkit/", ()),
    ("pydevd.py", ("do_wait_suspend", "_do_wait_suspend")), ("/debugpy/", ("wait_for_client", "breakpoint")),
)  # fmt: skip
_ASKS = r"(?<![\w.])input\(|\bgetpass\("
_PERSON = re.compile(_ASKS)
_INPUT = re.compile(rf"{_ASKS}|\bstdin\.(?:read|readline|buffer)")
_DEPTH = 3


def find_debugger(frames: Sequence[Frame]) -> Frame | None:
    """Return the debugger's frame that the user's own line has called; None if there is none."""
    own = user_frame(frames)
    above = frames[: frames.index(own)] if own is not None else frames
    found = (calls(above, part, *functions) for part, functions in _PROMPTS)
    return next((frame for frame in found if frame is not None), None)


def find_input(frames: Sequence[Frame]) -> Frame | None:
    """Return the frame of a line that reads the standard input; None if there is none."""
    return next((f for f in frames[:_DEPTH] if f.source and _INPUT.search(f.source)), None)


def asks_person(frames: Sequence[Frame]) -> bool:
    """True if a person has to answer, whoever has the other end of the standard input."""
    return find_debugger(frames) is not None or any(_PERSON.search(f.source or "") for f in frames[:_DEPTH])
