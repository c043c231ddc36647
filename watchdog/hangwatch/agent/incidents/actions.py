"""Acts on an incident: reports it, stops or restarts the job, raises in its ranks, runs the user's command.

``decide`` is pure; ``Actor`` takes the action once per incident, after the capture is on disk, whichever agent confirmed the
hang.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hangwatch.agent.host.control import JobControl
from hangwatch.agent.incidents.history import why_certain_to_recur
from hangwatch.agent.incidents.raising import Raised
from hangwatch.config.settings import ACTIONS, Action, Policy, Settings
from hangwatch.model.incident import HANG_KINDS, Incident, Verdict
from hangwatch.outputs.push.audit import ActionTaken, read_audit, record_action

_HOUR_S = 3600.0
#: At the end of the agent, commands of the user's that still run are waited for this long.
SETTLE_S = 30.0


@dataclass(frozen=True)
class Decision:
    """Whether to act; ``why`` not, in words, empty where nothing was asked for."""

    act: bool
    why: str = ""


def policy_for(settings: Settings, verdict: Verdict) -> tuple[str, Policy]:
    """Return the option that decides about a verdict of this kind, and its policy; ``""`` and a report if no option does."""
    if verdict.kind in HANG_KINDS:
        return "on-hang", settings.on_hang
    if verdict.kind == "silent_failure":
        return "on-silent-failure", settings.on_silent_failure
    return "", Policy()


def decide(policy: Policy, verdict: Verdict, taken_s: Collection[float], now_s: float) -> Decision:
    """Return whether the policy asks for its action now, and if not, why.

    ``taken_s``: when earlier actions were taken, on the same clock as ``now_s``.
    """
    if policy.kind == "report":
        return Decision(False)
    if not policy.reaches(verdict.severity):
        return Decision(False, f"the incident is {verdict.severity}, and min_severity is {policy.min_severity}")
    if policy.only_proven and not verdict.proven:
        return Decision(False, "the hang is not proven, and only_proven is set")
    if sum(now_s - at_s < _HOUR_S for at_s in taken_s) >= policy.limit_per_hour:
        return Decision(
            False, f"limit_per_hour is {policy.limit_per_hour}, and that limit has been reached in the last hour"
        )
    return Decision(True)


def why_stop_instead(incident: Incident, control: JobControl) -> str:
    """Return why to stop a job instead of restarting it: a restart would not help, or is impossible. Empty if neither."""
    certain = why_certain_to_recur(incident.history) if incident.history is not None else ""
    return certain or control.why_no_restart(incident)


def hook_environment(incident: Incident, path: Path | None, action: str = "exec") -> dict[str, str]:
    """Return the environment variables of the user's command: where the bundle is, and the verdict's fields.

    ``action``: the action taken as well; ``exec`` if the command is the only one.
    """
    verdict, history = incident.verdict, incident.history
    return {
        "HANGWATCH_INCIDENT": str(path) if path is not None else "",
        "HANGWATCH_INCIDENT_ID": incident.id,
        "HANGWATCH_JOB": incident.job.id,
        "HANGWATCH_KIND": verdict.kind,
        "HANGWATCH_PROVEN": "1" if verdict.proven else "0",
        "HANGWATCH_SEVERITY": verdict.severity,
        "HANGWATCH_CAUSE": verdict.cause.id if verdict.cause else "unknown",
        "HANGWATCH_CULPRITS": ",".join(verdict.names.get(rank, str(rank)) for rank in verdict.culprit_ranks),
        "HANGWATCH_SUMMARY": verdict.summary.replace("\0", ""),
        "HANGWATCH_ACTION": action,
        "HANGWATCH_HANGS": str(history.number) if history is not None else "",
        "HANGWATCH_RESTARTS": str(history.restarts) if history is not None else "",
        "HANGWATCH_EXCLUDE_NODES": ",".join(history.exclude_nodes) if history is not None else "",
    }


async def run_hook(command: str, incident: Incident, path: Path | None, action: str) -> str:
    """Run the user's command by the shell, without our standard input; returns how it ended."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **hook_environment(incident, path, action)}
    )
    return f"the command ended with status {await process.wait()}"


def _note_nothing(incident: Incident) -> None:
    del incident


async def _raise_in_no_rank(incident: Incident) -> Raised:
    del incident  # no rank can be asked
    return Raised()


@dataclass
class Actor:
    """Takes the actions that the settings ask for.

    ``prepare`` completes the bundle of an incident, ``control`` ends and restarts its job, ``say`` prints a line of the agent's
    own (``Voice.say``). ``restarted`` is called when a job was restarted, ``raise_in`` raises the verdict in its ranks.
    ``settings`` may be replaced at any time.
    """

    settings: Settings
    prepare: Callable[[Incident], Awaitable[None]]
    control: JobControl
    say: Callable[..., None]
    restarted: Callable[[Incident], None] = _note_nothing
    raise_in: Callable[[Incident], Awaitable[Raised]] = _raise_in_no_rank
    taken_s: deque[float] = field(default_factory=lambda: deque(maxlen=1000))
    _acted: set[str] = field(default_factory=set)
    _over: set[str] = field(default_factory=set)
    _taken: dict[str, Action] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _commands: set[asyncio.Task[str]] = field(default_factory=set)

    def recall(self, bundle: Path) -> None:
        """Take in what an agent before this one has done about an incident."""
        actions = read_audit(bundle).actions
        self.taken_s.extend(one.at_s for one in actions if not one.dry_run)
        if actions:
            self._acted.add(bundle.name)

    def plan(self, verdict: Verdict) -> str:
        """Return what is to be done about a hang, in words; empty where nothing is."""
        _, policy = policy_for(self.settings, verdict)
        if policy.dry_run or not decide(policy, verdict, self.taken_s, time.time()).act:
            return ""
        action = ACTIONS[policy.kind]
        return f"{action.effect} the command" if action.command else action.effect

    def consider(self, incident: Incident, path: Path | None, *, owned: bool = True) -> None:
        """Act on an incident once it may be, in a task of its own; an incident that is over is no longer acted on.

        ``owned``: no other node runs the command that is to be run beside the action.
        """
        if incident.ended_at is not None:
            self._over.add(incident.id)
            self._acted.discard(incident.id)
            return
        if incident.id in self._over:  # the same wait, by its onset, is reported again
            self._over.discard(incident.id)
            self._taken.pop(incident.id, None)
        name, policy = policy_for(self.settings, incident.verdict)
        if not name or incident.id in self._acted or not incident.may_be_acted_on:
            return
        self._acted.add(incident.id)
        now_s = time.time()
        decision = decide(policy, incident.verdict, self.taken_s, now_s)
        if not decision.act and decision.why:
            self.say(f"{name} {policy.kind} was not taken: {decision.why}")
        if decision.act and not policy.dry_run:
            self.taken_s.append(now_s)
        if not owned:
            policy = msgspec.structs.replace(policy, action=policy.kind)
        task = asyncio.create_task(self._act(name, policy, decision.act, incident, path, now_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def taken_for(self, incident: Incident) -> Action | None:
        """Return what was done to the job of an incident; None if nothing was, or a command of the user's was run alone."""
        return self._taken.get(incident.id)

    async def commands_ended(self) -> None:
        """Wait for commands of the user's that run, but not for ever."""
        if self._commands:
            await asyncio.wait(self._commands, timeout=SETTLE_S)

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
        kind, over = policy.kind, incident.id in self._over
        why = why_stop_instead(incident, self.control) if kind == "restart" and not over else ""
        if why:
            self.say(f"{name} restart: the job is stopped instead: {why}")
            kind = "stop"
        taken = ActionTaken(at_s, kind, policy.dry_run, "begun")
        if policy.dry_run:
            what = ACTIONS[kind].effect
            if policy.command:
                what += f"{'' if ACTIONS[kind].command else ', and run'}: {policy.command}"
            outcome = f"would {what} (dry run)"
        elif over:
            outcome = "not done: the incident ended first"
        else:
            if path is not None:
                record_action(path, taken)
            if not ACTIONS[kind].command:
                self._taken[incident.id] = ACTIONS[kind]
                kept = "the bundle is complete" if path is not None else "the bundle could not be written"
                self.say(f"{name} {kind}: about to {ACTIONS[kind].effect}; {kept}")
            outcome = await self._take_with_command(kind, policy, incident, path)
        fields = {"incident": incident.id, "job": incident.job.id, "action": kind, "outcome": outcome}
        # A launcher prints a traceback of its own when it is ended, below the verdict.
        ends = not (policy.dry_run or over or ACTIONS[kind].command)
        reason = f". The reason: {incident.verdict.summary}" if ends else ""
        self.say(f"{name} {kind}: {outcome}{reason}", event="action_taken", **fields, dry_run=policy.dry_run)
        if path is not None:
            instead = f"instead of a restart ({why}): " if why else ""
            record_action(path, msgspec.structs.replace(taken, outcome=instead + outcome))

    async def _take_with_command(self, kind: str, policy: Policy, incident: Incident, path: Path | None) -> str:
        """Do it, and run the command meanwhile: other nodes do not wait for one. Returns how both went."""
        if not policy.command:
            return await self._take(kind, incident)
        command = asyncio.create_task(run_hook(policy.command, incident, path, kind))
        self._commands.add(command)
        command.add_done_callback(self._commands.discard)
        if ACTIONS[kind].command:
            return await command
        return f"{await self._take(kind, incident)}; {await command}"

    async def _take(self, kind: str, incident: Incident) -> str:
        """Do it to the job; returns how that went."""
        if kind == "stop":
            return await self.control.stop(incident)
        if kind == "restart":
            # Ranks that are gone already were ended with those of other nodes.
            self.restarted(incident)
            return await self.control.restart(incident)
        raised = await self.raise_in(incident)
        return raised.in_words() if not raised.left else await self._fall_back(incident, raised)

    async def _fall_back(self, incident: Incident, raised: Raised) -> str:
        """Restart the job if its launcher would, else stop it, because some rank did not raise. Return what was done."""
        # Where some were woken the others wait in vain, whatever has become of the incident.
        if incident.id in self._over and not raised.ranks:
            return f"{raised.in_words()}; the incident is over"
        # A launcher with restarts left is about to use one, as some ranks have failed: ending it too would keep it from that.
        restarts = self.control.launcher_restarts(incident) and not why_stop_instead(incident, self.control)
        kind = "restart" if restarts else "stop"
        self._taken[incident.id] = ACTIONS[kind]
        self.say(f"on-hang raise: {raised.in_words()}; about to {ACTIONS[kind].effect} instead")
        return f"{raised.in_words()}; {await self._take(kind, incident)}"
