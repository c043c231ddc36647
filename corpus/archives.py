"""Solid archives (``.tar.xz``): captures of one family are alike, and take a third of the room together."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Long matches, of which captures are full, looked for by hash: smaller than ``xz -6``, in a third of the time.
_FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 32 << 20, "nice_len": 128, "mf": lzma.MF_HC4, "depth": 4}
]


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of these files in this order, which is the same whenever they are."""
    packed = io.BytesIO()
    with (
        lzma.LZMAFile(packed, "w", filters=_FILTERS) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def read(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive; who stops early has only that much decompressed."""
    with lzma.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content.read()
