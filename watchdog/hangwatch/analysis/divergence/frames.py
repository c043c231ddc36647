"""Small questions asked of call paths. Frames are deepest first; names may be qualified (``Trainer.train``) or bare."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from hangwatch.analysis.places import bare, is_interpreter, package_of
from hangwatch.model.stacks import Frame
from hangwatch.model.text import short_path

#: Packages that only carry out calls: their own loops and conditions say nothing of the program.
_CARRIERS = frozenset(
    {
        "torch",
        "accelerate",
        "deepspeed",
        "numpy",
        "tqdm",
        "typing_extensions",
        "wrapt",
        "decorator",
        "deprecated",
        "six",
    }
)


def where(frame: Frame) -> str:
    """Return a frame for people: ``report (train/loop.py:20): dist.all_reduce(mean)``."""
    text = f": {frame.source}" if frame.source else ""
    return f"{bare(frame)} ({short_path(frame.file)}:{frame.line}){text}"


def is_program(frame: Frame) -> bool:
    """True if the frame is the user's or a trainer's, and not of a library that only carries out calls."""
    return _is_program_file(frame.file)


@lru_cache(maxsize=4096)  # every frame of every recorded operation asks, and there are few files
def _is_program_file(file: str) -> bool:
    frame = Frame("", file, 0)
    return not is_interpreter(frame) and package_of(frame) not in _CARRIERS


def function_of(frame: Frame) -> tuple[str, str]:
    """Return the file and the bare name of a frame's function."""
    return (frame.file, bare(frame))


def same_function(one: Frame, other: Frame) -> bool:
    """True if two frames are of one function; if both names are qualified by a class, of the same class."""
    qualified = "." in one.function and "." in other.function
    return function_of(one) == function_of(other) and (not qualified or one.function == other.function)


def frame_in(path: Sequence[Frame], frame: Frame) -> Frame | None:
    """Return the frame of a path in the same function as ``frame``, by its qualified name; None if there is none."""
    return next((f for f in path if (f.file, f.function) == (frame.file, frame.function)), None)


def call_path(frames: Sequence[Frame]) -> tuple[tuple[str, int], ...]:
    """Return the file and line of each frame in the program, the deepest first: what one call site cannot tell in a helper."""
    return tuple((f.file, f.line) for f in frames if is_program(f))


def call_site(frames: Sequence[Frame]) -> tuple[str, int] | None:
    """Return the file and line in the program that issued an operation: the deepest outside the carrying libraries."""
    return next(((f.file, f.line) for f in frames if is_program(f)), None)
