"""The command of ``hangwatch run``: started, awaited, and run again after a hang if its launcher does not restart it.

May import its own room, the model and the sources.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hangwatch.agent.host.control import count_restarts_left, name_restarter, ranks_of
from hangwatch.agent.host.launch import (
    end_ranks,
    end_tree,
    exit_status,
    pass_signals,
    start_command,
    wait_for_command,
)
from hangwatch.model.capture import RankIdentity
from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import Incident
from hangwatch.sources.proc.samples import find_living, is_supervised

#: Tells the job how often its command was run again. torchrun's own count begins at 0 each time.
RESTART_COUNT_VARIABLE = "HANGWATCH_RESTART_COUNT"
_JOB_VARIABLE = "HANGWATCH_JOB"
#: A launcher whose ranks were ended usually ends by itself: torchrun and deepspeed within seconds. Others are ended.
LAUNCHER_GRACE_S = 30.0
#: Ports and memory of the previous job may take a moment to be free; a job that cannot start is tried once a minute.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
#: The agent looks for ranks once a second.
_LOOK_S = 1.0
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})


def pause_before(restart: int) -> float:
    """Return the seconds before the ``restart``-th rerun of the command (from 1): doubled each time, up to a limit."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(restart - 1, 10))


async def _at_once() -> None:
    """Return at once: nothing has to be ready before the command is run again."""


@dataclass
class Supervisor:
    """Runs ``command`` in ``environment``.

    ``known``: returns its ranks as last seen. ``say``: prints a line. ``max_restarts``: how often the command is run
    again after ``restart``, each time once ``ready`` returns. Implements ``JobControl``: the command counts as one
    job, whatever it has started.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    max_restarts: int
    known: Callable[[], Sequence[RankIdentity]]
    say: Callable[[str], None]
    ready: Callable[[], Awaitable[None]] = _at_once
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = None
    _stopped: bool = False
    _signalled: signal.Signals | None = None
    _ended: frozenset[int] = frozenset()
    _self_restarting: bool = False
    _job: str = ""
    _following: asyncio.Task[bool] | None = None
    _exited: asyncio.Event = field(default_factory=asyncio.Event)
    _interrupted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int | None:
        """The pid of the command, or of its last run if it has ended; None before the first."""
        return self.process.pid if self.process is not None else None

    def start(self) -> int:
        """Start the command; return its pid. Raises ``UserError``."""
        count = {RESTART_COUNT_VARIABLE: str(self.restarts)} if self.restarts else {}
        # torchrun --standalone takes another name each time; the job is the same.
        name = {_JOB_VARIABLE: self._job} if self._job and _JOB_VARIABLE not in self.environment else {}
        self._ended, self._self_restarting = frozenset(), False
        self._exited.clear()
        self.process = start_command(self.command, {**self.environment, **count, **name})
        return self.process.pid

    async def run(self) -> int:
        """Wait for the started command, and for its later runs; return the last exit status."""
        pass_signals(self._deliver, asyncio.get_running_loop())
        while True:
            assert self.process is not None  # noqa: S101  # it was started
            returncode = await wait_for_command(self.process)
            self._exited.set()
            if self._stopped:
                return EXIT_STOPPED
            if not self._awaits_restart(returncode) or self._signalled is not None:
                return exit_status(returncode)
            if self.restarts >= self.max_restarts:
                self.say(f"not restarted: {self._used_up()}")
                return EXIT_STOPPED
            self.restarts += 1
            pause_s = pause_before(self.restarts)
            self.say(f"restarting {self.command[0]} in {pause_s:g} s (restart {self.restarts} of {self.max_restarts})")
            await self._pause(pause_s)
            if self._stopped or self._signalled is not None:
                return EXIT_STOPPED if self._signalled is None else exit_status(-self._signalled)
            self.start()

    async def _pause(self, pause_s: float) -> None:
        """Wait until the command may be run again, or must not be any more."""
        reasons = [asyncio.ensure_future(one) for one in (self._interrupted.wait(), self._ready_after(pause_s))]
        await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        for reason in reasons:
            reason.cancel()

    async def _ready_after(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        await self.ready()

    async def stop(self, incident: Incident) -> str:
        """End the command and all its descendants, including ranks that have left its process tree."""
        del incident
        if self.pid is None:
            return "the job had not started"
        self._stopped = True
        self._interrupted.set()
        command = [self.pid] if not self._exited.is_set() else []
        return (await end_tree([*command, *(one.pid for one in find_living(self.known()))])).in_words()

    async def restart(self, incident: Incident) -> str:
        """End the ranks.

        If their launcher does not restart them, let the command end, so that it is run again.
        """
        ranks = ranks_of(incident, self.known())
        if not ranks or self.pid is None:
            return "not done: the ranks were already gone"
        left = count_restarts_left(ranks, is_supervised)
        self._job = incident.job.id
        self._ended, self._self_restarting = frozenset(one.pid for one in self.known()), left > 0
        ended = await end_ranks(ranks)
        if self._following is not None:
            self._following.cancel()
        self._following = asyncio.create_task(self._see_replaced(), name="hangwatch restart")
        if left:
            return f"{ended.in_words()}; {name_restarter(ranks, left)}"
        await asyncio.wait({self._following}, timeout=LAUNCHER_GRACE_S)
        if not self._following.done():
            await end_tree([self.pid])
        elif self._following.result():
            return f"{ended.in_words()}; the command has restarted them itself"
        return f"{ended.in_words()}; hangwatch restarts the command"

    async def _see_replaced(self) -> bool:
        """Wait until other ranks have replaced the ended ones, or the command has ended; True if replaced."""
        while not self._exited.is_set():
            if {one.pid for one in self.known()} - self._ended:
                self._ended = frozenset()
                return True
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._exited.wait(), _LOOK_S)
        return False

    def why_no_restart(self, incident: Incident) -> str:
        """Return why not if the restarts are used up, the launcher's own and ours; else an empty text."""
        ranks = ranks_of(incident, self.known())
        used_up = ranks and not count_restarts_left(ranks, is_supervised) and self.restarts >= self.max_restarts
        return self._used_up() if used_up else ""

    def launcher_restarts(self, incident: Incident) -> bool:
        """True if torchrun has restarts left."""
        return count_restarts_left(ranks_of(incident, self.known()), is_supervised) > 0

    def _used_up(self) -> str:
        if not self.max_restarts:
            return "the launcher does not restart the job, and --max-restarts is 0"
        return f"all restarts are used up (--max-restarts {self.max_restarts})"

    def _awaits_restart(self, returncode: int) -> bool:
        """True if the command has ended because its ranks were ended, and no others have replaced them."""
        if not self._ended or {one.pid for one in self.known()} - self._ended:
            return False
        return not (self._self_restarting and returncode == 0)

    def _deliver(self, number: signal.Signals, needed: bool) -> None:
        """Pass a signal on; one that ends the command also prevents it from being run again."""
        if number in _ENDING:
            self._signalled = number
            self._interrupted.set()
        if needed and self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
