"""The check of the exchange, a part of ``doctor.checks``: whether what the agents of several nodes share can be used from here.

May import the exchanges and what the other checks import. Nothing is hosted: that is the agent's beside rank 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket

from hangwatch.doctor.check import Check
from hangwatch.exchange.opening import ExchangeChoice, is_own_address, open_exchange, parse_exchange
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.tcpstore import DEFAULT_PORT
from hangwatch.exchange.waiting import wait_within
from hangwatch.sources.node_view import look_around

NAME = "exchange"
_LIMIT_S = 5.0
#: What is written to see whether it may be, under no job's name; it is forgotten soon.
_CHANNEL, _EXPIRY_S = "doctor", 5.0
_REDIS = "pip install 'hangwatch[redis]'"


def check_exchange(option: str) -> Check:
    """``option``: the value of ``--exchange``, empty where there is none."""
    if not option:
        return Check(NAME, "ok", "none is set: this node tells of its own ranks alone")
    try:
        choice = parse_exchange(option)
    except ExchangeError as error:
        return Check(NAME, "failed", str(error), "correct --exchange, or exchange in the settings")
    if choice.kind == "local":
        return Check(NAME, "ok", "local: within this process, for one node")
    return _check_redis(choice) if choice.kind == "redis" else _check_store(choice)


def _check_redis(choice: ExchangeChoice) -> Check:
    if importlib.util.find_spec("redis") is None:
        return Check(NAME, "failed", f"{choice.shown}: the Redis client is not installed", _REDIS)
    try:
        exchange = open_exchange(choice)
    except ExchangeError as error:
        return Check(NAME, "failed", str(error), "correct --exchange, or exchange in the settings")
    try:
        asyncio.run(_write_and_read(exchange))
    except (ExchangeError, asyncio.TimeoutError) as error:
        return judge_redis(choice.shown, str(error) or "no answer in time")
    return Check(NAME, "ok", f"{choice.shown} is written and read")


async def _write_and_read(exchange: Exchange) -> None:
    try:
        await wait_within(exchange.publish(_CHANNEL, "doctor", b"", _EXPIRY_S), _LIMIT_S)
        await wait_within(exchange.read(_CHANNEL), _LIMIT_S)
    finally:
        await exchange.close()


def judge_redis(shown: str, why: str) -> Check:
    """``why``: what the client or the server has answered."""
    said = why.lower()
    repair = f"start the server, correct the address, or open its port to this node: redis-cli -u {shown} ping"
    if any(word in said for word in ("authenticat", "username-password", "wrongpass", "noauth")):
        repair = "put the right password into the address: redis://:PASSWORD@HOST:PORT, special characters as %XX"
    elif "permission" in said or "noperm" in said:
        repair = "let its user write: ACL SETUSER NAME ~hangwatch:* &hangwatch:* +@all"
    elif "ssl" in said or "certificate" in said or "tls" in said:
        repair = "use rediss:// for a server with TLS and redis:// for one without, and a certificate this node trusts"
    return Check(NAME, "failed", f"{shown} cannot be used: {why}", repair)


def _check_store(choice: ExchangeChoice) -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check(NAME, "failed", "tcp needs torch where the agent runs", "pip install torch, beside hangwatch")
    masters = sorted({job.master for job in look_around()[0].jobs if job.master})
    port = choice.port or DEFAULT_PORT
    if not masters:
        said = f"tcp: kept by the agent beside rank 0 at port {port} of MASTER_ADDR; is tried where a job runs"
        return Check(NAME, "ok", said)
    hosts = {master.rpartition(":")[0].strip("[]") for master in masters}
    return judge_store(port, {host: (is_own_address(host), _why_not(host, port)) for host in sorted(hosts)})


def _why_not(host: str, port: int) -> str:
    """Why nobody can be connected to there; empty where somebody can."""
    try:
        with contextlib.closing(socket.create_connection((host, port), timeout=_LIMIT_S)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def judge_store(port: int, hosts: dict[str, tuple[bool, str]]) -> Check:
    """``hosts``: of each where ranks meet, whether it is this one, and why it cannot be connected to (empty: it can)."""
    for host, (ours, why) in hosts.items():
        if why and not ours:
            repair = f"start hangwatch with --exchange tcp on {host}, and open port {port} between the nodes"
            return Check(NAME, "failed", f"the store at {host}:{port} cannot be reached: {why}", repair)
    kept = [host for host, (_, why) in hosts.items() if not why]
    if kept:
        return Check(NAME, "ok", f"the store at {', '.join(f'{host}:{port}' for host in kept)} answers")
    return Check(NAME, "ok", f"tcp: the agent of this node will keep the store at port {port}")
