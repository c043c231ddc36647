"""One request for an engine's metrics, or for what Ray's dashboard says: bounded in time and size, and to this machine alone.

May import aiohttp, psutil and the standard library.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

import psutil

#: A busy engine may be slow to answer, and no tick waits for it.
TIMEOUT_S = 10.0
#: vLLM's was seen at a few hundred kilobytes; one with hundreds of LoRA adapters is larger.
SIZE_LIMIT_BYTES = 8 << 20


def parse_engine_url(text: str) -> str:
    """Return an engine's address as a URL, with ``http://`` if it has no scheme. Raises ``ValueError`` with an explanation."""
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError(f"{text!r} is not the address of an engine; for example http://127.0.0.1:8000")
    try:
        parts.port  # noqa: B018  # raises where it is none
    except ValueError:
        raise ValueError(f"{text!r} has no valid port; for example http://127.0.0.1:8000") from None
    return url.rstrip("/")


def check_engine(text: str) -> str:
    """Return the URL of an engine on this node. Raises ``ValueError`` with the problem and the repair."""
    url = parse_engine_url(text)
    if not is_own_host(urlsplit(url).hostname or ""):
        raise ValueError(f"{text!r} is not on this node, so its processes are not visible; run an agent on its node")
    return url


def is_own_host(host: str) -> bool:
    """True if the host of a URL is this machine: its name, ``localhost``, or the address of one of its interfaces."""
    name = host.lower().rstrip(".")
    if name in {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    own = {found.address.partition("%")[0] for each in psutil.net_if_addrs().values() for found in each}
    return address.is_loopback or address.is_unspecified or str(address) in own


async def fetch(url: str, timeout_s: float = TIMEOUT_S) -> bytes | str:
    """Return the body of the answer, or a few words that say why there is none."""
    import aiohttp  # takes longer to import than all other sources together

    limit = aiohttp.ClientTimeout(total=timeout_s)
    try:
        # One session per request: the engine would have to keep a persistent connection for us.
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=False) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                return f"it responds with status {response.status}"
            data = await response.content.read(SIZE_LIMIT_BYTES + 1)
            while not response.content.at_eof() and len(data) <= SIZE_LIMIT_BYTES:
                data += await response.content.read(SIZE_LIMIT_BYTES + 1 - len(data))
    except asyncio.TimeoutError:
        return f"no answer within {timeout_s:.0f} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"it does not respond: {type(error).__name__}"
    return data if len(data) <= SIZE_LIMIT_BYTES else f"more than {SIZE_LIMIT_BYTES >> 20} MiB"
