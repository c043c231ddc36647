"""The check of the exchange, part of ``doctor.checks``: can this node reach what the agents of several nodes share?

May import the exchanges and what the other checks import. It never serves a store: only the agent next to rank 0
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket

from hangwatch.doctor.check import Check
from hangwatch.exchange.addresses import is_own_address
from hangwatch.exchange.opening import ExchangeChoice, open_exchange, parse_exchange
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.tcpstore import DEFAULT_PORT
from hangwatch.exchange.waiting import wait_within
from hangwatch.sources.node_view import discover_node

NAME = "peer discovery"
_LIMIT_S = 5.0
#: Where the check writes a test value: a channel of no job, with a short expiry.
_CHANNEL, _EXPIRY_S = "doctor", 5.0
_REDIS = "pip install 'redis>=5.0.1'"


def check_exchange(option: str) -> Check:
    """Check the exchange. ``option``: the value of ``--exchange``, empty if it is not set."""
    try:
        choice = parse_exchange(option)
    except ExchangeError as error:
        return Check(NAME, "failed", str(error), "correct --exchange, or `exchange` in the settings file")
    if choice.kind == "local":
        return Check(NAME, "ok", "local: the agent sees only the ranks of its own node")
    return _check_redis(choice) if choice.kind == "redis" else _check_store(choice)


def _check_redis(choice: ExchangeChoice) -> Check:
    if importlib.util.find_spec("redis") is None:
        return Check(NAME, "failed", f"{choice.shown}: the Redis client is not installed", _REDIS)
    try:
        exchange = open_exchange(choice)
    except ExchangeError as error:
        return Check(NAME, "failed", str(error), "correct --exchange, or `exchange` in the settings file")
    try:
        asyncio.run(_write_and_read(exchange))
    except (ExchangeError, asyncio.TimeoutError) as error:
        return judge_redis(choice.shown, str(error) or "timed out")
    return Check(NAME, "ok", f"{choice.shown}: reading and writing work")


async def _write_and_read(exchange: Exchange) -> None:
    try:
        await wait_within(exchange.publish(_CHANNEL, "doctor", b"", _EXPIRY_S), _LIMIT_S)
        await wait_within(exchange.read(_CHANNEL), _LIMIT_S)
    finally:
        await exchange.close()


def judge_redis(shown: str, why: str) -> Check:
    """Return the finding on a Redis exchange. ``why``: the error message of the client or the server."""
    message = why.lower()
    repair = f"start the server, correct the address, or open its port to this node: redis-cli -u {shown} ping"
    if any(word in message for word in ("authenticat", "username-password", "wrongpass", "noauth")):
        repair = "put the correct password into the URL: redis://:PASSWORD@HOST:PORT, with special characters as %XX"
    elif "permission" in message or "noperm" in message:
        repair = "grant the user write access: ACL SETUSER NAME ~hangwatch:* &hangwatch:* +@all"
    elif "ssl" in message or "certificate" in message or "tls" in message:
        repair = (
            "use rediss:// for a server with TLS and redis:// for one without; the certificate must "
            "be trusted on this node"
        )
    return Check(NAME, "failed", f"{shown} does not work: {why}", repair)


def _check_store(choice: ExchangeChoice) -> Check:
    every, port = choice.kind == "tcp", choice.port or DEFAULT_PORT
    masters = sorted({job.master for job in discover_node()[0].jobs if job.master and (every or job.spans_nodes)})
    if (every or masters) and importlib.util.find_spec("torch") is None:
        return Check(
            NAME,
            "failed",
            f"{choice.kind} needs torch in the agent's environment to connect the nodes of a job",
            "pip install torch in the environment of hangwatch, or use --exchange redis://...",
        )
    if not masters:
        which = "" if every else " of a job that spans nodes"
        where = f"the agent next to rank 0{which} will serve a store on MASTER_ADDR:{port}"
        return Check(NAME, "ok", f"{choice.kind}: {where}; no such job is running, so this is untested")
    hosts = {master.rpartition(":")[0].strip("[]") for master in masters}
    return judge_store(port, {host: (is_own_address(host), _why_not(host, port)) for host in sorted(hosts)})


def _why_not(host: str, port: int) -> str:
    """Return why a connection to that address fails; empty if it succeeds."""
    try:
        with contextlib.closing(socket.create_connection((host, port), timeout=_LIMIT_S)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def judge_store(port: int, hosts: dict[str, tuple[bool, str]]) -> Check:
    """Return the finding on a store next to rank 0.

    ``hosts``: for each MASTER_ADDR, whether it is this node, and why a connection fails (empty: it succeeds).
    """
    for host, (own, why) in hosts.items():
        if why and not own:
            repair = (
                f"run hangwatch on {host} too, and open its port {port} to this node, or choose another "
                "port: --exchange tcp:PORT"
            )
            return Check(NAME, "failed", f"the store at {host}:{port} is not reachable: {why}", repair)
    reachable = [host for host, (_, why) in hosts.items() if not why]
    if reachable:
        return Check(NAME, "ok", f"the store at {', '.join(f'{host}:{port}' for host in reachable)} is reachable")
    return Check(NAME, "ok", f"the agent on this node will serve the store on port {port}")
