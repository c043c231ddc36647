"""Whether a hung job is restarted, by whom and how soon, and what is known of the hangs before."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest
from bundles_on_disk import make_bundle, recorded_capture

from benchmarks.recovery import Step, find_recovery
from hangwatch.agent.host.control import count_restarts_left, ranks_of
from hangwatch.agent.host.supervisor import pause_before
from hangwatch.agent.incidents.actions import hook_environment
from hangwatch.agent.incidents.history import (
    HangHistory,
    Histories,
    find_repeated_nodes,
    read_history,
    why_certain_to_recur,
)
from hangwatch.config.directories import restart_environment
from hangwatch.config.settings import ACTIONS, Policy, Settings
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankIdentity
from hangwatch.model.incident import Incident, JobHistory, PastHang
from hangwatch.model.numbers import FIRST_GUEST
from hangwatch.outputs.bundle.bundle import write_bundle


def rank(number: int, *, restart: int = 0, max_restarts: int = 0, world: str = "") -> RankIdentity:
    """A rank of which only this matters."""
    return RankIdentity(number, 100 + number, 1.0, restart=restart, max_restarts=max_restarts, world=world)


def incident(name: str) -> Incident:
    """A proven deadlock of two ranks."""
    capture = recorded_capture()
    return make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns, id=name)


def hang(name: str = "one", *, step: int | None = 3, place: str = "train.py:7", kind: str = "deadlock") -> PastHang:
    """A hang that is proven if it is a deadlock."""
    return msgspec.convert(
        {"id": name, "kind": kind, "proven": kind == "deadlock", "step": step, "place": place}, PastHang
    )


def stall(*nodes: str, spared: bool = True) -> PastHang:
    """A stall whose culprits are on these nodes, and not on all of the job's if some were ``spared``."""
    return PastHang("one", "stall", False, culprit_ranks=(1,), nodes=nodes, spared=spared)


@pytest.mark.parametrize(
    ("ranks", "supervised", "left"),
    [
        ([], True, 0),
        ([rank(0), rank(1)], True, 0),
        ([rank(0, max_restarts=2), rank(1, max_restarts=2)], True, 2),
        ([rank(0, restart=2, max_restarts=2)], True, 0),
        ([rank(0, max_restarts=2)], False, 0),
        ([rank(0, max_restarts=2), rank(FIRST_GUEST, world="engine")], True, 2),
    ],
    ids=["no-rank", "no-torchrun", "torchrun", "used-up", "torchrun-gone", "engine-beside"],
)
def test_who_restarts_is_read_from_torchruns_own_count(ranks: list[RankIdentity], supervised: bool, left: int) -> None:
    """Only torchrun's elastic agent restarts ranks, while it lives and has restarts left."""
    assert count_restarts_left(ranks, lambda _: supervised) == left


def test_only_ranks_that_hang_are_ended() -> None:
    """Processes that have taken the place of the hung ones are none of the incident's."""
    assert ranks_of(incident("one"), [rank(0), rank(1)]) == []


def test_pauses_grow_up_to_a_minute() -> None:
    """Each is twice the one before it."""
    assert [pause_before(number) for number in (1, 2, 3, 7, 1000)] == [1.0, 2.0, 4.0, 60.0, 60.0]


def test_what_the_user_sets_stands() -> None:
    """A store that torchrun does not share is only the default."""
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    assert restart_environment({"A": "1"}) == {"A": "1", name: "1"}
    assert restart_environment({name: "0"}) == {name: "0"}


@pytest.mark.parametrize(
    ("hangs", "repeated"),
    [
        ([stall("a"), stall("a")], ("a",)),
        ([stall("a"), stall("b"), stall("a")], ("a",)),
        ([stall("a"), stall("b"), stall("c"), stall("a")], ()),
        ([stall("a")], ()),
        ([stall("a", spared=False), stall("a", spared=False)], ()),
        ([stall("a", "b"), stall("a", "c")], ("a",)),
        ([msgspec.structs.replace(stall("a"), kind="deadlock")] * 2, ()),
    ],
    ids=["twice", "two-of-three", "long-ago", "once", "all-nodes", "among-others", "program"],
)
def test_a_node_is_worth_excluding_if_it_comes_again(hangs: list[PastHang], repeated: tuple[str, ...]) -> None:
    """In two of the last three hangs; never all nodes, and never for a deadlock, which is the program's."""
    assert find_repeated_nodes(hangs) == repeated


@pytest.mark.parametrize(
    ("before", "now", "certain"),
    [
        (hang(), hang(), True),
        (hang(), hang(step=4), False),
        (hang(), hang(place="train.py:8"), False),
        (hang(step=None), hang(step=None), False),
        (hang(place=""), hang(place=""), False),
        (hang(kind="stall"), hang(), False),
        (hang(), hang(kind="stall"), False),
    ],
    ids=["same", "step", "line", "step-unknown", "line-unknown", "stall-before", "stall-now"],
)
def test_what_is_certain_to_come_again(before: PastHang, now: PastHang, certain: bool) -> None:
    """A proven deadlock at one line in one step, twice in a row; what is not known is no reason."""
    assert why_certain_to_recur(JobHistory(now, (before,))) == "", (
        "it was not restarted: others may have changed it since"
    )
    why = why_certain_to_recur(JobHistory(now, (before,), restarts=1))
    assert bool(why) == certain
    assert not certain or ("train.py:7" in why and "step 3" in why)


def test_the_last_hang_alone_is_compared() -> None:
    """The same hang with another one between them is not twice in a row."""
    assert why_certain_to_recur(JobHistory(hang(), (hang(), hang(step=5)), restarts=2)) == ""
    assert why_certain_to_recur(JobHistory(hang())) == ""


def test_an_incident_has_the_hangs_before_it() -> None:
    """Its first report and later ones are one hang; the next hang names it."""
    kept = HangHistory()
    first = kept.note(incident("one"), 3)
    assert first.history is not None
    assert not first.history.now.spared, "the culprits are on the only node"
    assert (first.history.now.step, first.history.now.culprit_ranks, first.history.before) == (3, (0, 1), ())
    assert kept.note(incident("one"), 3).history == first.history
    kept.note_restart()
    second = kept.note(incident("two"), 5).history
    assert second is not None
    assert (second.now.step, second.restarts, second.before) == (5, 1, (first.history.now,))
    assert second.now.place == first.history.now.place != ""


def test_all_hangs_are_counted() -> None:
    """Also those that are no longer listed."""
    kept = HangHistory()
    for number in range(15):
        for _ in range(2):
            found = kept.note(incident(str(number)), 3).history
        assert found is not None
        assert found.number == number + 1
    assert found is not None
    assert len(found.before) == 10
    assert JobHistory(hang(), (hang(),)).number == 2, "a document without the count"


@pytest.mark.asyncio
@pytest.mark.parametrize("job_id", ["run42", "slurm-7/node0:29500", "node0:29500", "pid-77"])
async def test_a_later_run_begins_with_the_hangs_before_it(tmp_path: Path, job_id: str) -> None:
    """Another agent, or a command that is run anew, finds them by the job's name in its state directory, if it is one."""
    earlier, named = HangHistory(), not job_id.startswith(("node0", "pid"))
    for name in ("20260528T210000Z-one", "20260528T220000Z-two"):
        found, _ = make_bundle(tmp_path, name, ended=True, job_id=job_id)
        write_bundle(tmp_path, earlier.note(found, 3), None)
    make_bundle(tmp_path, "20260528T230000Z-other", ended=True, job_id="run43")
    kept = Histories(read=functools.partial(read_history, tmp_path)).of(job_id)
    await kept.recall(job_id)
    assert kept.hangs == (earlier.hangs if named else [])
    history = kept.note(incident("three"), 5).history
    assert history is not None
    assert (history.number, history.restarts) == (3 if named else 1, 0)
    await kept.recall(job_id)
    assert kept.hangs[-1].id == "three"


def test_another_nodes_history_is_taken_over() -> None:
    """The node that goes on after it knows of the same hangs."""
    there, here = HangHistory(), HangHistory()
    there.note(incident("one"), 3)
    told = there.note(incident("two"), 4)
    assert here.note(told, None) == told
    assert here.hangs == there.hangs


def test_a_warning_is_no_hang() -> None:
    """A straggler is left out of the history."""
    slow = incident("one")
    slow = msgspec.structs.replace(slow, verdict=msgspec.structs.replace(slow.verdict, kind="straggler"))
    kept = HangHistory()
    assert kept.note(slow, 3) == slow
    assert kept.hangs == []


def test_jobs_have_histories_of_their_own() -> None:
    """Unless one command has started them all."""
    node, command = Histories(), Histories(one_job=True)
    assert node.of("a") is node.of("a")
    assert node.of("a") is not node.of("b")
    assert command.of("a") is command.of("b")
    for number in range(1000):
        node.of(f"job-{number}")
    assert len(node._by_job) < 1000


def test_commands_get_the_history() -> None:
    """In their environment, and in the document."""
    found = incident("two")
    assert hook_environment(found, None)["HANGWATCH_EXCLUDE_NODES"] == ""
    history = JobHistory(hang("two"), (hang(),), 1, ("node-a", "node-b"))
    given = hook_environment(msgspec.structs.replace(found, history=history), None)
    assert (given["HANGWATCH_HANGS"], given["HANGWATCH_RESTARTS"]) == ("2", "1")
    assert given["HANGWATCH_EXCLUDE_NODES"] == "node-a,node-b"


def test_silent_failures_are_not_restarted() -> None:
    """What comes again with the same data is refused in one line; each action is in the list of actions."""
    with pytest.raises(
        ValueError, match=r"on_silent_failure\.action: 'restart' is for hangs alone; use one of report, stop, exec"
    ):
        Settings(on_silent_failure=Policy(action="restart"))
    with pytest.raises(ValueError, match="max_restarts: -1 is negative"):
        Settings(max_restarts=-1)
    assert all(Policy(action=action.form.replace("CMD", "true")).kind == name for name, action in ACTIONS.items())


def test_what_a_hang_has_cost() -> None:
    """From its onset to the first step beyond those that were done before it; None where there is none."""
    found = msgspec.structs.replace(
        incident("one"), onset_at="2026-05-28T21:00:00.000Z", confirmed_at="2026-05-28T21:00:02.000Z"
    )
    onset_s = 1_780_002_000.0
    steps = [Step(7, onset_s - 1, 1), Step(8, onset_s - 0.5, 1), Step(7, onset_s + 12, 2), Step(8, onset_s + 13, 2)]
    assert find_recovery(found, steps) is None
    recovery = find_recovery(found, [*steps, Step(9, onset_s + 14, 2)])
    assert recovery is not None
    assert (recovery.hung_after, recovery.resumed_step) == (8, 7)
    assert (recovery.confirmed_s, recovery.resumed_s, recovery.new_step_s) == (2.0, 12.0, 14.0)
    assert find_recovery(found, []) is None
