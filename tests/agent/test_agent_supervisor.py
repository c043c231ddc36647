"""The command of ``run``, run again or not: with small programs in the place of a launcher and its ranks."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec
import psutil
import pytest
from bundles_on_disk import recorded_capture

from hangwatch.agent.host.supervisor import Supervisor
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankIdentity
from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import Incident

pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.asyncio]


class Supervised:
    """A command whose children, or which itself, is the one rank; ``on_say`` is called with each line."""

    def __init__(self, *command: str, children: bool) -> None:
        self.said: list[str] = []
        self.children = children
        self.supervisor = Supervisor(command, os.environ, 9, self.ranks, self.say)

    def ranks(self) -> list[RankIdentity]:
        """The rank as it is now."""
        try:
            top = psutil.Process(self.supervisor.pid)
            return [RankIdentity(0, p.pid, p.create_time()) for p in (top.children() if self.children else [top])]
        except psutil.NoSuchProcess:
            return []

    def say(self, text: str) -> None:
        """Keep it; whoever waits to restart the command is told to end."""
        self.said.append(text)
        if "restarting " in text:
            os.kill(os.getpid(), signal.SIGTERM)

    async def incident(self) -> Incident:
        """A hang of the rank, as soon as there is one."""
        while not (ranks := self.ranks()):
            await asyncio.sleep(0.02)
        capture = recorded_capture()
        found = make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns, id="one")
        entry = msgspec.structs.replace(found.ranks[0], pid=ranks[0].pid)
        return msgspec.structs.replace(found, ranks=(entry,))


async def test_a_signal_ends_the_pause_before_a_restart() -> None:
    """While no command runs that could get it, it ends us, with the status of a command that it has ended."""
    one = Supervised("sleep", "1000", children=False)
    one.supervisor.restarts = 7  # the pause is as long as it gets
    one.supervisor.start()
    running = asyncio.create_task(one.supervisor.run())
    restart = await one.supervisor.restart(await one.incident())
    assert restart == "1 process ended; hangwatch restarts the command"
    assert await running == 128 + signal.SIGTERM
    assert one.said == ["restarting sleep in 60 s (restart 8 of 9)"]


async def test_what_has_to_be_ready_first_is_waited_for() -> None:
    """A command of the user's, which may change what is started next; a signal ends that wait as well."""
    one = Supervised("sleep", "1000", children=False)
    ready = asyncio.Event()
    asked = asyncio.Event()

    async def wait_until_ready() -> None:
        asked.set()
        await ready.wait()

    one.supervisor.ready, one.supervisor.say = wait_until_ready, one.said.append
    first = one.supervisor.start()
    running = asyncio.create_task(one.supervisor.run())
    await one.supervisor.restart(await one.incident())
    await asked.wait()
    assert one.supervisor.pid == first
    ready.set()
    while one.supervisor.pid == first:
        await asyncio.sleep(0.01)
    ready.clear()
    asked.clear()
    await one.supervisor.restart(await one.incident())
    await asked.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 128 + signal.SIGTERM
    assert [text.split(" in ")[0] for text in one.said] == ["restarting sleep"] * 2


async def test_a_command_that_starts_its_ranks_again_is_left_to_it() -> None:
    """A user's own loop: other ranks take the place of the ended ones, and the command goes on."""
    one = Supervised("sh", "-c", "while :; do sleep 1000; done", children=True)
    one.supervisor.start()
    running = asyncio.create_task(one.supervisor.run())
    incident = await one.incident()
    restart = await one.supervisor.restart(incident)
    assert restart == "1 process ended; the command has restarted them itself"
    again = await one.supervisor.restart(incident)
    assert again == "not done: the ranks were already gone"
    assert one.supervisor.restarts == 0
    await one.supervisor.stop(incident)
    assert await running == EXIT_STOPPED
    assert one.said == []
