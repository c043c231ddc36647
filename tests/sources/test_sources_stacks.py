"""Stacks of real processes, and of recorded ones."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from hangwatch.model.capture import Gap
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.proc.views import open_seen
from hangwatch.sources.stacks import samples as stacks
from hangwatch.sources.stacks import source_lines
from hangwatch.sources.stacks.readers import run_reader
from hangwatch.sources.stacks.samples import StackFormatError, explain_failure, parse_pyspy, sample_stacks
from hangwatch.sources.stacks.source_lines import SourceLines
from support import LONG_S, Job, JobRunner, wait_for

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "stacks"

PROGRAM = """
import ctypes, sys, threading, time

def rest(flag):
    secret = "do not tell"
    if flag == "gil":
        open(sys.argv[2], "w").close()
        ctypes.PyDLL(None).sleep(600)
    open(sys.argv[2], "w").close()
    time.sleep(600)

rest(sys.argv[1])
"""


def sample(pid: int, **options: float) -> StackSample | Gap:
    """One process's stack."""
    return asyncio.run(sample_stacks([pid], **options))[pid]  # type: ignore[arg-type]


def main_thread(name: str, pid: int) -> ThreadStack:
    """The main thread of a recorded stack."""
    found = parse_pyspy((FIXTURES / f"{name}.json").read_bytes(), at_ns=1, pid=pid)
    assert found.main is not None
    assert found.threads[0] is found.main
    return found.main


def start_program(jobs: JobRunner, tmp_path: Path, flag: str) -> Job:
    """The program, resting in ``rest``."""
    script, ready = tmp_path / "program.py", tmp_path / "ready"
    script.write_text(PROGRAM)
    job = jobs.start([sys.executable, script, flag, ready])
    wait_for(ready.exists, what="the program")
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_SLEEPING, what="its rest")
    return job


def test_sleeping_process(jobs: JobRunner, tmp_path: Path) -> None:
    """Frames come with the text of their lines and the blocks around them; locals only as types."""
    job = start_program(jobs, tmp_path, "sleep")
    found = sample(job.pid)
    assert isinstance(found, StackSample)
    assert found.main is not None
    assert found.main.os_thread_id == (job.pid if sys.version_info >= (3, 11) else 0)
    assert [frame.function for frame in found.main.frames] == ["rest", "<module>"]
    rest = found.main.frames[0]
    assert (rest.line, rest.source) == (10, "time.sleep(600)")
    assert rest.locals == {"flag": "str(5)", "secret": "str(11)"}
    assert not found.main.owns_gil
    assert "do not tell" not in repr(found)


def test_stopped_process_is_read(jobs: JobRunner, tmp_path: Path) -> None:
    """A stopped process's stack is read while it stays stopped."""
    job = start_program(jobs, tmp_path, "sleep")
    job.send(signal.SIGSTOP)
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)
    found = sample(job.pid)
    assert isinstance(found, StackSample)
    assert found.main is not None
    assert found.main.frames[0].function == "rest"
    assert psutil.Process(job.pid).status() == psutil.STATUS_STOPPED


def test_gil_held_in_native_code(jobs: JobRunner, tmp_path: Path) -> None:
    """A thread that sleeps in C without letting go of the interpreter owns it and is not active; the block is reported."""
    job = start_program(jobs, tmp_path, "gil")
    found = sample(job.pid)
    assert isinstance(found, StackSample)
    assert found.main is not None
    assert (found.main.owns_gil, found.main.active) == (True, False)
    assert [(block.kind, block.text) for block in found.main.frames[0].blocks] == [("if", 'if flag == "gil":')]


def test_process_without_python_and_gone_process(jobs: JobRunner) -> None:
    """Each failure is its own Gap; others are still read."""
    job = jobs.start(["sleep", "600"])
    found = asyncio.run(sample_stacks([job.pid, 2**22 + 1, os.getpid()]))
    assert isinstance(found[job.pid], Gap)
    assert "no Python" in found[job.pid].reason  # type: ignore[union-attr]
    assert found[2**22 + 1] == Gap("stacks", f"process {2**22 + 1} is gone")
    assert isinstance(found[os.getpid()], StackSample)


def test_absent_pyspy_is_a_gap_with_its_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without py-spy there is one line that says how to get it."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert sample(os.getpid()) == Gap("stacks", "py-spy is not installed", hint="pip install py-spy")


@pytest.mark.usefixtures("real")
def test_slow_pyspy_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A read that does not end is ended, and said to be late."""
    slow = tmp_path / "py-spy"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(stacks, "find_program", lambda _name: str(slow))
    found = sample(os.getpid(), timeout_s=1.0)
    assert isinstance(found, Gap)
    assert "within 1 s" in found.reason
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.usefixtures("real")
def test_a_reader_that_has_just_ended_is_killed_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine asyncio's thread comes late to ask how it ended. Nobody asks before, and nothing is said on stderr."""
    killed, ask = threading.Event(), os.waitpid

    def late(pid: int, options: int) -> tuple[int, int]:
        if threading.current_thread() is not threading.main_thread():
            killed.wait(LONG_S)
        return ask(pid, options)

    async def read() -> None:
        assert await run_reader("/bin/true", [], 0.3) is None
        killed.set()
        while any("waitpid" in thread.name for thread in threading.enumerate()):
            await asyncio.sleep(0)

    monkeypatch.setattr(os, "waitpid", late)
    if sys.version_info < (3, 12):  # later ones have no thread for it
        asyncio.run(read())
    assert not caplog.records


@pytest.mark.usefixtures("real")
def test_py_spy_gets_nothing_of_the_agents_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its environment has PATH, what it is told of backtraces, and what a shell adds; secrets of the agent are not in it."""
    monkeypatch.setenv("HANGWATCH_SECRET", "a secret of the tests")
    fake = tmp_path / "py-spy"
    fake.write_text(f"#!/bin/sh\nenv > {tmp_path}/told\necho '[]'\n")
    fake.chmod(0o755)
    monkeypatch.setattr(stacks, "find_program", lambda _name: str(fake))
    assert isinstance(sample(os.getpid()), StackSample)
    told = {line.partition("=")[0] for line in (tmp_path / "told").read_text().splitlines()}
    assert told - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "RUST_BACKTRACE"}


@pytest.mark.usefixtures("real")
def test_garbage_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A read that raced with the interpreter is repeated once."""
    flaky = tmp_path / "py-spy"
    flaky.write_text(
        f"#!/bin/sh\nif [ -e {tmp_path}/again ]; then echo '[]'; else touch {tmp_path}/again; echo '[{{'; fi\n"
    )
    flaky.chmod(0o755)
    monkeypatch.setattr(stacks, "find_program", lambda _name: str(flaky))
    found = sample(os.getpid())
    assert isinstance(found, StackSample)
    assert found.threads == ()


@pytest.mark.parametrize(
    ("message", "reason", "hinted"),
    [
        ("Permission Denied: Try running again with elevated permissions by going 'sudo'", "is not permitted", True),
        ("Error: Failed to get name\n\nCaused by:\n 0: Permission denied (os error 13)", "is not permitted", True),
        ("Error: Failed to open\nReason: Operation not permitted (os error 1)", "is not permitted", True),
        ("Error: Failed\nCaused by:\n    0: No such file or directory (os error 2)", "is gone", False),
        ("Error: Failed to find python version from target process", "no Python", False),
        ("Error: something new\nStack backtrace:\n 0: x", "something new", False),
        ("\U0001f480 Engine error: Operation not permitted \U0001f480", "is not permitted", True),
        ("", "gave no reason", False),
    ],
)  # fmt: skip
def test_complaints_become_one_line(message: str, reason: str, hinted: bool) -> None:
    """py-spy's several lines are one, with the repair where there is one."""
    gap = explain_failure(7, message, "py-spy")
    assert reason in gap.reason
    assert "\n" not in gap.reason
    assert bool(gap.hint) == hinted


@pytest.mark.parametrize(
    ("name", "pid", "top", "function"),
    [
        ("all_reduce-0", 4000, "all_reduce", "wait_in_all_reduce"),
        ("barrier-0", 4000, "barrier", "main"),
        ("ddp_backward-0", 4000, "_engine_run_backward", "train_step"),
        ("init-0", 4000, "TCPStore", "main"),
        ("new_group-0", 4000, "_new_process_group_helper", "main"),
        ("recv-0", 4000, "recv", "main"),
        ("all_gather-0", 4000, "all_gather", "gather_tuple_labels"),
        ("pdb-1", 4100, "Cmd.cmdloop", "main"),
        ("input-1", 4100, "ask_for_name", "main"),
        ("fifo-1", 4100, "read_shard", "main"),
        ("gil_held-1", 4100, "hold_gil", "main"),
        ("dataloader-1", 4100, "_PollLikeSelector.select", "iterate_loader"),
        ("dataloader-1-child", 4190, "read_shard", "iterate_loader"),
    ],
)
def test_recorded_hangs(name: str, pid: int, top: str, function: str) -> None:
    """Each recorded hang has its main thread, deepest frame first, down to the program's own function."""
    main = main_thread(name, pid)
    if top != "TCPStore":
        assert main.frames[0].function == top
    assert function in {frame.function for frame in main.frames}
    assert main.frames[-1].function == "<module>"
    assert main.owns_gil == (name == "gil_held-1")


def test_peers_are_kept_in_torch_frames() -> None:
    """The source of a receive is a value worth keeping; the program's own integers are not."""
    main = main_thread("recv-0", 4000)
    assert main.frames[0].locals is not None
    assert main.frames[0].locals["src"] == "int=1"
    program = next(frame for frame in main.frames if frame.function == "main")
    assert program.locals is not None
    assert program.locals["rank"] == "int"


def test_exit_status_of_multiprocessing_is_kept_and_no_other_number() -> None:
    """What a child that was started by it is about to end with; its other variables, and files of that name, are nobody's."""
    variables = [{"name": "exitcode", "repr": "1"}, {"name": "parent_sentinel", "repr": "7"}]
    frames = [
        {"name": "_bootstrap", "filename": file, "line": 1, "locals": variables}
        for file in ("/usr/lib/python3.11/multiprocessing/process.py", "/srv/train/process.py")
    ]
    data = msgspec.json.encode([{"frames": frames, "os_thread_id": 5}])
    found = [frame.locals for frame in parse_pyspy(data, at_ns=1, pid=5).threads[0].frames]
    assert found == [{"exitcode": "int=1", "parent_sentinel": "int"}, {"exitcode": "int", "parent_sentinel": "int"}]


def test_main_thread_without_thread_ids() -> None:
    """Before Python 3.11 py-spy knows no thread ids: the name tells, else who was not started by threading."""
    outermost = b'{"name":"_bootstrap","filename":"threading.py","line":1}'
    worker = b'{"thread_name":null,"frames":[{"name":"f","filename":"a.py","line":1},' + outermost + b"]}"
    other = b'{"thread_name":null,"frames":[{"name":"g","filename":"a.py","line":0}]}'
    named = b'{"thread_name":"MainThread","frames":[{"name":"h","filename":"a.py","line":-1}]}'
    first = parse_pyspy(b"[" + worker + b"," + other + b"]", at_ns=1, pid=7)
    assert first.main is not None
    assert first.main.frames[0].function == "g"
    assert first.main.os_thread_id == 0
    second = parse_pyspy(b"[" + worker + b"," + other + b"," + named + b"]", at_ns=1, pid=7)
    assert second.main is not None
    assert second.main.frames[0].line == 0
    assert second.main.frames[0].locals is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"frames":[{"name":1}]}]', b"\xff"])
def test_other_output_is_a_typed_error(data: bytes) -> None:
    """Output that is no dump raises one error, with a reason."""
    with pytest.raises(StackFormatError, match="py-spy"):
        parse_pyspy(data, at_ns=1, pid=7)


def test_source_of_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    """A file name that leads to a FIFO, to nothing or past the end gives no text, and blocks nobody."""
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "short.py").write_text("if x:\n    y()\n")
    places = [(str(tmp_path / name), line) for name in ("fifo.py", "none.py", "short.py") for line in (2, 99)]
    lines = SourceLines()
    found = lines.read(os.getpid(), places)
    assert {place: line.text for place, line in found.items()} == {(str(tmp_path / "short.py"), 2): "y()"}
    (tmp_path / "short.py").write_text("changed = 1\nlonger\n")
    assert lines.read(os.getpid(), [(str(tmp_path / "short.py"), 2)])[str(tmp_path / "short.py"), 2].text == "longer"


class _ClockLoop(asyncio.SelectorEventLoop):
    """Its clock is ``ahead_s`` of the machine's."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s

    def jump(self) -> None:
        """Let hours go by; for other threads."""
        self.ahead_s += 10_000
        self.call_soon_threadsafe(lambda: None)

    def pass_hours(self) -> None:
        """Let hours go by and everything run that is due by then; for other threads."""
        self.jump()
        for _ in range(3):  # timers become ready in one round and run in the next
            passed = threading.Event()
            self.call_soon_threadsafe(passed.set)
            assert passed.wait(60)


def _attach(loop: _ClockLoop, lines: SourceLines, *files: Path) -> list[str | None]:
    """The text of the second line of each file, attached to a stack."""
    frames = tuple(Frame("f", str(file), 2) for file in files)
    sample = StackSample(1, (ThreadStack(0, "MainThread", is_main=True, active=True, owns_gil=False, frames=frames),))
    found = loop.run_until_complete(lines.attach({os.getpid(): sample}))[os.getpid()]
    return [frame.source for frame in found.threads[0].frames]


@pytest.fixture
def clock_loop() -> Iterator[_ClockLoop]:
    loop = _ClockLoop()
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_lines_are_there_however_long_it_takes_to_parse_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock_loop: _ClockLoop
) -> None:
    """On a loaded machine to parse a library's file takes longer than any time limit of ours for file systems."""
    files = [tmp_path / f"{name}.py" for name in "abc"]
    for file in files:
        file.write_text(f"if x:\n    {file.stem}()\n")

    class Slow(source_lines.SourceTree):
        def __init__(self, source: str) -> None:
            clock_loop.pass_hours()
            super().__init__(source)

    monkeypatch.setattr(source_lines, "SourceTree", Slow)
    assert _attach(clock_loop, SourceLines(), *files) == ["a()", "b()", "c()"]


def test_lines_of_files_before_one_that_hangs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock_loop: _ClockLoop
) -> None:
    """A file system that hangs holds nobody up, nor costs the lines of files that answered; once it answers, all are read."""
    files = [tmp_path / f"{name}.py" for name in "abc"]
    for file in files:
        file.write_text(f"if x:\n    {file.stem}()\n")
    answers = threading.Event()

    def hang(pid: int, file: str) -> int:
        if file == str(files[1]) and not answers.is_set():
            clock_loop.jump()
            answers.wait()
        return open_seen(pid, file)

    monkeypatch.setattr(source_lines, "open_seen", hang)
    lines = SourceLines()
    assert _attach(clock_loop, lines, *files) == ["a()", None, None]
    assert _attach(clock_loop, lines, files[2]) == [None]  # no second thread hangs beside the first
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "hangwatch-source-lines":
            thread.join(60)
    assert _attach(clock_loop, lines, *files) == ["a()", "b()", "c()"]


def test_source_that_is_nested_deeply_is_read_or_left(tmp_path: Path) -> None:
    """An expression of thousands of terms is no trouble; of an ``if`` with thousands of branches nothing is read or raised."""
    terms, branches = tmp_path / "terms.py", tmp_path / "branches.py"
    terms.write_text("def f():\n    for i in range(3):\n        x = " + " + ".join(["1"] * 900) + "\n")
    branches.write_text("def f(x):\n    if x == 0:\n        y()\n" + "    elif x:\n        y()\n" * 3000)
    found = SourceLines().read(os.getpid(), [(str(terms), 3), (str(branches), 6000)])
    assert [block.text for block in found[str(terms), 3].blocks] == ["for i in range(3):"]
    assert all(line.text == "elif x:" for place, line in found.items() if place[0] == str(branches))


def test_source_of_a_process_that_has_ended_is_read_before_its_parent_asks(jobs: JobRunner, tmp_path: Path) -> None:
    """A zombie shows its view of the files no more: that of a job which has failed is read at that moment."""
    program = tmp_path / "short.py"
    program.write_text("print('done')\n")
    job = jobs.python(program)
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_ZOMBIE, what="its end")
    assert SourceLines().read(job.pid, [(str(program), 1)])[str(program), 1].text == "print('done')"


def test_a_program_of_the_command_line_is_read_from_there(jobs: JobRunner, tmp_path: Path) -> None:
    """``python -c`` names no file; what a script is given behind its name is none of its source."""
    program = "import time\ntime.sleep(600)"
    (tmp_path / "script.py").write_text(program)
    given = jobs.start([sys.executable, "-u", "-c", program]).pid
    script = jobs.start([sys.executable, tmp_path / "script.py", "-c", program]).pid
    lines = SourceLines()
    assert [line.text for line in lines.read(given, [("<string>", 2)]).values()] == ["time.sleep(600)"]
    assert lines.read(script, [("<string>", 2)]) == {}


def test_values_are_kept_only_when_asked_for() -> None:
    """Without being asked no value is kept; with it, all but what is secret by its name or its shape."""
    data = msgspec.json.encode(
        [
            {
                "frames": [
                    {
                        "name": "f",
                        "filename": "train.py",
                        "line": 3,
                        "locals": [
                            {"name": "steps", "repr": "1234"},
                            {"name": "name", "repr": '"' + "x" * 500 + '"'},
                            {"name": "hub_token", "repr": '"whatever"'},
                            {"name": "held", "repr": '["hf_abcdefghijklmnop", 3]'},
                        ],
                    }
                ],
                "os_thread_id": 7,
                "active": True,
            }
        ]
    )
    (plain,) = parse_pyspy(data, at_ns=1, pid=7).threads[0].frames
    assert plain.values is None
    (asked,) = parse_pyspy(data, at_ns=1, pid=7, with_values=True).threads[0].frames
    assert asked.locals == plain.locals
    assert asked.values == {
        "steps": "1234",
        "name": '"' + "x" * 199,
        "hub_token": "***",
        "held": '["***", 3]',
    }
