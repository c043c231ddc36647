"""A second local user, whose processes lie about themselves to an agent that is root (docs/security.md, "Who may do what")."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangwatch.sources.discovery.ranks import RankFinder
from hangwatch.sources.stacks.source_lines import SourceLines
from support import Job, JobRunner, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes users, which takes root")
#: Two users that nobody is.
ONE, TWO = 64998, 64999
#: What a user runs; without an exec, as this Python may be where no other user finds it.
_RANK = """
import os, sys, time
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
print("up", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may search; the temporary one of pytest is root's."""
    with tempfile.TemporaryDirectory(prefix="users-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def start(jobs: JobRunner) -> Callable[..., Job]:
    """Starts a rank as a user, with an environment."""

    def start_one(user: int, **env: str) -> Job:
        job = jobs.start([sys.executable, "-I", "-S", "-c", _RANK, str(user)], env=env)
        wait_for(lambda: "up" in job.stdout(), 20.0, "the process to be up")
        return job

    return start_one


def test_nobody_joins_the_job_of_another_user(start: Callable[..., Job]) -> None:
    """A process with the job's name, meeting place and a rank of it is no rank of it: it could be blamed, and end the job."""
    job = {
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29766",
        "HANGWATCH_JOB": "ones",
    }
    own = {rank: start(ONE, RANK=str(rank), **job).pid for rank in (0, 1)}
    evil = start(TWO, RANK="1", **job)
    found = {one.job.id: {rank.rank: rank.pid for rank in one.ranks} for one in RankFinder().find().jobs}
    assert found["ones"] == own
    assert [ranks for name, ranks in found.items() if name != "ones" and evil.pid in ranks.values()] == [{1: evil.pid}]


def test_no_file_is_shown_that_the_ranks_user_may_not_read(start: Callable[..., Job], folder: Path) -> None:
    """A stack names any file as its program: that of another user, or a link to a secret. The agent reads as its user could."""
    secret = folder / "of-root"
    secret.mkdir(mode=0o700)
    (secret / "key.py").write_text("key = 'of root'\n")
    (secret / "key.py").chmod(0o644)
    (folder / "closed.py").write_text("key = 'of root'\n")
    (folder / "closed.py").chmod(0o600)
    (folder / "open.py").write_text("print('anybody')\n")
    (folder / "open.py").chmod(0o644)
    for name, target in {"shadow": "/etc/shadow", "key": secret / "key.py", "environ": "/proc/self/environ"}.items():
        (folder / f"{name}.py").symlink_to(target)
    (folder / "there.py").symlink_to("open.py")
    names = [
        "open.py",
        "there.py",
        "closed.py",
        "of-root/key.py",
        "shadow.py",
        "key.py",
        "environ.py",
        "of-root/../open.py",
    ]
    rank = start(ONE)
    places = [(str(folder / name), 1) for name in names]
    found = {Path(file).name: line.text for (file, _), line in SourceLines().read(rank.pid, places).items()}
    assert found == {"open.py": "print('anybody')", "there.py": "print('anybody')"}
    RankFinder().find()
    rank.process.kill()
    rank.process.wait()
    found = {Path(file).name: line.text for (file, _), line in SourceLines().read(rank.pid, places).items()}
    assert found == {"open.py": "print('anybody')", "there.py": "print('anybody')"}, "it has ended"


def test_a_link_of_a_container_leads_nowhere_else(jobs: JobRunner, folder: Path) -> None:
    """A process whose root is a folder: its absolute links lead to its own files, and ``..`` does not leave them."""
    inside = folder / "inside"
    (inside / "app").mkdir(parents=True)
    (folder / "secret.py").write_text("key = 'of the node'\n")
    (inside / "app" / "own.py").write_text("print('own')\n")
    (inside / "app" / "out.py").symlink_to(folder / "secret.py")
    (inside / "app" / "up.py").symlink_to(f"../../../../../..{folder}/secret.py")
    (inside / "app" / "absolute.py").symlink_to("/app/own.py")
    program = "import os, sys, time; os.chroot(sys.argv[1]); os.chdir('/'); print('up', flush=True); time.sleep(3600)"
    job = jobs.start([sys.executable, "-I", "-S", "-c", program, str(inside)])
    wait_for(lambda: "up" in job.stdout(), 20.0, "the process to be up")
    places = [(f"/app/{name}.py", 1) for name in ("own", "out", "up", "absolute")] + [
        (f"/app/../..{folder}/secret.py", 1)
    ]
    found = {Path(file).name: line.text for (file, _), line in SourceLines().read(job.pid, places).items()}
    assert found == {"own.py": "print('own')", "absolute.py": "print('own')"}


def test_source_of_a_process_of_the_agents_own_user_is_read_after_its_end(jobs: JobRunner, folder: Path) -> None:
    """A job that has failed is read at its end: whose its processes were is remembered from when they lived."""
    (folder / "own.py").write_text("print('own')\n")
    (folder / "own.py").chmod(0o600)
    job = jobs.start([sys.executable, "-I", "-S", "-c", "print('up', flush=True); import time; time.sleep(3600)"])
    wait_for(lambda: "up" in job.stdout(), 20.0, "the process to be up")
    RankFinder().find()
    job.process.kill()
    job.process.wait()
    assert [line.text for line in SourceLines().read(job.pid, [(str(folder / "own.py"), 1)]).values()] == [
        "print('own')"
    ]
