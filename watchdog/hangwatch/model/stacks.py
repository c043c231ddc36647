"""Stack samples of a process. Frames are deepest first, as py-spy and the flight recorder give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")

#: The name of our own thread in a rank (``probe/rank.py``).
PROBE_THREAD = "hangwatch-probe"


class Iterations(msgspec.Struct, frozen=True, omit_defaults=True):
    """What counts the iterations of a loop.

    ``counter``: a variable that has no other meaning in its function: ``step`` of ``for step, batch in enumerate(loader):``.
    ``line``: where it is made one more: the loop's header, or a ``step += 1`` that every iteration comes by. ``breaks``: whether
    a ``break`` or ``return`` may end the loop, by anything but the number of the iteration. ``bounded``: the number of iterations
    alone ends the loop, and each one calls something besides a sleep: whoever is in the next one has got on. ``resumed``: it
    begins with a value from elsewhere, and so may differ between ranks that have had as many iterations.
    """

    counter: str
    line: int
    breaks: bool
    bounded: bool = False
    resumed: bool = False


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """A block of code around a line: what has to hold for the line to run.

    ``kind``: ``if``, ``else`` (of the ``if`` in ``text``), ``for``, ``while``, ``with``, ``try`` (one that catches and goes on,
    by the ``except`` in ``text``; any other is a ``with``), ``except``, ``finally``, ``case``, ``after`` (the ``else`` of a loop
    or a try), or ``guard``: an ``if ..: return`` (or continue, break, raise) that comes before, or the function's ``@cache``.
    ``line`` is where its header is, ``text`` the header as it is written, on one line; of a guard with the word by which it
    leaves: ``if not batch: return``.
    ``program.lines`` says what is in it.
    ``iterations``: how those of a loop are counted, where they are. ``exhausts``: a loop that nothing but the end of its data
    ends (of a ``while``: those in the container that it empties), and in which each iteration calls something besides a sleep:
    whoever is in the next one has got on. ``exits``: the conditions under which a ``break`` leaves a loop, as they are written.
    """

    kind: str
    line: int
    text: str
    #: Named as bundles have it.
    iterations: Iterations | None = msgspec.field(default=None, name="turns")
    exhausts: bool = False
    exits: tuple[str, ...] = ()


class Fact(msgspec.Struct, frozen=True):
    """What the text around a line says of what it does, by a call, which is written in ``text``.

    ``saved``: the line is a barrier, and the call, just before or after it, writes the state of a model. ``saves``: what the line
    makes, of a sharded tensor or for that alone, is saved by the call, further down. ``ends``: the call runs an event loop, and
    all that it comes to in this file ends with its data.
    """

    kind: Literal["saved", "saves", "ends"]
    text: str


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a frame is in the data that a loop goes through: ``variable`` holds what the iteration is about.

    ``loop``: the line of its header; 0 for the call that a thread of a pool has been given. ``digest``: of what py-spy shows of
    the value, with a key that only the agent's process has and that ends with it: it tells whether the value is the same as
    before, and nothing else. ``known``: it was that in an earlier sample.
    """

    variable: str
    loop: int
    digest: str
    known: bool = False


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Python frame.

    ``locals`` maps a name to a *description* of its value, never to the value itself: ``int``, ``Tensor``,
    ``tuple[Tensor, Tensor]``, ``None``, ``list[3]``, ``str(12)``. Only integers of torch's own frames
    (``src``, ``dst``), multiprocessing's ``exitcode``, what counts the iterations of a loop (``Iterations``), booleans of the
    training libraries' (``async_op``, ``has_labels``) and booleans and small integers that a condition of the function names
    (unless the user has forbidden that) keep their value, written ``int=3``, ``bool=True``. ``source`` is the text
    of the line, stripped; ``blocks`` are the blocks around it within its function, outermost first, empty where the source was
    not read; ``facts``: what else its function says of it. ``values`` are the locals as py-spy shows them, cut and without known
    secrets; they are there only where the user has asked for them (``--with-values``). ``positions``: how far the loops around
    the line are in their data.
    ``ends_in_s``: in how many seconds a loop around the line ends that goes on until a time, at most ``early_s`` sooner.
    """

    function: str
    file: str
    line: int
    source: str | None = None
    locals: dict[str, str] | None = None
    blocks: tuple[Block, ...] = ()
    facts: tuple[Fact, ...] = ()
    values: dict[str, str] | None = None
    positions: tuple[Position, ...] = ()
    ends_in_s: float | None = None
    early_s: float = 0.0

    @property
    def loops(self) -> list[Block]:
        """The loops around the line in its function, outermost first."""
        return [block for block in self.blocks if block.kind in {"for", "while"}]


class SharedFrames(tuple[Frame, ...]):
    """The frames of a stack that many ranks of a large job have. ``read``: what was read from them, by what has read it."""

    @cached_property
    def read(self) -> dict[Callable[[Sequence[Frame]], Any], Any]:
        """Return nothing at first; it lives as long as the frames."""
        return {}


def once_a_stack(read: Callable[[Sequence[Frame]], T]) -> Callable[[Sequence[Frame]], T]:
    """Return the function, which depends on its frames alone, in a form that reads shared frames once for all ranks."""

    @wraps(read)
    def recall(frames: Sequence[Frame]) -> T:
        if not isinstance(frames, SharedFrames):
            return read(frames)
        known = frames.read
        if read not in known:
            known[read] = read(frames)
        found: T = known[read]
        return found

    return recall


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thread of a process.

    ``ident`` is Python's number for it (``threading.get_ident``, which is ``pthread_self``), 0 where it was not seen.
    ``active`` is py-spy's view: not idle in the interpreter's or kernel's eyes; False of a main thread of which it cannot tell
    (``os_thread_id`` 0: Python before 3.11).
    """

    os_thread_id: int
    name: str | None
    is_main: bool
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...]
    ident: int = 0

    @property
    def label(self) -> str:
        """The label for people: its name, or its number if it has none."""
        return self.name or str(self.os_thread_id)


class TaskStack(msgspec.Struct, frozen=True):
    """A suspended coroutine of an event loop: the name of its task, and its calls down to what it awaits, the deepest first."""

    name: str
    frames: tuple[Frame, ...]


class StackSample(msgspec.Struct, frozen=True):
    """All threads of one process at one instant (``at_ns``: wall clock, nanoseconds)."""

    at_ns: int
    threads: tuple[ThreadStack, ...]

    @property
    def main(self) -> ThreadStack | None:
        """The main thread; None if it was not seen, as when it has left Python for good."""
        return next((t for t in self.threads if t.is_main), None)

    @property
    def main_frames(self) -> tuple[Frame, ...]:
        """The frames of the main thread; empty if it was not seen."""
        main = self.main
        return main.frames if main is not None else ()
