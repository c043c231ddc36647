"""Parse the ``--exchange`` option and open that exchange. May import the exchanges and the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from hangwatch.exchange.addresses import is_own_address
from hangwatch.exchange.protocol import Exchange, ExchangeError, hide_password

_REPAIR = "use auto, local, tcp, tcp:PORT, or redis://[:PASSWORD@]HOST[:PORT][/DB] (rediss:// for TLS)"


@dataclass(frozen=True)
class ExchangeChoice:
    """What was chosen by ``--exchange``.

    ``kind``: one exchange for all jobs of the node (``local``, ``redis``), or one next to each job's rank 0 (``tcp``;
    ``auto`` only for jobs that are known to span nodes). ``secret``: what all agents of a job have; empty for none.
    """

    kind: Literal["auto", "local", "tcp", "redis"]
    url: str = ""
    port: int | None = None
    secret: str = field(default="", repr=False)

    @property
    def shared(self) -> bool:
        """True if all jobs of the node share one exchange."""
        return self.kind not in {"auto", "tcp"}

    @property
    def shown(self) -> str:
        """How messages name it, without a password."""
        if self.kind == "redis":
            return hide_password(self.url)
        return self.kind if self.port is None else f"{self.kind}:{self.port}"


def parse_exchange(text: str) -> ExchangeChoice:
    """Return the value of ``--exchange``; auto if it is empty. Raises ``ExchangeError`` if it is invalid."""
    if text in {"", "auto"}:
        return ExchangeChoice("auto")
    if text == "local":
        return ExchangeChoice("local")
    if text.startswith(("redis://", "rediss://", "unix://", "valkey://", "valkeys://")):
        return ExchangeChoice("redis", url=text.replace("valkey", "redis", 1))
    kind, _, port = text.partition(":")
    if kind != "tcp" or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ExchangeError(f"{hide_password(text)} is not valid; {_REPAIR}")
    return ExchangeChoice("tcp", port=int(port) if port else None)


def open_exchange(choice: ExchangeChoice, master: str = "") -> Exchange:
    """Return the exchange, which connects on first use.

    For tcp and auto the store is on the host of ``master`` (``MASTER_ADDR:MASTER_PORT`` of the job), served by the
    agent that has this address. Raises ``ExchangeError`` if a dependency is missing.
    """
    if choice.kind == "local":
        from hangwatch.exchange.local import LocalExchange

        return LocalExchange()
    if choice.secret:
        from hangwatch.exchange.sealed import SealedExchange

        return SealedExchange(open_exchange(replace(choice, secret=""), master), choice.secret.encode())
    if choice.kind == "redis":
        from hangwatch.exchange.redis import RedisExchange

        return RedisExchange(choice.url)
    from hangwatch.exchange.tcpstore import DEFAULT_PORT, TcpStoreExchange

    host = master.rpartition(":")[0].strip("[]")
    if not host:
        raise ExchangeError("--exchange tcp needs the job's MASTER_ADDR, which is not known")
    return TcpStoreExchange(host, choice.port or DEFAULT_PORT, hosting=is_own_address(host))
