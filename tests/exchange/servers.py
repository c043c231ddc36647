"""A real Redis server for tests, on a port of the loopback interface, without anything on disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from support import Job, JobRunner, wait_for


@dataclass
class RedisServer:
    """Started, killed and started again by tests; what it held is gone with it. ``prefix``: before its command."""

    runner: JobRunner
    port: int
    host: str = "127.0.0.1"
    prefix: Sequence[str] = ()
    job: Job | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers (where it can be reached from here)."""
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            pytest.skip("no redis-server is installed: 'apt-get install redis-server', or 'make setup'")
        options = {"port": str(self.port), "bind": self.host, "save": "", "appendonly": "no", "protected-mode": "no"}
        options["set-proc-title"] = "no"  # it would write over the environment by which its process is found again
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.job = self.runner.start((*self.prefix, program, *given))
        wait_for(lambda: "Ready to accept connections" in self._said(), 20.0, "the Redis server to be ready")

    def kill(self) -> None:
        """End it without a word."""
        if self.job is not None:
            self.job.process.kill()
            self.job.process.wait()

    def _said(self) -> str:
        return self.job.stdout() + self.job.stderr() if self.job is not None else ""
