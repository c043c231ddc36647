"""The directories: the run directory (sockets and beats, removed with the job) and the state directory (incidents).

Also what a job's environment needs to name them, and what it permits. The run directory is 0700 and its path short: a
unix socket's path may have at most 107 bytes (``sys/un.h``).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hangwatch.model.errors import UserError

_SITE = Path(__file__).resolve().parent.parent / "probe" / "site"
#: torchrun 2.13 keeps one store, in its own process, for all starts of the ranks, without a part for each: ranks find there where
#: their predecessors listened, and some starts fail (``elastic/rendezvous/dynamic_rendezvous.py``: ``next_rendezvous``;
#: ``rendezvous.py``: ``_create_c10d_store``). With this, rank 0 has a store of its own in each start.
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def default_state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$HANGWATCH_STATE_DIR``, else ``hangwatch`` under the XDG state directory."""
    given = environ.get("HANGWATCH_STATE_DIR")
    if given:
        return Path(given)
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "hangwatch"


def prepare_state_dir(path: Path) -> Path:
    """Make the state directory and return it. Raises ``UserError``, one line, if it cannot be used."""
    try:
        (path / "incidents").mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path / "incidents", prefix=".writable-"):
            pass
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(
            f"cannot write to the state directory {path}: {why}; name another with --state-dir DIR"
        ) from error
    return path.resolve()


def _volatile() -> Path:
    """Return the best folder for beats, in memory.

    On a disk the same beat was measured to cost a rank twice as much.
    """
    shared = Path("/dev/shm")  # noqa: S108  # what is made there is checked to be ours, as in any such directory
    if "TMPDIR" not in os.environ and shared.is_dir() and os.access(shared, os.W_OK | os.X_OK):
        return shared
    return Path(tempfile.gettempdir())


def _private_base() -> Path:
    """Return a 0700 directory of this user; one that somebody else made is refused."""
    base = _volatile() / f"hangwatch-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
    except OSError as error:
        raise UserError(
            f"cannot make the run directory {base}: {error.strerror}; set TMPDIR to a writable directory"
        ) from error
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise UserError(f"{base} is not a private directory of this user; remove it or set TMPDIR to another directory")
    return base


def make_run_dir() -> Path:
    """Make a run directory for one ``hangwatch run`` and return it."""
    path = Path(tempfile.mkdtemp(prefix="run-", dir=_private_base()))
    (path / "ranks").mkdir(mode=0o700)
    return path


def shared_run_dir() -> Path:
    """Return the one run directory of this user on this node, for launches without ``run`` (``hangwatch env``)."""
    path = _private_base() / "node"
    for owned in (path, path / "ranks"):  # parents=True would make the first with the umask's mode
        owned.mkdir(mode=0o700, exist_ok=True)
    return path


def remove_run_dir(path: Path) -> None:
    """Remove a run directory of ours; what cannot be removed is left to the cleaner of the temporary directory."""
    shutil.rmtree(path, ignore_errors=True)


def probe_environment(
    run_dir: Path, environ: Mapping[str, str] = os.environ, *, raises: bool = False
) -> dict[str, str]:
    """Return the variables that load the probe into every Python process started with them, with the user's own paths.

    ``SPT_NOENV`` keeps a process's title out of its environment, which could otherwise not be read in ``/proc``
    (setproctitle, and Ray, which sets the variable itself); the title may then be no longer than the command line. A
    value that the user has set stays. ``raises`` permits the agent to raise an exception in the ranks of a job that
    hangs.
    """
    paths = [str(_SITE)]
    paths += [p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(_SITE)]
    kept = {} if "SPT_NOENV" in environ else {"SPT_NOENV": "1"}
    allowed = {"HANGWATCH_RAISE": "1"} if raises else {}
    return {"HANGWATCH_RUN_DIR": str(run_dir), "PYTHONPATH": os.pathsep.join(paths), **kept, **allowed}


def restart_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a launcher whose ranks may be restarted.

    Variables that the user has set stay.
    """
    return {**_OWN_STORE, **environ}
