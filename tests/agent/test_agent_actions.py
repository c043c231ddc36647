"""When an action is taken, what it is given, and that it is taken once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from bundles_on_disk import make_bundle
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.incidents.actions import Actor, Decision, decide, policy_for
from hangwatch.agent.incidents.raising import Raised
from hangwatch.config.settings import Policy, Settings
from hangwatch.model.incident import Incident, Kind, SecondLook, Verdict
from hangwatch.outputs.push.audit import read_audit

Severity = Literal["info", "warning", "critical"]


def verdict(kind: Kind = "deadlock", *, proven: bool = True, severity: Severity = "critical") -> Verdict:
    """A verdict of which only this matters."""
    return Verdict(kind=kind, proven=proven, severity=severity, summary="ranks wait for each other")


@pytest.mark.parametrize(
    ("policy", "found", "acts", "why"),
    [
        (Policy(), verdict(), False, ""),
        (Policy(action="stop"), verdict(), True, ""),
        (
            Policy(action="stop", min_severity="critical"),
            verdict(severity="warning"),
            False,
            "min_severity is critical",
        ),
        (Policy(action="stop", min_severity="warning"), verdict(severity="critical"), True, ""),
        (Policy(action="stop", only_proven=True), verdict("stall", proven=False), False, "not proven"),
        (Policy(action="stop", limit_per_hour=0), verdict(), False, "limit_per_hour is 0"),
    ],
)
def test_the_policy_decides(policy: Policy, found: Verdict, acts: bool, why: str) -> None:
    """Severity, proof and the limit each keep an action from being taken, and say so; a report needs no reason."""
    decision = decide(policy, found, (), 0.0)
    assert decision.act == acts
    assert why in decision.why
    assert bool(decision.why) == bool(why)


@given(st.lists(st.floats(0.0, 86400.0), max_size=40), st.integers(0, 10))
def test_no_hour_has_more_actions_than_its_limit(asked_s: list[float], limit: int) -> None:
    """Whenever actions are asked for, no hour sees more than the limit."""
    taken: list[float] = []
    for now_s in sorted(asked_s):
        if decide(Policy(action="stop", limit_per_hour=limit), verdict(), taken, now_s).act:
            taken.append(now_s)
    for start_s in taken:
        assert sum(start_s <= at_s < start_s + 3600.0 for at_s in taken) <= limit


def test_warnings_are_never_acted_on() -> None:
    """A straggler has no policy, whatever is set; a silent failure has its own."""
    settings = Settings(on_hang=Policy(action="stop"), on_silent_failure=Policy(action="exec:true"))
    assert policy_for(settings, verdict("straggler")) == ("", Policy())
    assert policy_for(settings, verdict("silent_failure"))[1].command == "true"
    assert {policy_for(settings, verdict(kind))[0] for kind in ("deadlock", "stall", "rank_lost")} == {"on-hang"}


class Watched:
    """An actor, what it said, and whose jobs it ended."""

    def __init__(self, policy: Policy) -> None:
        self.said: list[str] = []
        self.prepared: list[str] = []
        self.stopped: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.restarted: list[str] = []
        self.why_no_restart_says = ""
        self.has_restarts_left = False
        self.actor = Actor(Settings(on_hang=policy), self._prepare, self, self._say)

    def _say(self, text: str, **fields: object) -> None:
        del fields  # for programs
        self.said.append(text)

    async def _prepare(self, incident: Incident) -> None:
        await self.hold.wait()
        self.prepared.append(incident.id)

    async def stop(self, incident: Incident) -> str:
        """Note it."""
        self.stopped.append(incident.id)
        return "3 processes ended"

    async def restart(self, incident: Incident) -> str:
        """Note it."""
        self.restarted.append(incident.id)
        return "2 processes ended"

    def why_no_restart(self, incident: Incident) -> str:
        """What the test says."""
        del incident
        return self.why_no_restart_says

    def launcher_restarts(self, incident: Incident) -> bool:
        """What the test says."""
        del incident
        return self.has_restarts_left


@pytest.mark.asyncio
@pytest.mark.usefixtures("real")
async def test_a_command_gets_the_incident(tmp_path: Path) -> None:
    """The bundle's path and the verdict's fields are in its environment, and how it ended is kept in the bundle."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action=f"exec:env | grep ^HANGWATCH_ > {tmp_path}/told; exit 3"))
    watched.actor.consider(incident, path)
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    reported = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines())
    assert reported["HANGWATCH_INCIDENT"] == str(path)
    assert (reported["HANGWATCH_INCIDENT_ID"], reported["HANGWATCH_KIND"], reported["HANGWATCH_PROVEN"]) == (
        "one",
        "deadlock",
        "1",
    )
    assert reported["HANGWATCH_CAUSE"] == "group-order-inversion"
    assert reported["HANGWATCH_SUMMARY"] == incident.verdict.summary
    (taken,) = read_audit(path).actions
    assert (taken.action, taken.dry_run, taken.outcome) == ("exec", False, "the command ended with status 3")
    assert watched.prepared == ["one"]


@pytest.mark.usefixtures("real")
@pytest.mark.asyncio
async def test_text_of_a_job_is_no_part_of_the_command(tmp_path: Path) -> None:
    """A job whose name and verdict are shell code: the command gets them as they are, and nothing of them is run."""
    code = f"'\"; touch {tmp_path}/run; $(touch {tmp_path}/run) `touch {tmp_path}/run`\n#"
    incident, path = make_bundle(tmp_path, "one", ended=False)
    verdict = msgspec.structs.replace(incident.verdict, summary=code)
    hostile = msgspec.structs.replace(incident, verdict=verdict, job=msgspec.structs.replace(incident.job, id=code))
    watched = Watched(Policy(action=f'exec:printf "%s|%s" "$HANGWATCH_SUMMARY" "$HANGWATCH_JOB" > {tmp_path}/told'))
    watched.actor.consider(hostile, path)
    await watched.actor.settle()
    assert (tmp_path / "told").read_text() == f"{code}|{code}"
    assert not (tmp_path / "run").exists()


@pytest.mark.asyncio
async def test_a_dry_run_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    """The job is not ended, the sentence says that it would have been, and the bundle remembers a rehearsal."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="stop", dry_run=True))
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert watched.stopped == []
    assert watched.said == ["on-hang stop: would end the job (dry run)"]
    assert read_audit(path).actions[0].dry_run
    assert not watched.actor.taken_s


@pytest.mark.asyncio
async def test_a_restart_is_an_action_of_its_own(tmp_path: Path) -> None:
    """The job is restarted and not stopped, and the bundle says so."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="restart"))
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert (watched.restarted, watched.stopped) == (["one"], [])
    (taken,) = read_audit(path).actions
    assert (taken.action, taken.outcome) == ("restart", "2 processes ended")


@pytest.mark.asyncio
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("used_up", "action"), [("", "restart"), ("all restarts are used up", "stop")])
async def test_a_command_is_run_beside_a_restart(tmp_path: Path, used_up: str, action: str) -> None:
    """It knows what is done to the job, which does not wait for it; what is to follow the restart can."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    (tmp_path / "go").touch()
    command = f'echo "$HANGWATCH_ACTION" > {tmp_path}/told; while [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 4'
    watched = Watched(Policy(action=f"restart,exec:{command}"))
    watched.why_no_restart_says = used_up
    watched.actor.consider(incident, path)
    while not (watched.restarted or watched.stopped) or not (tmp_path / "told").exists():
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(watched.actor.commands_ended())
    await asyncio.sleep(0)
    assert not waiting.done()
    (tmp_path / "go").unlink()
    await waiting
    await watched.actor.settle()
    assert (watched.restarted, watched.stopped) == ((["one"], []) if action == "restart" else ([], ["one"]))
    assert (tmp_path / "told").read_text() == f"{action}\n"
    (taken,) = read_audit(path).actions
    assert taken.action == action
    assert taken.outcome.endswith(" ended; the command ended with status 4")


@pytest.mark.asyncio
async def test_the_command_of_another_nodes_incident_is_that_nodes(tmp_path: Path) -> None:
    """Its agent runs it; here the job is restarted alone."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action=f"restart,exec:touch {tmp_path}/told"))
    watched.actor.consider(incident, path, owned=False)
    await watched.actor.settle()
    assert watched.restarted == ["one"]
    assert not (tmp_path / "told").exists()
    assert read_audit(path).actions[0].outcome == "2 processes ended"


@pytest.mark.asyncio
async def test_a_dry_run_names_action_and_command(tmp_path: Path) -> None:
    """Neither is done."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="stop,exec:drain", dry_run=True))
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert (watched.stopped, watched.said) == ([], ["on-hang stop: would end the job, and run: drain (dry run)"])


@pytest.mark.parametrize(
    "action",
    ["exec", "restart,exec", "restart,exec: ", "restart:true", "report,exec:true", "exec,exec:true", "stop,raise:x"],
)
def test_a_command_is_beside_what_is_done_to_the_job(action: str) -> None:
    """It needs an action on the ranks before it, and itself."""
    assert (Policy(action="raise,exec:a,b:c").kind, Policy(action="raise,exec:a,b:c").command) == ("raise", "a,b:c")
    with pytest.raises(ValueError, match="is none of report, stop, restart, raise, exec:CMD, restart,exec:CMD"):
        Policy(action=action)


@pytest.mark.asyncio
async def test_a_job_that_cannot_be_restarted_is_stopped(tmp_path: Path) -> None:
    """The log and the bundle have the reason."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="restart"))
    watched.why_no_restart_says = "all restarts are used up"
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert (watched.restarted, watched.stopped) == ([], ["one"])
    assert watched.said[0] == "on-hang restart: the job is stopped instead: all restarts are used up"
    (taken,) = read_audit(path).actions
    assert taken.action == "stop"
    assert taken.outcome == "instead of a restart (all restarts are used up): 3 processes ended"


@pytest.mark.asyncio
async def test_an_incident_that_is_over_meanwhile_is_not_acted_on(tmp_path: Path) -> None:
    """What was waited for came while the bundle was being completed: the job runs, and is left alone."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="stop"))
    watched.hold.clear()
    watched.actor.consider(incident, path)
    await asyncio.sleep(0)
    watched.actor.consider(msgspec.structs.replace(incident, ended_at="2026-05-28T21:00:00.000Z"), path)
    watched.hold.set()
    await watched.actor.settle()
    assert watched.stopped == []
    assert watched.said == ["on-hang stop: not done: the incident ended first"]


@pytest.mark.asyncio
async def test_an_agent_that_is_started_again_acts_neither_twice_nor_too_often(tmp_path: Path) -> None:
    """The next agent recalls from the bundle that the job of one incident was ended, and counts that within its limit."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    other, other_path = make_bundle(tmp_path, "two", ended=False)
    policy = Policy(action="stop", limit_per_hour=1)
    first = Watched(policy)
    first.actor.consider(incident, path)
    await first.actor.settle()
    assert first.stopped == ["one"]
    assert read_audit(path).actions[0].outcome == "3 processes ended"

    second = Watched(policy)
    second.actor.recall(path)
    second.actor.consider(incident, path)
    second.actor.consider(other, other_path)
    await second.actor.settle()
    assert second.stopped == []
    assert len(second.said) == 1
    assert "limit_per_hour is 1" in second.said[0]


@pytest.mark.asyncio
async def test_a_stall_that_is_called_a_straggler_first_is_acted_on_when_it_is_one(tmp_path: Path) -> None:
    """A warning is no reason to act, and does not keep the same incident from being acted on when it has become a hang."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    slow = msgspec.structs.replace(
        incident, verdict=msgspec.structs.replace(incident.verdict, kind="straggler", severity="warning", proven=False)
    )
    watched = Watched(Policy(action="stop"))
    watched.actor.consider(slow, path)
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert watched.stopped == ["one"]
    assert watched.actor.taken_s[0] <= time.time()


@pytest.mark.asyncio
async def test_a_hang_is_acted_on_once_the_second_look_has_passed(tmp_path: Path) -> None:
    """The report asks for no action yet, and it is taken once."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    look = SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", "end the job")
    watched = Watched(Policy(action="stop"))
    watched.actor.consider(msgspec.structs.replace(incident, second_look=look), path)
    await watched.actor.settle()
    assert (watched.stopped, watched.prepared, watched.said) == ([], [], [])
    passed = msgspec.structs.replace(incident, second_look=msgspec.structs.replace(look, passed=True))
    watched.actor.consider(passed, path)
    watched.actor.consider(passed, path)
    await watched.actor.settle()
    assert watched.stopped == ["one"]


@pytest.mark.parametrize(
    ("policy", "plan"),
    [
        (Policy(), ""),
        (Policy(action="stop"), "end the job"),
        (Policy(action="exec:drain"), "run the command"),
        (Policy(action="stop", dry_run=True), ""),
        (Policy(action="stop", only_proven=True), ""),
    ],
)
def test_what_is_to_be_done_is_said_before(policy: Policy, plan: str) -> None:
    """Only what will be done about a stall, if it stands."""
    assert Watched(policy).actor.plan(verdict("stall", proven=False)) == plan


def test_only_what_asked_and_acted_is_a_decision() -> None:
    """A report is no action that was kept back."""
    assert decide(Policy(), verdict(), (), 0.0) == Decision(False, "")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("raised", "over", "stopped", "outcome"),
    [
        (Raised(ranks=(0, 1)), False, False, "raised in ranks 0-1"),
        (Raised(ended=(0, 1)), False, False, "ranks 0-1 ended before reporting whether it raised"),
        (
            Raised(ranks=(0,), ended=(1,)),
            False,
            False,
            "raised in rank 0; rank 1 ended before reporting whether it raised",
        ),
        (
            Raised(ranks=(0,), left={1: "it is stopped"}),
            False,
            True,
            "raised in rank 0; not in rank 1: it is stopped; 3 processes ended",
        ),
        (
            Raised(ranks=(0,), left={1: "it is stopped"}),
            True,
            True,
            "raised in rank 0; not in rank 1: it is stopped; 3 processes ended",
        ),
        (
            Raised(left={0: "refused", 1: "refused"}),
            True,
            False,
            "raised in no rank; not in rank 0: refused; not in rank 1: refused; the incident is over",
        ),
    ],
    ids=["all", "all-ended", "ended", "left", "left-though-over", "recovered"],
)
async def test_a_job_of_which_a_rank_could_not_be_woken_is_ended(
    tmp_path: Path, raised: Raised, over: bool, stopped: bool, outcome: str
) -> None:
    """Where some were woken the others wait in vain; a job that goes on, and in which nothing was raised, is left alone."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="raise"))

    async def raise_in(found: Incident) -> Raised:
        if over:
            watched.actor.consider(msgspec.structs.replace(found, ended_at="2026-05-28T21:00:00.000Z"), path)
        return raised

    watched.actor.raise_in = raise_in
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert watched.stopped == (["one"] if stopped else [])
    (taken,) = read_audit(path).actions
    assert (taken.action, taken.outcome) == ("raise", outcome)


@pytest.mark.asyncio
async def test_a_hang_that_comes_back_is_acted_on(tmp_path: Path) -> None:
    """The same wait is the same incident, though it was over for a moment."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="stop"))
    watched.actor.consider(msgspec.structs.replace(incident, ended_at="2026-05-28T21:00:00.000Z"), path)
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert watched.stopped == ["one"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("why_not", "restarted"), [("", ["one"]), ("all restarts are used up", [])], ids=["restarts", "used-up"]
)
async def test_a_launcher_with_restarts_left_keeps_them_where_a_rank_could_not_be_woken(
    tmp_path: Path, why_not: str, restarted: list[str]
) -> None:
    """It restarts all ranks once one has failed: only the ranks are ended then, unless a restart would not help."""
    incident, path = make_bundle(tmp_path, "one", ended=False)
    watched = Watched(Policy(action="raise"))
    watched.has_restarts_left, watched.why_no_restart_says = True, why_not

    async def raise_in(found: Incident) -> Raised:
        del found
        return Raised(ranks=(0,), left={1: "it is stopped"})

    watched.actor.raise_in = raise_in
    watched.actor.consider(incident, path)
    await watched.actor.settle()
    assert watched.restarted == restarted
    assert watched.stopped == ([] if restarted else ["one"])
    (taken,) = read_audit(path).actions
    ended = "2 processes ended" if restarted else "3 processes ended"
    assert taken.outcome == f"raised in rank 0; not in rank 1: it is stopped; {ended}"


def test_nothing_is_raised_for_a_silent_failure() -> None:
    """Nobody waits there, and the settings say so."""
    with pytest.raises(ValueError, match=r"on_silent_failure\.action: 'raise' is for hangs alone"):
        Settings(on_silent_failure=Policy(action="raise"))
