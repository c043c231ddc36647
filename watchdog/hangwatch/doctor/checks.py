"""The checks of ``hangwatch doctor``: each tests one requirement and names the repair."""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hangwatch.config.directories import default_state_dir, prepare_state_dir, probe_environment, shared_run_dir
from hangwatch.doctor.check import Check
from hangwatch.doctor.exchange import check_exchange
from hangwatch.doctor.node import (
    check_clock,
    check_jobs,
    check_proc,
    check_ptrace,
    check_sampling,
)
from hangwatch.hardware.sources.ras import report as ras
from hangwatch.hardware.sources.registry import NodeWatch
from hangwatch.model.capture import Gap
from hangwatch.model.devices import HARDWARE, NodeFacts
from hangwatch.model.errors import UserError
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.server import Health, ServerError, parse_listen, start_server
from hangwatch.sources.stacks.samples import sample_stacks


def run_checks(state_dir: Path | None, listen: str, exchange: str = "") -> list[Check]:
    """Run all checks, in the order in which problems should be repaired."""
    checks: list[Callable[[], Check]] = [
        _python,
        check_ptrace,
        check_proc,
        check_sampling,
        _stacks,
        _torch,
        _probe,
        lambda: _state_dir(state_dir or default_state_dir()),
        _run_dir,
        lambda: _listen(listen),
        check_clock,
        lambda: check_exchange(exchange),
    ]
    return [check() for check in checks] + check_jobs() + _hardware()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.platform != "linux":
        return Check(
            "platform", "failed", f"{sys.platform}, Python {version}", "run hangwatch on Linux; it needs /proc"
        )
    return Check("platform", "ok", f"Linux, Python {version}")


def _stacks() -> Check:
    """Read the stack of a Python child process: like a rank, it is another process of the same user."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None  # noqa: S101  # stdout=PIPE above
        child.stdout.readline()
        found = asyncio.run(sample_stacks([child.pid]))[child.pid]
    finally:
        child.kill()
        child.communicate()
    if isinstance(found, Gap):
        return Check("stacks (py-spy)", "failed", found.reason, found.hint or "see docs/security.md")
    return Check("stacks (py-spy)", "ok", "stacks of Python processes can be read")


def _torch() -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check("torch", "warning", "not installed here; only the torch of the ranks matters (2.4 or newer)")
    from importlib.metadata import version

    found = version("torch")
    major, minor = (int(part) for part in found.split(".")[:2])
    if (major, minor) < (2, 4):
        return Check(
            "torch",
            "warning",
            f"{found} has no worker server: hangs are detected from stacks only",
            "upgrade torch to 2.4 or newer",
        )
    return Check("torch", "ok", found)


def _probe() -> Check:
    """Start a Python process with the probe's environment and ask whether it has loaded the probe."""
    with tempfile.TemporaryDirectory() as run_dir:
        environment = {**os.environ, **probe_environment(Path(run_dir))}
        code = "import sys; print('_hangwatch_probe' in sys.modules)"
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
    if result.stdout.strip() == "True":
        return Check("probe", "ok", "loads into Python processes started with `hangwatch run` or `hangwatch env`")
    why = "does not load through PYTHONPATH (python -I and -E ignore it)"
    return Check("probe", "warning", why, "add `import hangwatch.probe` to the training script")


def _state_dir(path: Path) -> Check:
    try:
        return Check("state directory", "ok", str(prepare_state_dir(path)))
    except UserError as error:
        return Check(
            "state directory",
            "failed",
            str(error),
            "choose a writable one with --state-dir DIR or HANGWATCH_STATE_DIR",
        )


def _run_dir() -> Check:
    try:
        return Check("run directory", "ok", str(shared_run_dir()))
    except UserError as error:
        return Check("run directory", "failed", str(error), "set TMPDIR to a writable directory")


def _hardware() -> list[Check]:
    """Check the sources for GPUs, network and kernel log. NCCL's RAS server is left out: it answers only while a job runs."""
    names = [name for name in HARDWARE if name != ras.NAME]
    facts, gaps = asyncio.run(NodeWatch().read((), names))
    broken = {gap.source: Check(gap.source, "warning", gap.reason, gap.hint) for gap in gaps}
    return [broken.get(name) or Check(name, "ok", _seen(name, facts)) for name in names]


def _seen(name: str, facts: NodeFacts | None) -> str:
    absent = [a.says for a in facts.absent if a.source == name] if facts is not None else []
    if absent or facts is None:
        return "; ".join(absent)
    shown = {
        "nvml": ", ".join(f"GPU {g.index} {g.name}" for g in facts.gpus),
        "fabric ports": ", ".join(f"{p.device}/{p.port} {p.state}" for p in facts.ports),
    }
    return shown.get(name) or "readable"


def _listen(listen: str) -> Check:
    async def attempt() -> str:
        server = await start_server(*parse_listen(listen), Metrics(), Health(dict))
        await server.stop()
        return server.url

    name = "metrics address"
    try:
        return Check(name, "ok", f"can listen on {asyncio.run(attempt())}")
    except ServerError as error:
        reason, _, repair = str(error).partition("; ")
        if _is_agent(listen):
            return Check(name, "ok", f"an agent is already listening on {listen}")
        return Check(name, "failed", reason, repair or "choose another with --listen 127.0.0.1:0")


def _is_agent(listen: str) -> bool:
    """True if the server on that address is a hangwatch agent."""
    host, port = parse_listen(listen)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # an address to connect to, not to listen on
    connection = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        connection.request("GET", "/healthz")
        return b'"last_tick_age_s"' in connection.getresponse().read(4096)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
