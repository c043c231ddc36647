"""An agent with everything around it: its server, its receivers, its actions, its disk, and the life of its process.

The one wiring behind ``hangwatch run`` and ``hangwatch agent``; what differs between them is given as values.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from rich.console import Console

from hangwatch.agent.host.control import JobControl, NodeControl
from hangwatch.agent.host.events import EventFile
from hangwatch.agent.host.log import Voice
from hangwatch.agent.host.memory import bound_heaps, collect_less_often, give_back
from hangwatch.agent.host.systemd import ServiceManager
from hangwatch.agent.incidents.actions import Actor, policy_for
from hangwatch.agent.incidents.history import Histories, read_history
from hangwatch.agent.incidents.lifecycle import close_left_open
from hangwatch.agent.incidents.raising import Raised, raise_in_ranks
from hangwatch.agent.incidents.record import announce_to_nobody
from hangwatch.agent.incidents.reopen import find_left_open
from hangwatch.agent.incidents.retention import sweep
from hangwatch.agent.node_agent import Agent
from hangwatch.config.settings import ACTIONS, Receivers, Settings
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.view import ReceiverMetrics
from hangwatch.outputs.push.audit import FILE as AUDIT
from hangwatch.outputs.push.otlp.feed import MetricsFeed
from hangwatch.outputs.push.senders import CLOSE_GRACE_S, Push, Target, open_endpoints, parse_target
from hangwatch.outputs.terminal.verdict import print_verdict
from hangwatch.outputs.web.access import read_token
from hangwatch.outputs.web.page import WebPage
from hangwatch.outputs.web.server import Health, RunningServer, parse_listen, start_server
from hangwatch.sources.beats.files import remove_leftovers

#: How often bundles beyond the limits and files of ranks that are gone are removed; besides, after every incident.
_SWEEP_PERIOD_S = 300.0
#: Threads for what may block: pages, bundles. Python's own number grows with the node's cores, and memory with it.
_THREADS = 4
#: Settings that are read at the start alone.
_FIXED = (
    "state_dir", "listen", "token_file", "logs", "engines", "with_values", "condition_values", "native_stacks", "exchange", "job",
)  # fmt: skip


class Service:
    """One agent's process. ``address`` is where it listens if the settings do not say; ``root`` the pid its jobs are under.

    ``control`` ends and restarts the command where the agent has started it. ``manager`` is pinged after each tick.
    ``events`` gets what programs follow.
    """

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        run_dir: Path,
        console: Console,
        *,
        address: str,
        root: Callable[[], int | None] | None = None,
        control: JobControl | None = None,
        manager: ServiceManager | None = None,
        events: EventFile | None = None,
    ) -> None:
        bound_heaps()
        collect_less_often()
        self.settings = settings
        self.console = console
        self.voice = Voice(console, settings.log, events)
        self.manager = manager or ServiceManager()
        self.metrics = Metrics()
        targets = find_targets(settings.receivers)
        self.push = Push(targets)
        self.feed = MetricsFeed(open_endpoints(targets), self.metrics.families)
        self.token = read_token({"HANGWATCH_TOKEN_FILE": settings.token_file, **os.environ})
        self.address = parse_listen(settings.listen or address)
        histories = Histories(one_job=root is not None, read=functools.partial(read_history, state_dir))
        self.actor = Actor(
            settings,
            self._complete,
            control or NodeControl(self.known_ranks),
            self.voice.say,
            restarted=lambda incident: histories.of(incident.job.id).note_restart(),
            raise_in=self._raise,
        )
        self.agent = Agent(
            run_dir=run_dir,
            state_dir=state_dir,
            announce=self.announce,
            metrics=self.metrics,
            root=root or (lambda: None),
            say=self.voice.say,
            found=self._note_job,
            settings=settings,
            receivers=self._receivers,
            ticked=self.manager.alive,
            on_peer_incident=self.on_peer_incident,
            histories=histories,
        )
        self._server: RunningServer | None = None
        self._one_command = root is not None
        self._sweeping: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sweep_now = asyncio.Event()
        self._reported: set[str] = set()

    async def open(self) -> str:
        """Listen, and see to what an agent before us has left. Returns the URL. Raises ``ServerError``."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "hangwatch"))
        page = WebPage(self.agent.state_dir, self.agent.live)
        health = Health(self.agent.healthz, self.agent.livez, self.agent.readyz)
        self._server = await start_server(*self.address, self.metrics, health, page, self.token)
        if self._one_command:
            self._ending = asyncio.create_task(self._end_left(), name="hangwatch left open")
        else:
            await self._take_up()
        self._sweeping = asyncio.create_task(self._sweep(), name="hangwatch sweep")
        self.feed.start()
        return self._server.url

    async def _take_up(self) -> None:
        """Find what an agent before us has left, before the first tick: what was reported then is not reported again."""
        left = await asyncio.to_thread(find_left_open, self.agent.state_dir)
        for bundle in await asyncio.to_thread(_recently_handled, self.agent.state_dir):
            self.actor.recall(bundle)
        for one in left.waiting:
            self.actor.recall(one.path)
        self.agent.reopening = left

    async def _end_left(self) -> None:
        """End what other commands have left open whose job is gone, quietly, and without holding up ours."""
        left = await asyncio.to_thread(find_left_open, self.agent.state_dir)
        for one in left.take_ended():
            await close_left_open(one, self.agent.state_dir, announce_to_nobody, time.time_ns())

    async def close(self, *, over: bool) -> None:
        """End everything. ``over``: the jobs have ended, and with them their incidents; else whoever comes next finds them."""
        await self.agent.close(over=over)
        await self.actor.settle()
        await self.release()

    async def release(self) -> None:
        """Free what ``open`` took, also where the rest has failed."""
        for task in (self._sweeping, self._ending):
            if task is not None:
                task.cancel()
        await asyncio.gather(self.push.close(), self.feed.close(CLOSE_GRACE_S))
        if self._server is not None:
            await self._server.stop()

    async def reload(self, settings: Settings) -> tuple[str, ...]:
        """Work by other settings from now on. Returns the names of those that only a restart changes.

        Raises ``PushError``; nothing has changed then.
        """
        targets = find_targets(settings.receivers)
        before, self.settings = self.settings, settings
        self.actor.settings = settings
        self.voice.configure(settings.log)
        self.agent.set_patience(settings.stall_after_s)
        if settings.receivers != before.receivers:
            old, self.push = self.push, Push(targets)
            old_feed, self.feed = self.feed, MetricsFeed(open_endpoints(targets), self.metrics.families)
            self.feed.start()
            for record in self.agent.open_incidents():
                self.push.notify(record.incident, record.path)
            await asyncio.gather(old.close(), old_feed.close(CLOSE_GRACE_S))
        self._sweep_now.set()
        return tuple(name for name in _FIXED if getattr(before, name) != getattr(settings, name))

    async def announce(self, incident: Incident, path: Path | None) -> None:
        """Tell whoever reads our output, the receivers, and act."""
        self.push.notify(incident, path)
        self._say(incident, path)
        self.actor.consider(incident, path)

    async def on_peer_incident(self, incident: Incident, path: Path | None) -> None:
        """The same for an incident that another node owns: that one tells the receivers and runs commands."""
        self._say(incident, path)
        if incident.ended_at is not None or ACTIONS[policy_for(self.settings, incident.verdict)[1].kind].every_node:
            self.actor.consider(incident, path, owned=False)

    def _say(self, incident: Incident, path: Path | None) -> None:
        verdict = incident.verdict
        fields = {"incident": incident.id, "job": incident.job.id, "kind": verdict.kind, "proven": verdict.proven}
        cause = verdict.cause.id if verdict.cause is not None else "unknown"
        where = {"severity": verdict.severity, "cause": cause, "bundle": None if path is None else str(path)}
        ranks: dict[str, object] = {"culprit_ranks": verdict.culprit_ranks, "waiting_ranks": verdict.waiting_ranks}
        if verdict.names:
            ranks["names"] = verdict.names
        if incident.ended_at is not None:
            how = f"incident {incident.id} is over: {_how_it_ended(incident)}"
            self.voice.say(how, event="incident_over", **fields, **where, **ranks)
            self._sweep_now.set()
            return
        event = "incident_updated" if incident.id in self._reported else "incident_confirmed"
        self._reported.add(incident.id)
        if not self.voice.json:
            print_verdict(incident, self.console, bundle=path)
        self.voice.note(verdict.summary, event=event, **fields, **where, **ranks)

    def _note_job(self, job: Job) -> None:
        fields = {"job": job.id, "world_size": job.world_size, "launcher": job.launcher, "command": job.command}
        self.voice.note(f"found job {job.id}", event="job_found", **fields)

    def _receivers(self) -> tuple[ReceiverMetrics, ...]:
        return self.push.metrics()

    async def _complete(self, incident: Incident) -> None:
        for watch in self.agent.watches():
            if watch.incidents.record is not None and watch.incidents.record.id == incident.id:
                await watch.incidents.completed_everywhere()

    def known_ranks(self, job_id: str | None = None) -> list[RankIdentity]:
        """The processes of a job on this node as they were seen last; None: of all jobs."""
        jobs = (w.ranks for w in self.agent.watches() if job_id is None or w.ranks.job.id == job_id)
        return [identity for ranks in jobs for identity in ranks.known.values()]

    async def _raise(self, incident: Incident) -> Raised:
        scopes = [watch.local for watch in self.agent.watches() if watch.ranks.job.id == incident.job.id]
        return await raise_in_ranks(scopes[0], incident) if scopes else Raised()

    async def _sweep(self) -> None:
        while True:
            self._sweep_now.clear()
            removed = await asyncio.to_thread(sweep, self.agent.state_dir, self.settings.bundles)
            await asyncio.to_thread(remove_leftovers, self.agent.run_dir)
            await asyncio.to_thread(give_back)
            if removed:
                self.voice.say(f"removed {len(removed)} old incident(s) beyond the limits of bundles", removed=removed)
            try:
                await asyncio.wait_for(self._sweep_now.wait(), _SWEEP_PERIOD_S)
            except asyncio.TimeoutError:
                continue


def find_targets(receivers: Receivers) -> tuple[Target, ...]:
    """The receivers of incidents. Raises ``PushError`` for an address that is none."""
    given = msgspec.structs.asdict(receivers)
    return tuple(parse_target(kind, url) for kind, urls in given.items() for url in urls if url)


def _recently_handled(state_dir: Path) -> list[Path]:
    """Bundles about which something was done within the last hour, which counts for the limit."""
    since_s = time.time() - 3600.0
    found = state_dir.absolute().glob(f"incidents/*/{AUDIT}")
    return [file.parent for file in found if file.stat().st_mtime >= since_s]


def _how_it_ended(incident: Incident) -> str:
    how = "the loss is normal again" if incident.verdict.kind == "silent_failure" else "the hang resolved"
    return f"{how}, or the job ended"
