"""A user's own sitecustomize that has a rank do, in a thread, what the FIFO ``$ACTS/RANK`` asks for: one name a line.

Nothing of it changes what the rank computes. ``$ACTS/done`` gets a line for each.
"""
# It runs in every Python process of the job.

import os
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(os.environ.pop("ACTS", ""))  # the rank's children have no orders


def fork():
    """A child that ends at once."""
    os.waitpid(os.fork() or os._exit(0), 0)


def fork_closing_all():
    """A child that closes every descriptor, as a daemon does, and outlives the call."""
    if os.fork() == 0:
        os.closerange(0, 4096)
        time.sleep(2.0)
        os._exit(0)


def execute(*options):
    """A Python of its own, with the rank's environment."""
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, *options, "-c", "pass"], os.environ), 0)


def spawn():
    """A child of multiprocessing, which imports the program again."""
    import multiprocessing

    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0.1,))
    child.start()
    child.join()


def use_up_descriptors():
    """No descriptor is left for a moment."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())), before[1]))
    time.sleep(1.5)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def refuse_ptrace():
    """Nobody without CAP_SYS_PTRACE may look into it for a moment (prctl(2), PR_SET_DUMPABLE)."""
    import ctypes

    ctypes.CDLL(None).prctl(4, 0)
    time.sleep(3.0)
    ctypes.CDLL(None).prctl(4, 1)


def lose_folder():
    """Its working directory is deleted."""
    folder = FOLDER / f"gone-{os.getpid()}"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


ACTS = {
    "fork": fork,
    "fork, closing all": fork_closing_all,
    "python": execute,
    "python -I": lambda: execute("-I"),
    "python -S -E": lambda: execute("-S", "-E"),
    "spawn": spawn,
    "descriptors": use_up_descriptors,
    "ptrace": refuse_ptrace,
    "folder": lose_folder,
}


def _obey(fifo):
    with fifo.open("r+b", buffering=0) as orders, (FOLDER / "done").open("a", buffering=1) as done:
        while True:
            order = orders.readline().decode().strip()
            try:
                ACTS[order]()
            except Exception as error:  # noqa: BLE001  # whatever the machine has refused
                order = f"{order}: {error!r}"
            done.write(f"{order}\n")


if Path() != FOLDER and (FOLDER / os.environ.get("RANK", "none")).exists():
    threading.Thread(target=_obey, args=(FOLDER / os.environ["RANK"],), daemon=True).start()
