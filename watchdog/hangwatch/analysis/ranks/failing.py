"""What ended a rank's program: an error of its own, or the loss of peers that it communicated with. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from hangwatch.model.capture import RankCapture
from hangwatch.model.processes import ExitStatus

#: What torch 2.4 to 2.13 raises if a peer is gone or does not answer: Gloo with the file of its transport in front, NCCL and the
#: store of the first rank with types of their own. A failure to connect at the start is no lost peer.
_LOST_PEER = re.compile(
    r"op\.preamble\.length|gloo::EnforceNotMet|NCCL's watchdog"
    r"|gloo/transport/(?!\S*device\.cc)|^(?:Dist(?:Backend|Network|Store)Error)\b"
    r"|ncclRemoteError|NCCL communicator was aborted|Watchdog caught collective operation timeout"
)
_AT_THE_START = re.compile(r"connectFullMesh|rendezvous|init_process_group")


def is_lost_peer(error: Sequence[str]) -> bool:
    """True if an exception (where it was raised, and what) says that a peer is gone, and so tells nothing of the rank itself."""
    return bool(error) and bool(_LOST_PEER.search(error[-1])) and not any(map(_AT_THE_START.search, error))


def does_not_fit(rank: RankCapture) -> bool:
    """True if Gloo has ended a rank because a message had another size than the collective that the rank had called."""
    return any("op.preamble.length <= op.nbytes" in line or "gloo::EnforceNotMet" in line for line in rank.log_error)


def failed_by_itself(rank: RankCapture) -> bool:
    """True if a rank's own error, status or signal ended it, which explains more than what it had called.

    The launcher ends the others by SIGTERM. A program that is over may still be aborted, by Gloo's threads that run on.
    """
    if rank.log_error:
        return not is_lost_peer(rank.log_error)
    end = _exit_of(rank)
    if end is None or rank.terminated:
        return rank.terminated
    return bool(end.code) or (not rank.ended and end.signal not in {None, signal.SIGTERM})


def left_in_order(rank: RankCapture) -> bool:
    """True if a rank's program has ended without an error; False if its exit status, which may tell of one, was not seen."""
    return rank.ended and not rank.log_error and _exit_of(rank) is not None and not failed_by_itself(rank)


def _exit_of(rank: RankCapture) -> ExitStatus | None:
    return next((sample.exit for sample in reversed(rank.processes) if sample.exit is not None), None)
