"""Small questions asked of call paths. Frames are deepest first; names may be qualified (``Trainer.train``) or bare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from hangwatch.analysis.places import bare, is_interpreter, package_of
from hangwatch.model.stacks import Frame
from hangwatch.model.text import short_path

#: Conditions that differ by rank, in the field's usual words.
_BY_RANK = re.compile(
    r"(?<![A-Za-z_])(?:(?!lora_|low_)\w*_)?rank(?:_?id|_?zero|_?0)?\b|get_rank|is_(?:\w+_)?(?:main|master|chief|primary|leader)"
    r"|main_process|\bmaster\b|process_(?:zero|index|id)|(?:rank|global|world)_?zero|\bRANK\b|LOCAL_RANK|coord_on_|is_first_|is_last_stage"
    r"|(?<![\w.])(?:r|rk|gpu|proc(?:ess)?_id|pid|node_id)\s*[!=]=\s*-?\d",
)
#: Packages whose own loops and conditions say nothing of the program: they carry out what was asked of them.
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
_PARAMETER_LOOP = re.compile(
    r"param|grad|named_|module|layer|block|bucket|head|tensor|group|state_dict|weight|buffers|callback|hook|handler|plugin",
    re.IGNORECASE,
)


def where(frame: Frame) -> str:
    """A frame for people: ``report (train/loop.py:20): dist.all_reduce(mean)``."""
    text = f": {frame.source}" if frame.source else ""
    return f"{bare(frame)} ({short_path(frame.file)}:{frame.line}){text}"


def is_program(frame: Frame) -> bool:
    """Whether the frame is the user's or a trainer's, and not of a library that only carries out calls."""
    return _is_program_file(frame.file)


@lru_cache(maxsize=4096)  # asked of every frame of every recorded operation, and there are few files
def _is_program_file(file: str) -> bool:
    frame = Frame("", file, 0)
    return not is_interpreter(frame) and package_of(frame) not in _CARRIERS


def by_rank(text: str) -> bool:
    """Whether the text of a condition speaks of the rank."""
    return bool(_BY_RANK.search(text))


def is_parameter_loop(text: str) -> bool:
    """Whether a loop's header speaks of parameters, callbacks and the like, and not of batches.

    What is dealt out by rank, ``for block in blocks(rank)``, is data whatever it is called.
    """
    header = text.partition(" in ")[2] or text
    return bool(_PARAMETER_LOOP.search(header)) and not by_rank(header)


def function_of(frame: Frame) -> tuple[str, str]:
    """The function that a frame is of."""
    return (frame.file, bare(frame))


def same_function(one: Frame, other: Frame) -> bool:
    """Whether two frames are of one function: where both are qualified by a class, of the same one."""
    qualified = "." in one.function and "." in other.function
    return function_of(one) == function_of(other) and (not qualified or one.function == other.function)


def frame_in(path: Sequence[Frame], frame: Frame) -> Frame | None:
    """The frame of a path that is of the function of another one, by its whole name."""
    return next((f for f in path if (f.file, f.function) == (frame.file, frame.function)), None)


def call_site(frames: Sequence[Frame]) -> tuple[str, int] | None:
    """The place in the program that issued an operation: its deepest frame outside the carrying libraries."""
    return next(((f.file, f.line) for f in frames if is_program(f)), None)
