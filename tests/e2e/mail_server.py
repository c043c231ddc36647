"""A stand-in for a mail server: SMTP (RFC 5321) as far as one client needs it, on the loopback, without TLS and logins."""

from __future__ import annotations

import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from typing import cast


@dataclass(frozen=True)
class Mail:
    """What came: the addresses of the envelope, and the message as Python's own parser reads it."""

    sender: str
    receivers: tuple[str, ...]
    message: EmailMessage


@dataclass
class MailServer:
    """``port`` is where it listens; ``mails`` grows."""

    port: int
    mails: list[Mail] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """A server that takes everything."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            sender, receivers = "", []
            self._say("220 stand-in")
            while line := self.rfile.readline().decode().strip():
                command = line[:4].upper()
                if command == "MAIL":
                    sender, receivers = _address(line), []
                elif command == "RCPT":
                    receivers.append(_address(line))
                elif command == "DATA":
                    self._say("354 go on")
                    message = BytesParser(policy=email.policy.default).parsebytes(self._data())
                    found.mails.append(Mail(sender, tuple(receivers), cast("EmailMessage", message)))
                elif command not in {"EHLO", "HELO", "RSET", "QUIT"}:
                    self._say("502 not here")
                    continue
                self._say("221 bye" if command == "QUIT" else "250 good")

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def _data(self) -> bytes:
            lines = iter(self.rfile.readline, b".\r\n")
            return b"".join(line.removeprefix(b".") if line.startswith(b"..") else line for line in lines)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found = MailServer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]
