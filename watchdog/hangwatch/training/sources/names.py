"""Which rank's output a file is, if its name tells. Pure; standard library only.

torchrun (torch 2.13, ``distributed/elastic/multiprocessing/api.py``):
``LOG_DIR/RUN/attempt_N/LOCAL_RANK/stdout.log``; own loops and other launchers: ``rank3.log``, ``train_rank_3.log``,
``train.log.rank-3``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ELASTIC = re.compile(r"(?P<run>(?:^|.*/))attempt_(?P<attempt>\d{1,6})/(?P<rank>\d{1,6})/std(?:out|err)\.log$")
_RANK = re.compile(r"(?<![a-z])rank[._-]?(?P<rank>\d{1,6})(?![\d])(?=[^/]*$)", re.IGNORECASE)


class OutputName(NamedTuple):
    """What a path tells: rank, attempt of torchrun, and the part in common with other ranks' paths."""

    rank: int
    attempt: int
    family: str
    elastic: bool


def parse_output_name(path: str) -> OutputName | None:
    """Return what a path tells of its rank; None if it names none.

    torchrun's is the local rank, which is the rank itself on one node.
    """
    found = _ELASTIC.search(path)
    if found is not None:
        return OutputName(int(found["rank"]), int(found["attempt"]), found["run"], True)
    found = _RANK.search(path)
    if found is not None:
        return OutputName(int(found["rank"]), 0, f"{path[: found.start('rank')]}*{path[found.end('rank') :]}", False)
    return None
