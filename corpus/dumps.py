"""The dumps that PyTorch itself wrote of hangs on NCCL: what a tool has that reads the flight recorder and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from corpus.archives import pack, read

DUMPS = Path(__file__).resolve().parent / "dumps.tar.xz"
#: What torch writes, and what both other tools look for; the rank follows.
PREFIX = "nccl_trace_rank_"
_INDEX = "index.json"


class Kept(msgspec.Struct, frozen=True):
    """One hang: how many of its ranks wrote a dump, and whether torch had to be asked for them."""

    name: str
    dumps: int
    asked: bool


def load_kept() -> dict[str, Kept]:
    """Return, by name, the hangs that were run for their dumps."""
    files = _files()
    return {one.name: one for one in msgspec.json.decode(files.get(_INDEX, b"[]"), type=list[Kept])}


def unpack_dumps(name: str, folder: Path) -> Path:
    """Put the dumps of a hang into a folder, under the names that torch gives them, and return it."""
    for path, content in _files().items():
        of, _, file = path.partition("/")
        if of == name:
            (folder / file).write_bytes(content)
    return folder


def keep_dumps(kept: Kept, dumps: Mapping[str, bytes]) -> None:
    """Put the dumps of a hang, by their file names, in place of those that are there."""
    index = {**load_kept(), kept.name: kept}
    others = {path: content for path, content in _files().items() if path.partition("/")[0] not in {kept.name, _INDEX}}
    files = {**others, **{f"{kept.name}/{file}": content for file, content in dumps.items()}}
    first = {
        _INDEX: msgspec.json.format(msgspec.json.encode([index[name] for name in sorted(index)]), indent=1) + b"\n"
    }
    DUMPS.write_bytes(pack({**first, **{path: files[path] for path in sorted(files)}}))
    _files.cache_clear()


@cache
def _files() -> dict[str, bytes]:
    return dict(read(DUMPS)) if DUMPS.exists() else {}
