"""What is done when an incident is confirmed: report, stop the job, raise in its ranks, or run a command of the user's.

``decide`` is pure; ``Actor`` takes the action, after the capture is on disk, once an incident, whichever agent confirmed it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from hangwatch.agent.incidents.raising import Raised
from hangwatch.config.settings import Policy, Settings
from hangwatch.model.incident import HANG_KINDS, Incident, Verdict
from hangwatch.outputs.push.audit import ActionTaken, read_audit, record_action

log = logging.getLogger("hangwatch")

_HOUR_S = 3600.0
_ACTIONS: Mapping[str, Literal["stop", "raise"]] = {"stop": "stop", "raise": "raise"}
_WOULD = {"stop": "end the job", "raise": "raise HangDetected in every rank"}
#: At the end of the agent, commands of the user's that still run are waited for this long.
SETTLE_S = 30.0


@dataclass(frozen=True)
class Decision:
    """Whether to act; ``why`` not, in words, empty where nothing was asked for."""

    act: bool
    why: str = ""


def policy_for(settings: Settings, verdict: Verdict) -> tuple[str, Policy]:
    """The policy for a verdict's kind, with the name by which users know it; one that reports where there is none."""
    if verdict.kind in HANG_KINDS:
        return "on-hang", settings.on_hang
    if verdict.kind == "silent_failure":
        return "on-silent-failure", settings.on_silent_failure
    return "", Policy()


def decide(policy: Policy, verdict: Verdict, taken_s: Collection[float], now_s: float) -> Decision:
    """Whether the policy asks for its action now. ``taken_s``: when actions were taken before, in the clock of ``now_s``."""
    if policy.kind == "report":
        return Decision(False)
    if not policy.reaches(verdict.severity):
        return Decision(False, f"the incident is {verdict.severity}, and min_severity is {policy.min_severity}")
    if policy.only_proven and not verdict.proven:
        return Decision(False, "it is not proven, and only_proven is set")
    if sum(now_s - at_s < _HOUR_S for at_s in taken_s) >= policy.limit_per_hour:
        return Decision(
            False, f"limit_per_hour is {policy.limit_per_hour}, and that many were taken within the last hour"
        )
    return Decision(True)


def hook_environment(incident: Incident, path: Path | None) -> dict[str, str]:
    """What the user's command gets: ``HANGWATCH_INCIDENT`` is the bundle's directory, the rest the verdict's fields."""
    verdict = incident.verdict
    return {
        "HANGWATCH_INCIDENT": str(path) if path is not None else "",
        "HANGWATCH_INCIDENT_ID": incident.id,
        "HANGWATCH_JOB": incident.job.id,
        "HANGWATCH_KIND": verdict.kind,
        "HANGWATCH_PROVEN": "1" if verdict.proven else "0",
        "HANGWATCH_SEVERITY": verdict.severity,
        "HANGWATCH_CAUSE": verdict.cause.id if verdict.cause else "unknown",
        "HANGWATCH_CULPRITS": ",".join(map(str, verdict.culprit_ranks)),
        "HANGWATCH_SUMMARY": verdict.summary.replace("\0", ""),
    }


async def run_hook(command: str, incident: Incident, path: Path | None) -> int:
    """Run the user's command by the shell, without our standard input; returns its exit status."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **hook_environment(incident, path)}
    )
    return await process.wait()


async def _raise_in_no_rank(incident: Incident) -> Raised:
    del incident  # there is nobody who could
    return Raised()


@dataclass
class Actor:
    """Takes the actions that the settings ask for.

    ``prepare`` completes the bundle of an incident, ``stop`` ends its job and says how that went, ``say`` prints a
    line of the agent's own, ``raise_in`` raises the verdict in its ranks. ``settings`` may be replaced at any time.
    """

    settings: Settings
    prepare: Callable[[Incident], Awaitable[None]]
    stop: Callable[[Incident], Awaitable[str]]
    say: Callable[[str], None]
    raise_in: Callable[[Incident], Awaitable[Raised]] = _raise_in_no_rank
    taken_s: deque[float] = field(default_factory=lambda: deque(maxlen=1000))
    _acted: set[str] = field(default_factory=set)
    _over: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def recall(self, bundle: Path) -> None:
        """Take in what an agent before this one has done about an incident."""
        actions = read_audit(bundle).actions
        self.taken_s.extend(one.at_s for one in actions if not one.dry_run)
        if actions:
            self._acted.add(bundle.name)

    def consider(self, incident: Incident, path: Path | None) -> None:
        """Act on an incident that is confirmed, in a task of its own; an incident that is over is no longer acted on."""
        if incident.ended_at is not None:
            self._over.add(incident.id)
            self._acted.discard(incident.id)
            return
        name, policy = policy_for(self.settings, incident.verdict)
        if not name or incident.id in self._acted:
            return
        self._acted.add(incident.id)
        now_s = time.time()
        decision = decide(policy, incident.verdict, self.taken_s, now_s)
        if not decision.act and decision.why:
            self.say(f"{name} {policy.kind} is not done: {decision.why}")
        if decision.act and not policy.dry_run:
            self.taken_s.append(now_s)
        task = asyncio.create_task(self._act(name, policy, decision.act, incident, path, now_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for actions that are under way, but not for ever."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        for task in self._tasks:
            task.cancel()
        self._over.clear()

    async def _act(
        self, name: str, policy: Policy, act: bool, incident: Incident, path: Path | None, at_s: float
    ) -> None:
        await self.prepare(incident)
        if not act or policy.kind == "report":
            return
        taken = ActionTaken(at_s, _ACTIONS.get(policy.kind, "exec"), policy.dry_run, "begun")
        if policy.dry_run:
            what = _WOULD.get(policy.kind, f"run: {policy.command}")
            outcome = f"would {what} (dry run)"
        elif incident.id in self._over:
            outcome = "not done: the incident was over before"
        else:
            if path is not None:
                record_action(path, taken)
            outcome = await self._take(name, policy, incident, path)
        self.say(f"{name} {policy.kind}: {outcome}")
        if path is not None:
            record_action(path, msgspec.structs.replace(taken, outcome=outcome))

    async def _take(self, name: str, policy: Policy, incident: Incident, path: Path | None) -> str:
        if policy.kind == "stop":
            kept = "the bundle is complete" if path is not None else "its bundle could not be written"
            self.say(f"ending the job ({name} stop); {kept}")
            return await self.stop(incident)
        if policy.kind == "raise":
            raised = await self.raise_in(incident)
            return raised.in_words() if not raised.left else await self._fall_back(name, incident, raised)
        status = await run_hook(policy.command, incident, path)
        return f"the command ended with status {status}"

    async def _fall_back(self, name: str, incident: Incident, raised: Raised) -> str:
        """Some rank could not be woken: the job is ended instead."""
        # Where some were woken the others wait in vain, whatever has become of the incident.
        if incident.id in self._over and not raised.ranks:
            return f"{raised.in_words()}; the incident is over"
        self.say(f"{name} raise: {raised.in_words()}; ending the job instead")
        return f"{raised.in_words()}; {await self.stop(incident)}"
