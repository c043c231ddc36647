"""Whether a host answers at all. May import the standard library only.

Connects to a port on which hardly any host listens: a host that refuses or accepts the connection is up. Nothing is
sent.
"""

from __future__ import annotations

import asyncio
import contextlib

#: tcpmux: a port that is closed on practically every host.
_PORT = 1
#: A first segment that is lost is sent again after 1 s, and after 3 s.
_TIMEOUT_S = 3.5


async def does_answer(address: str) -> bool:
    """True if the host at ``address`` answers within a few seconds.

    False also if a firewall drops the packets.
    """
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, _PORT), _TIMEOUT_S)
    except ConnectionRefusedError:
        return True
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
