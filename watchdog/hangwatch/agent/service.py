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

from hangwatch.agent.host.control import JobControl, NodeControl, ranks_of
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
from hangwatch.config.settings import ACTIONS, Settings
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.outputs.briefing import make_links
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.push.audit import FILE as AUDIT
from hangwatch.outputs.push.otlp.feed import MetricsFeed
from hangwatch.outputs.push.senders import CLOSE_GRACE_S, Push, find_targets, open_endpoints
from hangwatch.outputs.second_look import describe_second_look
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.verdict import print_verdict
from hangwatch.outputs.web.access import is_loopback, read_token
from hangwatch.outputs.web.page import WebPage
from hangwatch.outputs.web.server import Health, RunningServer, parse_listen, start_server
from hangwatch.sources.beats.files import remove_leftovers
from hangwatch.sources.proc.files import node_name

#: How often bundles beyond the limits and files of ranks that are gone are removed; besides, after every incident.
_SWEEP_PERIOD_S = 300.0
#: Threads for what may block: pages, bundles. Python's own number grows with the node's cores, and memory with it.
_THREADS = 4
#: Settings that are read only at the start.
_FIXED = (
    "state_dir", "listen", "token_file", "logs", "engines", "with_values", "condition_values", "native_stacks", "exchange", "job",
)  # fmt: skip


class Service:
    """One agent's process.

    ``address``: where it listens if the settings do not say. ``root``: the pid above its jobs. ``control``: ends and
    restarts the command if the agent started it. ``manager``: pinged after each tick. ``events``: gets messages for
    programs. ``verbose``: print verdicts with all their evidence.
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
        verbose: bool = False,
    ) -> None:
        bound_heaps()
        collect_less_often()
        self.settings = settings
        self.console = console
        self.verbose = verbose
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
            receivers=self.push.metrics,
            ticked=self.manager.alive,
            on_peer_incident=self.on_peer_incident,
            tell_stand=self.tell_stand,
            histories=histories,
            acting=self.actor,
            secret=read_token(os.environ, "HANGWATCH_SECRET") or "",
        )
        self._server: RunningServer | None = None
        self._one_command = root is not None
        self._sweeping: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sweep_now = asyncio.Event()
        self._reported: set[str] = set()

    async def open(self) -> str:
        """Start to listen and take up what an earlier agent left. Returns the URL. Raises ``ServerError``."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "hangwatch"))
        page = WebPage(self.agent.state_dir, self.agent.live)
        health = Health(self.agent.healthz, self.agent.livez, self.agent.readyz)
        self._server = await start_server(*self.address, self.metrics, health, page, self.token)
        self._link()
        if self._one_command:
            self._ending = asyncio.create_task(self._end_left(), name="hangwatch left open")
        else:
            await self._take_up()
        self._sweeping = asyncio.create_task(self._sweep(), name="hangwatch sweep")
        self.feed.start()
        return self._server.url

    def _link(self) -> None:
        """Make the addresses in alerts, by the current settings."""
        if self._server is not None:
            external, runbooks = self.settings.external_url, self.settings.runbook_base_url
            local = is_loopback(self.address[0])
            self.agent.links = make_links(
                external, runbooks, node_name(), self._server.far_url, local=local, open=local and self.token is None
            )

    async def _take_up(self) -> None:
        """Find what an earlier agent left, before the first tick: what it reported is not reported again."""
        left = await asyncio.to_thread(find_left_open, self.agent.state_dir)
        for bundle in await asyncio.to_thread(_recently_handled, self.agent.state_dir):
            self.actor.recall(bundle)
        for one in left.waiting:
            self.actor.recall(one.path)
        self.agent.reopening = left

    async def _end_left(self) -> None:
        """End incidents that other commands left open and whose job is gone, quietly, without delaying ours."""
        left = await asyncio.to_thread(find_left_open, self.agent.state_dir)
        for one in left.take_ended():
            await close_left_open(one, self.agent.state_dir, announce_to_nobody, time.time_ns())

    async def close(self, *, over: bool) -> None:
        """End everything.

        ``over``: the jobs have ended, and their incidents with them; else the next agent finds the incidents open.
        """
        await self.agent.close(over=over)
        await self.actor.settle()
        await self.release()

    async def release(self) -> None:
        """Free what ``open`` took, even if the rest failed."""
        for task in (self._sweeping, self._ending):
            if task is not None:
                task.cancel()
        await asyncio.gather(self.push.close(), self.feed.close(CLOSE_GRACE_S))
        if self._server is not None:
            await self._server.stop()

    async def reload(self, settings: Settings) -> tuple[str, ...]:
        """Apply other settings from now on; return the names of those that only a restart changes.

        Raises ``PushError``; nothing has changed then.
        """
        targets = find_targets(settings.receivers)
        before, self.settings = self.settings, settings
        self.actor.settings = settings
        self.voice.configure(settings.log)
        self.agent.set_patience(settings.stall_after_s, settings.act_after_s)
        self._link()
        if settings.receivers != before.receivers:
            old, self.push = self.push, Push(targets)
            old_feed, self.feed = self.feed, MetricsFeed(open_endpoints(targets), self.metrics.families)
            self.feed.start()
            for record in self.agent.open_incidents():
                self.push.notify(record.incident, record.path, self.agent.links)
            await asyncio.gather(old.close(), old_feed.close(CLOSE_GRACE_S))
        self._sweep_now.set()
        return tuple(name for name in _FIXED if getattr(before, name) != getattr(settings, name))

    async def announce(self, incident: Incident, path: Path | None) -> None:
        """Tell the readers of our output and the receivers, and act."""
        self.push.notify(incident, path, self.agent.links)
        self._say(incident, path)
        self.actor.consider(incident, path)

    async def on_peer_incident(self, incident: Incident, path: Path | None) -> None:
        """Tell the readers of our output of an incident that another node owns.

        That node tells the receivers and runs commands; this one takes only actions that every node takes.
        """
        self._say(incident, path)
        self._consider_of_peer(incident, path)

    async def tell_stand(self, incident: Incident, path: Path | None, owned: bool) -> None:
        """Act once the second look at an incident has passed; until then, tell whoever reads our output how it stands."""
        look, text = incident.second_look, describe_second_look(incident)
        if text and look is not None and not look.passed:
            self.voice.say(
                text, event="second_look", incident=incident.id, job=incident.job.id, until=look.until or None
            )
        if owned:
            self.actor.consider(incident, path)
        else:
            self._consider_of_peer(incident, path)

    def _consider_of_peer(self, incident: Incident, path: Path | None) -> None:
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
            how = f"incident {incident.id} is over: {self._how_it_ended(incident)}"
            self.voice.say(how, event="incident_over", **fields, **where, **ranks)
            self._sweep_now.set()
            return
        event = "incident_updated" if incident.id in self._reported else "incident_confirmed"
        self._reported.add(incident.id)
        if not self.voice.json:
            print_verdict(incident, self.console, bundle=path, page=self._page(incident), verbose=self.verbose)
        self.voice.note(verdict.summary, event=event, **fields, **where, **ranks)

    def _page(self, incident: Incident) -> str:
        """Return the incident's address on the page; empty if the job is about to end, and the page with it."""
        verdict = incident.verdict
        soon = verdict.proven and self.settings.on_hang.kind not in {"report", "exec"}
        ends = self._one_command and (verdict.kind == "failed" or soon)
        return "" if ends else self.agent.links.find_incident(incident.id)

    def _how_it_ended(self, incident: Incident) -> str:
        action = self.actor.taken_for(incident)
        if action is not None:
            return f"hangwatch has {action.done}"
        if not ranks_of(incident, self.known_ranks(incident.job.id)):
            return "its ranks have ended"
        ends = {
            "silent_failure": "the loss is normal again",
            "slow": "nothing slows the job down any more",
            "straggler": "the ranks go on",
        }
        return ends.get(incident.verdict.kind, "the hang resolved")

    def _note_job(self, job: Job) -> None:
        fields = {"job": job.id, "world_size": job.world_size, "launcher": job.launcher, "command": job.command}
        self.voice.note(f"found job {job.id}", event="job_found", **fields)

    async def _complete(self, incident: Incident) -> None:
        for watch in self.agent.watches():
            if watch.incidents.record is not None and watch.incidents.record.id == incident.id:
                await watch.incidents.completed_everywhere()

    def known_ranks(self, job_id: str | None = None) -> list[RankIdentity]:
        """Return the processes of a job on this node as last seen; None: of all jobs."""
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


def _recently_handled(state_dir: Path) -> list[Path]:
    """Return bundles with an action within the last hour, which count for the limit."""
    since_s = time.time() - 3600.0
    found = state_dir.absolute().glob(f"incidents/*/{AUDIT}")
    return [file.parent for file in found if file.stat().st_mtime >= since_s]
