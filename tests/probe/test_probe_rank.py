"""Probed ranks in real jobs: who is probed, what the beat says, who answers when the rank hangs."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import signal
import socket

import pytest
from probe_runs import SITE, Run, ask

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.training.sources.beats import parse_steps
from support import LONG_S, find_free_port, wait_for

MEET = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group(
    "gloo", init_method=os.environ["RENDEZVOUS"], rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
)
rank = dist.get_rank()
one = torch.ones(4)
"""
FR_JSON = b"POST /handler/fr_trace_json HTTP/1.0\r\nContent-Length: 0\r\n\r\n"


def _group(beat: Beat, description: str) -> tuple[object, ...]:
    (group,) = [g for g in beat.groups if g.description == description]
    return group.name, group.ranks, group.pg_id, group.backend, group.enqueued, group.started, group.completed


def test_beats_of_a_torchrun_job_name_groups_and_numbers_right(run: Run) -> None:
    """Groups of one local number on two ranks keep their own names; the launcher, though it has RANK, is no rank."""
    done = run.scratch / "done"
    script = run.write(
        MEET.replace('init_method=os.environ["RENDEZVOUS"], ', "")
        + f"""
first = dist.new_group([0], group_desc="first")
second = dist.new_group([1], group_desc="second")
unused = dist.new_group([0, 1], group_desc="unused")
local = dist.new_group([rank], group_desc="local", use_local_synchronization=True)
for _ in range(3):
    dist.all_reduce(one)
mine = second if rank else first
for _ in range(rank + 1):
    dist.all_reduce(one, group=mine)
dist.all_reduce(one, group=local)
import hangwatch.probe
hangwatch.probe.report(step=rank, loss=float("nan"), lr=[1])
import time
while not os.path.exists({str(done)!r}):
    time.sleep(0.05)
dist.destroy_process_group()
"""
    )
    port = find_free_port()
    arguments = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}", script]
    env = run.environment(RANK="0", WORLD_SIZE="1", PYTHONPATH=str(SITE.parents[2]))
    launcher = run.start(*arguments, env=env)

    def settled() -> list[Beat] | None:
        beats = run.beats()
        complete = [
            beat
            for beat in beats
            if beat.telemetry
            and len([g for g in beat.groups if g.pg_id is not None]) == 3
            and all(g.enqueued == g.completed for g in beat.groups)
        ]
        return beats if len(complete) == 2 else None

    zero, one = wait_for(settled, 90, "two complete beats")
    done.touch()
    out, err = launcher.communicate(timeout=LONG_S)
    assert launcher.returncode == 0, err
    assert out == ""

    assert (zero.rank, one.rank) == (0, 1)
    for beat in (zero, one):
        assert beat.version == 1
        assert beat.pid != launcher.pid
        assert beat.start_ticks > 0
        assert (beat.world_size, beat.local_rank, beat.initialized) == (2, beat.rank, True)
        assert beat.torch.startswith("2.")
        assert beat.problems == ()
        assert beat.rank is not None
        found = parse_steps(beat, 0, beat.rank)
        assert not isinstance(found, Gap)
        ((said,),) = found[1:]
        assert (said.source, said.rank, said.step, said.learning_rate) == ("report", beat.rank, beat.rank, None)
        assert said.loss is not None
        assert math.isnan(said.loss)
        assert _group(beat, "default_pg") == ("0", (0, 1), 0, "gloo", 3, -1, 3)
        assert _group(beat, "unused") == ("3", (0, 1), None, "gloo", 0, -1, 0)
    assert _group(zero, "first") == ("1", (0,), 1, "gloo", 1, -1, 1)
    assert _group(one, "second") == ("2", (1,), 1, "gloo", 2, -1, 2)
    assert _group(zero, "local")[1:] == ((0,), 3, "gloo", 1, -1, 1)
    assert _group(one, "local")[1:] == ((1,), 3, "gloo", 1, -1, 1)
    assert _group(zero, "local")[0] != _group(one, "local")[0]
    # Ended in order: the heartbeats and what the ranks leave stay for the agent, the sockets are gone.
    assert sorted(p.suffix for p in run.ranks.iterdir()) == [".beat", ".beat", ".left", ".left"]


def ask_flight(path: str) -> bytes:
    """What the recorder holds; asked again if a probe that is late, on a busy machine, has closed the connection."""
    return wait_for(lambda: ask(path, b"flight\n"), LONG_S, "the recorder")


def test_hung_ranks_still_answer(run: Run) -> None:
    """The worker server answers while the GIL is held in native code; the control socket while the rank waits."""
    script = run.write(
        MEET
        + """
dist.all_reduce(one)
if rank == 0:
    dist.all_reduce(one)
else:
    import ctypes, time
    beat = "%s/ranks/%d.beat" % (os.environ["HANGWATCH_RUN_DIR"], os.getpid())
    while not os.path.exists(beat) or b'"server":"' not in open(beat, "rb").read():
        time.sleep(0.02)  # once the GIL is held no beat can tell of the server
    print("holding", flush=True)
    ctypes.PyDLL(None).sleep(600)
"""
    )
    waiting, holding = (run.start_rank(script, rank, 2) for rank in (0, 1))
    assert holding.stdout is not None
    assert holding.stdout.readline() == "holding\n"
    stuck = run.wait_beat(waiting.pid, lambda b: bool(b.groups) and b.groups[0].unmoved_s > 1.5)
    assert (stuck.groups[0].enqueued, stuck.groups[0].completed) == (2, 1)
    assert stuck.control is not None

    held = run.beat(holding.pid)
    assert held is not None
    assert held.server is not None
    head, _, body = ask(held.server, FR_JSON).partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert [e["collective_seq_id"] for e in json.loads(body)["entries"]] == [1]

    record = pickle.loads(ask_flight(stuck.control))  # noqa: S301 -- our own rank's
    assert [entry["collective_seq_id"] for entry in record["entries"]] == [1, 2]
    frames = record["entries"][-1]["frames"]
    assert any(frame["filename"] == str(script) for frame in frames)
    active = pickle.loads(ask(stuck.control, b"flight active gloo\n"))  # noqa: S301 -- our own rank's
    assert len(active["entries"]) == 2
    assert ask(stuck.control, b"nonsense\n") == b""

    # A client that says nothing, and one that never reads, cost no beat.
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as deaf:
        silent.connect(stuck.control)
        deaf.connect(stuck.control)
        deaf.sendall(b"flight\n")
        seen = run.wait_beat(waiting.pid).counter
        run.wait_beat(waiting.pid, lambda b: b.counter > seen + 3)
    assert pickle.loads(ask_flight(stuck.control))["entries"]  # noqa: S301 -- our own rank's
    held_later = run.beat(holding.pid)
    assert held_later is not None
    assert held_later.counter == held.counter, "a rank whose GIL is held cannot beat"


def test_children_of_a_rank_are_not_probed(run: Run) -> None:
    """DataLoader workers, forked or spawned, and a tool that imports torch.distributed leave no beat and no note."""
    script = run.write(
        """
        import os, subprocess, sys
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader

        class Pids(torch.utils.data.Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, index):
                import threading
                names = [t.name for t in threading.enumerate()]
                return os.getpid(), dist.is_available(), "hangwatch-probe" in names

        if __name__ == "__main__":
            dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=0, world_size=1)
            for way in ("fork", "spawn"):
                loader = DataLoader(Pids(), num_workers=1, multiprocessing_context=way, collate_fn=list)
                for batch in loader:
                    for pid, available, probed in batch:
                        assert pid != os.getpid() and available and not probed
            tool = "import torch.distributed, threading; print(threading.active_count())"
            assert subprocess.run([sys.executable, "-c", tool], capture_output=True, check=True).stdout == b"1\\n"
            dist.destroy_process_group()
            assert "HANGWATCH_PROBE_PID" not in os.environ
        """
    )
    rank = run.start_rank(script)
    out, err = rank.communicate(timeout=LONG_S)
    assert (out, err, rank.returncode) == ("", "", 0)
    assert [path.name for path in run.ranks.iterdir()] == [f"{rank.pid}.beat"]


@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_ranks_without_an_environment_are_probed_from_their_group_on(run: Run, way: str) -> None:
    """``mp.start_processes`` gives the rank as an argument: processes with a group are ranks, the parent is none."""
    script = run.write(
        f"""
        import os, sys, threading
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def work(rank, meet):
            dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
            dist.all_reduce(torch.ones(1))
            assert os.environ["HANGWATCH_PROBE_PID"] == str(os.getpid())
            beat = os.path.join(os.environ["HANGWATCH_RUN_DIR"], "ranks", "%d.beat" % os.getpid())
            while not os.path.exists(beat) or b'"completed":1' not in open(beat, "rb").read():
                threading.Event().wait(0.02)
            dist.destroy_process_group()

        if __name__ == "__main__":
            mp.start_processes(work, args=(os.environ["RENDEZVOUS"],), nprocs=2, start_method={way!r})
            assert "HANGWATCH_PROBE_PID" not in os.environ
            assert threading.active_count() == 1
        """
    )
    parent = run.start(script, env=run.environment(RENDEZVOUS=f"file://{run.scratch}/meet"))
    out, err = parent.communicate(timeout=LONG_S)
    assert (out, err, parent.returncode) == ("", "", 0)
    beats = run.beats()
    assert [(b.rank, b.world_size, b.local_rank) for b in beats] == [(0, 2, None), (1, 2, None)]
    assert parent.pid not in {b.pid for b in beats}
    # Its last beat, from the end of its program, has no group any more.
    assert all(g.enqueued == g.completed == 1 for b in beats for g in b.groups)


def test_group_made_again_under_the_same_name_gets_its_own_number(run: Run) -> None:
    """After destroy and init the default group is "0" again: it must not show its namesake's progress."""
    script = run.write(
        MEET
        + """
def pause(word):
    print(word, flush=True)
    sys.stdin.readline()
for _ in range(5):
    dist.all_reduce(one)
pause("first")
dist.destroy_process_group()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
pause("unused")
dist.all_reduce(one)
pause("second")
dist.destroy_process_group()
pause("none")
"""
    )
    rank = run.start_rank(script)
    assert rank.stdin is not None
    assert rank.stdout is not None
    for word, number in {"first": (0, 5), "unused": (None, 0), "second": (1, 1)}.items():
        assert rank.stdout.readline() == word + "\n"
        # Gloo's own number of completed operations may lag for good: the beat puts it right within seconds.
        beat = run.wait_beat(
            rank.pid,
            lambda b, n=number: [(g.name, g.pg_id, g.enqueued, g.completed) for g in b.groups] == [("0", *n, n[1])],
        )
        assert beat.problems == ()
        rank.stdin.write("\n")
        rank.stdin.flush()
    assert rank.stdout.readline() == "none\n"
    last = run.wait_beat(rank.pid, lambda b: not b.initialized)
    assert (last.groups, last.rank, last.world_size) == ((), 0, 1)
    assert rank.communicate("\n", timeout=LONG_S)[1] == ""


def test_a_rank_by_argument_is_known_while_it_waits_to_meet_the_others(run: Run) -> None:
    """No environment names it, and the first rank never comes: the beat has rank and world size all the same."""
    script = run.write(
        f"""
        import torch.distributed as dist
        print("begins", flush=True)
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{find_free_port()}", rank=1, world_size=3)
        """
    )
    rank = run.start(script)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "begins\n"
    beat = run.wait_beat(rank.pid, lambda b: b.rank is not None)
    assert (beat.rank, beat.world_size, beat.initialized, beat.groups) == (1, 3, False, ())


def test_rendezvous_is_as_before_after_the_first_call(run: Run) -> None:
    """What is looked up in torch's module is torch's own function again, and a wrapper of the program's stays where it is."""
    script = run.write(
        f"""
        import os, sys
        import torch.distributed as dist
        import torch.distributed.rendezvous
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        own = sys.modules["torch.distributed.rendezvous"].rendezvous
        before = c10d.rendezvous
        print(before is own, before.__name__, before.__doc__ == own.__doc__)
        if "WRAPPED" in os.environ:
            c10d.rendezvous = lambda *given, **named: before(*given, **named)
        mine = c10d.rendezvous
        for _ in range(2):
            dist.init_process_group("gloo", init_method="file://{run.scratch}/met", rank=0, world_size=1)
            dist.destroy_process_group()
            print(c10d.rendezvous is own, c10d.rendezvous is mine)
        try:
            before("nowhere", "first")
        except RuntimeError as error:
            print(error)
        """
    )
    for wrapped, after in (({}, "True False"), ({"WRAPPED": "1"}, "False True")):
        job = run.start(script, env=run.environment(**wrapped))
        out, err = job.communicate(timeout=LONG_S)
        assert err == ""
        assert out.splitlines() == ["False rendezvous True", after, after, "`rank` must be an integer. first"]


def test_lost_run_directory_stops_nothing_and_beats_come_back(run: Run) -> None:
    """The rank runs on without its directory; when there is one again so is the control socket. torch's own server is lost."""
    rank = run.start_rank(run.write(MEET + "sys.stdin.readline()\ndist.destroy_process_group()\n"))
    counter = run.wait_beat(rank.pid, lambda b: b.initialized).counter
    gone = run.directory.rename(run.directory.with_name(f"{run.directory.name}-gone"))
    # Nothing of it can be seen from outside for a while; the first beat in the new directory has missed some.
    run.ranks.mkdir(parents=True)
    shutil.rmtree(gone)
    # One that found no directory is told of in the next.
    beat = run.wait_beat(
        rank.pid, lambda b: b.counter > counter + 1 and not any("heartbeat" in one for one in b.problems)
    )
    assert beat.server is None
    (problem,) = beat.problems
    assert "is gone" in problem
    assert beat.control is not None
    assert "entries" in pickle.loads(ask_flight(beat.control))  # noqa: S301  # of our own rank
    out, err = rank.communicate("\n", timeout=LONG_S)
    assert (out, err, rank.returncode) == ("", "", 0)


def test_too_long_socket_paths_are_bound_all_the_same(run: Run) -> None:
    """A run directory deeper than a socket address can hold still has both sockets, reached through its descriptor."""
    deep = run.directory / ("d" * 60) / ("e" * 60)
    (deep / "ranks").mkdir(parents=True)
    script = run.write(MEET + "dist.all_reduce(one)\nsys.stdin.readline()\ndist.destroy_process_group()\n")
    rank = run.start_rank(script, HANGWATCH_RUN_DIR=str(deep))
    run.ranks = deep / "ranks"
    beat = run.wait_beat(rank.pid, lambda b: b.groups != () and b.groups[0].pg_id == 0)
    assert beat.problems == ()
    assert beat.server is not None
    assert len(beat.server) > 107
    assert {path.suffix for path in run.ranks.iterdir()} >= {".server", ".control"}
    assert rank.communicate("\n", timeout=LONG_S) == ("", "")
    assert {path.suffix for path in run.ranks.iterdir()} == {".beat"}


def test_a_program_may_close_all_descriptors_and_take_their_numbers(run: Run) -> None:
    """Before it has a group, as one does that makes itself a daemon: nothing of ours ends it, or touches what it opens then."""
    script = run.write(
        """
        import os, sys, time
        import torch
        import torch.distributed as dist

        sys.stdin.readline()
        os.closerange(3, 1024)
        files = [open("%s/%d" % (os.getcwd(), number), "w+") for number in range(8)]
        sys.stdin.readline()
        dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=0, world_size=1)
        dist.all_reduce(torch.ones(4))
        sys.stdin.readline()
        dist.destroy_process_group()
        for file in files:
            file.write("mine")
            file.close()
        print(sorted({open(file.name).read() for file in files}))
        """
    )
    rank = run.start_rank(script)
    assert rank.stdin is not None
    run.wait_beat(rank.pid, lambda b: b.control is not None)
    for accept in (lambda _: True, lambda b: b.server is not None and bool(b.groups)):
        counter = run.wait_beat(rank.pid).counter
        rank.stdin.write("\n")
        rank.stdin.flush()
        beat = run.wait_beat(rank.pid, lambda b, c=counter, a=accept: b.counter > c + 2 and a(b))  # type: ignore[misc]
    assert beat.control is not None
    assert pickle.loads(ask_flight(beat.control))["entries"]  # noqa: S301  # of our own rank
    out, err = rank.communicate("\n", timeout=LONG_S)
    assert (out, err, rank.returncode) == ("['mine']\n", "", 0)


ENDINGS = {
    "normal": ("dist.destroy_process_group()", 0, ""),
    "status": ("dist.destroy_process_group(); sys.exit(3)", 3, ""),
    "at_once": ("os._exit(4)", 4, ""),
    "terminated": ("import signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    "raised": ("dist.destroy_process_group()\nraise RuntimeError('mine')", 1, "RuntimeError: mine\n"),
}


def test_a_rank_ends_as_it_would_without_us(run: Run) -> None:
    """Exit status and both streams are the program's own, however it ends."""
    started = {}
    for name, (ending, status, error) in ENDINGS.items():
        script = run.write(MEET + "dist.all_reduce(one)\nsys.stdin.readline()\n" + ending + "\n", f"{name}.py")
        process = run.start_rank(script, RENDEZVOUS=f"file://{run.scratch}/{name}.meet")
        started[name] = (process, status, error)
    for process, _, _ in started.values():
        run.wait_beat(process.pid, lambda b: b.groups != () and b.groups[0].completed == 1)
    for name, (process, status, error) in started.items():
        out, err = process.communicate("\n", timeout=LONG_S)
        assert (name, out, process.returncode) == (name, "", status)
        assert err.endswith(error)
        assert bool(err) == bool(error)
        assert "hangwatch" not in err


def test_exit_without_destroy_is_no_other_than_without_us(run: Run) -> None:
    """Gloo itself may abort then; nothing but that, and no word of ours, is seen."""
    script = run.write(MEET + "dist.all_reduce(one)\nsys.stdin.readline()\n")
    ranks = [run.start_rank(script, rank, 2) for rank in (0, 1)]
    for rank in ranks:
        run.wait_beat(rank.pid, lambda b: b.groups != () and b.groups[0].completed == 1)
    for rank in ranks:
        out, err = rank.communicate("\n", timeout=LONG_S)
        assert out == ""
        assert rank.returncode in (0, -signal.SIGABRT)
        assert "hangwatch" not in err
        assert "Fatal Python error" not in err
        assert "WorkerServer" not in err


def test_torch_is_left_as_it_was_found(run: Run) -> None:
    """Its loader is as before, only training libraries are still waited for, and reading call sites imports nothing."""
    script = run.write(
        MEET
        + """
import importlib, pickle, socket
module = dist.distributed_c10d
assert set(vars(module.__spec__.loader)) == {"name", "path"}, vars(module.__spec__.loader)
assert module.__loader__ is module.__spec__.loader
(left,) = [finder for finder in sys.meta_path if "hangwatch" in type(finder).__module__]
assert left.find_spec(module.__name__) is None, "it waits for training libraries only"
assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in os.environ
dist.all_reduce(one)
path = "%s/ranks/%d.control" % (os.environ["HANGWATCH_RUN_DIR"], os.getpid())
data = b""
while not data:  # a probe that is late in reading closes the connection
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"flight\\n")
            while part := connection.recv(65536):
                data += part
    except (ConnectionResetError, BrokenPipeError):
        data = b""
assert pickle.loads(data)["entries"][0]["frames"]
assert "torch._inductor" not in sys.modules
assert "_inductor" not in vars(torch)
dist.destroy_process_group()
"""
    )
    rank = run.start_rank(script)
    out, err = rank.communicate(timeout=LONG_S)
    assert (out, err, rank.returncode) == ("", "", 0)
