"""What a process says of itself by its title. Pure; may import the standard library only.

A title is written over the command line (setproctitle 1.3, ``src/spt_status.c``: into the memory of ``argv``, and, unless
``SPT_NOENV`` is set, on into that of the environment behind it; what is left is filled with NUL). Titles read here:

- vLLM 0.9 to 0.27, ``set_process_title`` of ``vllm/utils/system_utils.py`` and ``setup_proc_title_and_log_prefix`` of
  ``vllm/v1/executor/multiproc_executor.py``: ``VLLM::EngineCore``, ``VLLM::EngineCore_DP0``, ``VLLM::Worker_TP0``,
  ``VLLM::Worker_DP0_PP1_TP0_EP0``; the part before ``::`` is the user's (``VLLM_PROCESS_NAME_PREFIX``);
- SGLang 0.4 and 0.5, ``run_scheduler_process`` of ``python/sglang/srt/managers/scheduler.py``: ``sglang::scheduler_TP1``,
  ``sglang::scheduler_DP0_PP0_TP1_EP1``, ``sglang::detokenizer``, ``sglang::data_parallel_controller``;
- Ray 2.9 to 2.60, ``python/ray/_private/worker.py`` (``_changeproctitle``): ``ray::Trainer``, while it runs a method
  ``ray::Trainer.step``, ``ray::IDLE``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from hangwatch.sources.discovery.launchers import is_python_program

#: A worker of Ray's that is no actor yet.
IDLE_WORKER = "ray::IDLE"
_TITLE = re.compile(r"([A-Za-z][\w.-]{0,40})::([A-Za-z_][\w.:<>-]{0,80})")
_PLACES = re.compile(r"_([A-Z]+(?:_[A-Z]+)?)(\d{1,6})(?=_|$)")
#: The axes by which vLLM and SGLang number the processes of one engine, from the slowest to the fastest.
_AXES = ("DP", "PP", "TP")
#: Axes that follow from those: they number no process of their own.
_DERIVED = frozenset({"EP", "DCP", "PCP", "ATTN_CP", "MOE_DP"})
_LONGEST_TITLE = 64


class Title(NamedTuple):
    """A title's parts.

    ``role``: the kind of process, without numbers (``VLLM::Worker``, ``ray::Trainer``). ``name``: the role with its
    numbers (``VLLM::Worker_TP0``), without what changes while the process runs. ``rank_hint``: the process's places
    in data, pipeline and tensor parallelism, which order the processes of a role; None if the title has none.
    """

    role: str
    name: str
    rank_hint: tuple[int, ...] | None = None


def parse_title(text: str) -> Title | None:
    """Return the parts of a title; None if it is none of the above, such as a command line."""
    found = _TITLE.fullmatch(text.strip())
    if found is None:
        return None
    family, what = found.groups()
    if family == "ray":
        name = f"ray::{what.partition('.')[0]}"[:_LONGEST_TITLE]
        return Title(name, name)
    places = {axis: int(number) for axis, number in _PLACES.findall(what)}
    role = f"{family}::{_PLACES.sub('', what)}"
    known = places.keys() <= {*_AXES, *_DERIVED} and not places.keys().isdisjoint(_AXES)
    hint = tuple(places.get(axis, 0) for axis in _AXES) if known else None
    return Title(role[:_LONGEST_TITLE], f"{family}::{what}"[:_LONGEST_TITLE], hint)


def find_title(command: bytes) -> str:
    """Return the title that was written over a command line (``/proc/PID/cmdline``); empty if there is none.

    A title is one string, followed by NUL up to the old command line's length; a command line ends in a single NUL. A
    title of at least that length is recognised by its form.
    """
    text, _, rest = command.partition(b"\0")
    if not text or rest.strip(b"\0"):
        return ""
    title = text.decode(errors="replace")
    if is_python_program(PurePosixPath(title.partition(" ")[0]).name):
        return ""
    return title if rest or parse_title(title) is not None else ""


def is_overwritten(environ: bytes) -> bool:
    """True if a title was written over an environment (``/proc/PID/environ``): it has content but no variable."""
    return bool(environ) and b"=" not in environ


def in_order_of_titles(titles: Sequence[Title | None]) -> list[int] | None:
    """Return the indices of processes in the order of their titles' ranks; None if two cannot be told apart."""
    hints = [title.rank_hint if title is not None else None for title in titles]
    if None in hints or len(set(hints)) != len(hints) or len({title.role for title in titles if title}) != 1:
        return None
    return sorted(range(len(hints)), key=lambda at: hints[at] or ())
