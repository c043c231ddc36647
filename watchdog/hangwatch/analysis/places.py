"""Small questions asked of frames and call paths: which function, and whose code: the user's, a framework's, the interpreter's.

Pure. Paths are deepest first; names may be qualified (``Trainer.train``) or bare.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hangwatch.model.incident import SourceLine
from hangwatch.model.stacks import Frame, once_a_stack
from hangwatch.model.text import short_path

_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_OURS = "/hangwatch/probe/"
_STDLIB = re.compile(r"/lib(?:64)?/python3(?:\.\d+)?/(?!site-packages|dist-packages)")

#: Installed packages that programs are built of: what trains; what stores, sends and logs; what everything uses. Code of any
#: other package is the user's program: shipped as a wheel, or written by others and started as it is (vLLM, axolotl, verl).
FRAMEWORKS = frozenset(
    {
        "torch", "transformers", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "lightning_fabric",
        "lightning_utilities", "torchvision", "torchaudio", "torchdata", "torchrec", "torchrl", "tensordict", "torchao",
        "torchft", "torch_xla", "torch_geometric", "torchmetrics", "datasets", "peft", "trl", "diffusers", "evaluate",
        "sentence_transformers", "timm", "open_clip", "megatron", "transformer_engine", "nemo", "modelopt", "apex",
        "composer", "ignite", "fairscale", "horovod", "colossalai", "fastai", "skorch", "mmengine", "mmcv", "monai", "dgl",
        "detectron2", "speechbrain", "flash_attn", "xformers", "triton", "bitsandbytes", "safetensors", "tokenizers", "ray",
        "dask", "mpi4py", "stable_baselines3", "gymnasium", "nvidia_resiliency_ext",

        "numpy", "scipy", "sklearn", "pandas", "pyarrow", "polars", "h5py", "zarr", "lmdb", "webdataset", "PIL", "cv2",
        "albumentations", "decord", "sympy", "networkx", "numba", "cupy", "jax", "tensorflow", "joblib", "huggingface_hub",
        "wandb", "mlflow", "tensorboard", "tensorboardX", "comet_ml", "neptune", "clearml", "requests", "urllib3", "httpx",
        "httpcore", "aiohttp", "websockets", "grpc", "zmq", "redis", "pymongo", "sqlalchemy", "psycopg", "psycopg2", "boto3",
        "botocore", "s3fs", "s3transfer", "fsspec", "gcsfs", "filelock", "fastapi", "starlette", "uvicorn", "flask",
        "werkzeug", "gunicorn", "tornado", "prometheus_client", "opentelemetry", "sentry_sdk", "loguru", "rich", "tqdm",

        "absl", "anyio", "attr", "click", "cloudpickle", "debugpy", "decorator", "deprecated", "dill", "gevent", "h11",
        "hjson", "hydra", "ipdb", "IPython", "ipykernel", "jaxtyping", "jinja2", "multiprocess", "omegaconf", "optuna",
        "packaging", "pkg_resources", "pluggy", "psutil", "pudb", "pydantic", "setuptools", "six", "tenacity", "trio",
        "typer", "typing_extensions", "wrapt", "yaml",
    }
)  # fmt: skip

#: Packages that only carry out calls: their own loops and conditions say nothing of the program.
_CARRIERS = frozenset(
    {
        "torch", "accelerate", "deepspeed", "torchmetrics", "lightning_utilities", "tensordict", "numpy", "tqdm",
        "typing_extensions", "wrapt", "decorator", "deprecated", "six",
    }
)  # fmt: skip
#: Where a worker of a DataLoader takes an item from its data set (torch 1.2 to 2.14).
FETCHES = "torch/utils/data/_utils/fetch.py"


def is_interpreter(frame: Frame) -> bool:
    """True if the frame is the standard library's, our probe's, frozen, or has no file at all."""
    if not frame.file.startswith("/") and frame.file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names:
        return True  # py-spy's text has files as they are imported
    return frame.file.startswith("<") or not frame.file or bool(_STDLIB.search(frame.file)) or _OURS in frame.file


def bare(frame: Frame) -> str:
    """Return the function's own name, ``_gpu_gather_one`` of ``_gpu_gather.<locals>._gpu_gather_one``.

    py-spy qualifies names from Python 3.11 on, the flight recorder never does.
    """
    return frame.function.rpartition(".")[2]


def calls(frames: Iterable[Frame], file_part: str, *functions: str) -> Frame | None:
    """Return the deepest frame in a file whose path holds ``file_part``, in one of ``functions`` (none: any); else None."""
    return next((f for f in frames if file_part in f.file and (not functions or bare(f) in functions)), None)


def find_event_loop(frames: Iterable[Frame]) -> Frame | None:
    """Return the frame of asyncio's wait for the next event (``BaseEventLoop._run_once``, CPython 3.10 to 3.14); else None."""
    return calls(frames, "asyncio/base_events.py", "_run_once")


def package_of(frame: Frame) -> str | None:
    """Return the framework or library that the frame's file is of; None of the user's program, installed or not."""
    found = _PACKAGES.search(frame.file)
    # py-spy's text has files as they are imported.
    name = found.group(1).removesuffix(".py") if found else frame.file.partition("/")[0]
    return name if name in FRAMEWORKS else None


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


@once_a_stack
def call_path(frames: Sequence[Frame]) -> tuple[tuple[str, int], ...]:
    """Return the file and line of each frame in the program, the deepest first: what one call site cannot tell in a helper."""
    return tuple((f.file, f.line) for f in frames if is_program(f))


def call_site(frames: Sequence[Frame]) -> tuple[str, int] | None:
    """Return the file and line in the program that issued an operation: the deepest outside the carrying libraries."""
    return next(((f.file, f.line) for f in frames if is_program(f)), None)


@once_a_stack
def user_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames of the user's own code, deepest first."""
    return tuple(f for f in frames if not is_interpreter(f) and package_of(f) is None)


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the user's deepest frame, the line of their code that is being executed; None if there is none."""
    return next(iter(user_frames(frames)), None)


def called_by_user(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames that the user's deepest frame has called; all of them if none is the user's."""
    own = user_frame(frames)
    return frames[: frames.index(own)] if own is not None else frames


def diverging_frames(ours: Sequence[Frame], theirs: Sequence[Frame]) -> tuple[Frame | None, Frame | None]:
    """Return the outermost frames at which two call paths diverge: one function at two lines, or two functions."""
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
    """Return the line of user code on each side, with the library line that it went through.

    The deepest user frame is the one that issued the operation. If both sides are in the same line (a helper both call,
    a trainer's ``train()``), the place where the paths diverge says more: it is taken if it is the user's own, else it
    is the library line.
    """
    own, other = user_frame(ours), user_frame(theirs)
    forked, forked_other = diverging_frames(ours, theirs)
    same = own is not None and other is not None and (own.file, own.line) == (other.file, other.line)
    if same and forked in user_frames(ours) and forked_other in user_frames(theirs):
        own, other = forked, forked_other
    return (
        _line(own, forked if same else _called_by(own, ours)) if own else None,
        _line(other, forked_other if same else _called_by(other, theirs)) if other else None,
    )


def _called_by(frame: Frame | None, frames: Sequence[Frame]) -> Frame | None:
    """Return the library frame that the user's line has called; None if that is torch.distributed itself."""
    if frame is None or frame not in frames:
        return None
    index = list(frames).index(frame)
    called = frames[index - 1] if index > 0 else None
    return called if called is not None and "torch/distributed/" not in called.file else None
