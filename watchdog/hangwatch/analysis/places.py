"""Which function a frame is of, and whose code: the user's, a framework's, or the interpreter's. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from hangwatch.model.incident import SourceLine
from hangwatch.model.stacks import Frame
from hangwatch.model.text import short_path

_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_OURS = "/hangwatch/probe/"
_STDLIB = re.compile(r"/lib(?:64)?/python3(?:\.\d+)?/(?!site-packages|dist-packages)")

#: Installed packages that move tensors or drive training: a user's own package may be installed too, and is not here.
FRAMEWORKS = frozenset(
    {
        "torch", "transformers", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "lightning_fabric",
        "torchvision", "torchdata", "datasets", "peft", "trl", "megatron", "composer", "ignite", "fairscale", "apex",
        "ray", "numpy", "torchmetrics", "evaluate", "safetensors", "tqdm", "debugpy", "IPython", "triton", "horovod",
        "colossalai", "nemo", "bitsandbytes", "requests", "urllib3", "filelock", "fsspec", "huggingface_hub", "wandb",
        "multiprocess", "dill", "joblib", "psutil", "six", "packaging", "ipdb", "pudb", "pyarrow", "pandas", "aiohttp",
        "grpc",
    }
)  # fmt: skip


def is_interpreter(frame: Frame) -> bool:
    """Whether the frame is the standard library's, our probe's, frozen, or has no file at all."""
    if not frame.file.startswith("/") and frame.file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names:
        return True  # py-spy's text has files as they are imported
    return frame.file.startswith("<") or not frame.file or bool(_STDLIB.search(frame.file)) or _OURS in frame.file


def bare(frame: Frame) -> str:
    """The function's own name, ``_gpu_gather_one`` of ``_gpu_gather.<locals>._gpu_gather_one``.

    py-spy qualifies names from Python 3.11 on, the flight recorder never does.
    """
    return frame.function.rpartition(".")[2]


def calls(frames: Iterable[Frame], file_part: str, *functions: str) -> Frame | None:
    """The deepest frame in a file whose path holds ``file_part``, in one of the functions (none given: any)."""
    return next((f for f in frames if file_part in f.file and (not functions or bare(f) in functions)), None)


def package_of(frame: Frame) -> str | None:
    """The installed distribution's import package that the frame's file lies in, None outside site-packages."""
    found = _PACKAGES.search(frame.file)
    first, inside, _ = frame.file.partition("/")
    if inside and first in FRAMEWORKS:
        return first  # py-spy's text has files as they are imported
    return found.group(1).removesuffix(".py") if found else None


def user_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the user's own code, deepest first.

    Code outside site-packages and the standard library; where there is none (a trainer that is itself installed), code
    of installed packages that are no known framework.
    """
    own = tuple(f for f in frames if not is_interpreter(f) and package_of(f) is None)
    return own or tuple(f for f in frames if not is_interpreter(f) and package_of(f) not in FRAMEWORKS)


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The user's deepest frame: the line of their code that is being executed."""
    return next(iter(user_frames(frames)), None)


def called_by_user(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames that the user's deepest one has called; all of them where none is the user's."""
    own = user_frame(frames)
    return frames[: frames.index(own)] if own is not None else frames


def diverging_frames(ours: Sequence[Frame], theirs: Sequence[Frame]) -> tuple[Frame | None, Frame | None]:
    """The outermost frames at which two call paths diverge: the same function at two lines, or two functions."""
    a, b = list(reversed(ours)), list(reversed(theirs))
    for left, right in zip(a, b, strict=False):
        if (left.file, bare(left), left.line) != (right.file, bare(right), right.line):
            return left, right
    depth = min(len(a), len(b))
    return (a[depth] if depth < len(a) else None), (b[depth] if depth < len(b) else None)


def _line(frame: Frame, via: Frame | None) -> SourceLine:
    through = None
    if via is not None and (via.file, via.line) != (frame.file, frame.line):
        through = f"{via.function} ({short_path(via.file)}:{via.line})" + (f": {via.source}" if via.source else "")
    return SourceLine(file=frame.file, line=frame.line, function=frame.function, source=frame.source, via=through)


def source_lines(ours: Sequence[Frame], theirs: Sequence[Frame]) -> tuple[SourceLine | None, SourceLine | None]:
    """The line of user code on each side, and the library line it went through where the user's own is the same.

    The deepest user frame is the one that issued the operation. If both sides are in the same line (a helper both call,
    a trainer's ``train()``), the place where the paths diverged says more: the user's own if they diverged there.
    """
    mine, other = user_frame(ours), user_frame(theirs)
    forked, forked_other = diverging_frames(ours, theirs)
    same = mine is not None and other is not None and (mine.file, mine.line) == (other.file, other.line)
    if same and forked in user_frames(ours) and forked_other in user_frames(theirs):
        mine, other = forked, forked_other
    return (
        _line(mine, forked if same else _called_by(mine, ours)) if mine else None,
        _line(other, forked_other if same else _called_by(other, theirs)) if other else None,
    )


def _called_by(frame: Frame | None, frames: Sequence[Frame]) -> Frame | None:
    """The library frame that the user's line called, where it is more than a call of torch.distributed itself."""
    if frame is None or frame not in frames:
        return None
    index = list(frames).index(frame)
    called = frames[index - 1] if index > 0 else None
    return called if called is not None and "torch/distributed/" not in called.file else None
