"""When the probe starts: on the import of torch.distributed, or when a process group is created.

A finder on ``sys.meta_path`` waits for ``torch.distributed.distributed_c10d`` and for the modules of training
libraries (``trainers.TARGETS``); a loader that it has touched is as before once its module is imported.

A process whose environment makes it a rank is probed from then on. Any other process (``mp.spawn`` passes the rank as
an argument; launchers import torch.distributed too) becomes a rank when it begins to meet the others, or gets a
process group. Three things notice that: a wrapper around ``rendezvous``, which the first call removes, a setter
around ``_World.default_pg``, and a getter of ``_World.pg_to_tag`` (torch 2.4 to 2.13). No thread waits for it, and a
fork keeps it. A process that trains without a group or a rank (one GPU, ``python train.py``) is probed as rank 0 of 1
once it makes a trainer or reports a step.

Imports the standard library only, and as little of it as possible.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False  # typing would be the most expensive import of every Python process of the job
if TYPE_CHECKING:
    from typing import Any, Callable

TARGET = "torch.distributed.distributed_c10d"
OLDEST_TORCH = (2, 4)


class _State:
    """State of this process: the running probe, if any; and which process our exit and fork handlers belong to."""

    probe: Any = None
    note: Any = None
    c10d: Any = None
    run_dir = ""
    exit_pid = 0
    forks_watched = False


def install() -> None:
    """Wait for torch.distributed if ``HANGWATCH_RUN_DIR`` is set; does nothing else."""
    _State.run_dir = os.environ.get("HANGWATCH_RUN_DIR", "")
    if not _State.run_dir:
        return
    # Registered this early, it runs after all other exit handlers: a rank that hangs in one of them still beats.
    _State.exit_pid = os.getpid()
    atexit.register(_at_exit)
    waiting = {name: handler for name, handler in _HANDLERS.items() if not _is_imported(name)}
    if waiting:
        sys.meta_path.insert(0, _Finder(waiting))
    for name in _HANDLERS.keys() - waiting.keys():
        _HANDLERS[name](sys.modules[name])


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


class _Finder:
    """Finds each target as any other finder would, and calls its handler once the module is executed."""

    def __init__(self, waiting: dict[str, Callable[[Any], None]]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._waiting:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Shadow ``exec_module`` on this one loader until it has run; a loader that does not allow it is left alone."""
        try:
            execute: Callable[[Any], None] = loader.exec_module

            def exec_module(module: Any) -> None:
                loader.__dict__.pop("exec_module", None)
                execute(module)
                handler = self._waiting.pop(module.__name__, None)
                if not self._waiting and self in sys.meta_path:
                    sys.meta_path.remove(self)
                if handler is not None:
                    handler(module)

            loader.exec_module = exec_module
        except Exception as error:
            leave_problem("could not watch the import of %s: %r" % (getattr(loader, "name", loader), error))


def _arrived(c10d: Any) -> None:
    """Handle the import of torch.distributed, which must succeed whatever fails here."""
    try:
        from . import identity, recorder

        if identity.is_child_of_rank(os.environ):
            return
        rank = identity.read_identity(os.environ).rank
        torch = sys.modules["torch"]
        if recorder.parse_version(torch.__version__) < OLDEST_TORCH:
            if rank is not None:
                leave_problem("torch %s is older than 2.4: no progress from inside the rank" % (torch.__version__,))
            return
        launcher = identity.is_launcher(identity.read_command_line())
        if not launcher:
            recorder.set_environment(os.environ, torch)
        _watch_default_group(c10d)
        _watch_first_group(c10d)
        if not launcher:
            _State.c10d = c10d
            if rank is not None:
                _start(c10d)
            else:
                _watch_rendezvous(c10d)
    except Exception as error:
        leave_problem("the probe could not be started: %r" % (error,))


def _library_arrived(module: Any) -> None:
    """Handle the import of a training library: its trainers are noted from now on."""
    try:
        from . import trainers

        trainers.watch_class(module, _trains)
    except Exception as error:
        leave_problem("could not watch the trainers of %s: %r" % (module.__name__, error))


def report(*values: Any) -> None:
    """Note what the program itself reports of a step: ``step, loss, lr, grad_norm``."""
    if _State.note is None:
        if not _State.run_dir:
            return
        from . import training

        _State.note = training.note_report
    _State.note(*values)
    if _State.probe is None and _State.c10d is not None:
        _trains()


def _trains() -> None:
    """Note that this process trains: without a group, and not as a rank's child, it is the only rank of its job."""
    if _State.probe is not None or _State.c10d is None:
        return
    from . import identity

    if not identity.is_child_of_rank(os.environ):
        _start(_State.c10d, alone=True)


def _watch_default_group(c10d: Any) -> None:
    """Notice when the default group is set or removed; the property otherwise stays as it is."""
    world = c10d._World
    plain = world.__dict__["default_pg"]

    def set_default_group(self: Any, group: Any) -> None:
        plain.fset(self, group)
        _default_group_set(c10d, group)

    world.default_pg = property(plain.fget, set_default_group, plain.fdel, plain.__doc__)


def _watch_first_group(c10d: Any) -> None:
    """Notice the first group, which may be in no world: an engine that gets weights from trainers has no other.

    ``_World.pg_to_tag`` is read where a group is registered, and otherwise only where one is destroyed; after that it
    is as before.
    """
    world = c10d._World
    plain = world.__dict__["pg_to_tag"]

    def read_tags(self: Any) -> Any:
        world.pg_to_tag = plain
        _becomes_rank(c10d)
        return plain.fget(self)

    world.pg_to_tag = property(read_tags, None, None, plain.__doc__)


def _watch_rendezvous(c10d: Any) -> None:
    """Notice when a process without a rank in its environment begins to meet the others: it may wait there for ever.

    ``init_process_group`` looks up ``rendezvous`` in its module; from the first call on it is as before.
    """
    import functools

    plain = c10d.rendezvous

    @functools.wraps(plain)
    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Any:
        if c10d.rendezvous is rendezvous:
            c10d.rendezvous = plain
        _becomes_rank(c10d, rank, world_size)
        return plain(url, rank, world_size, **options)

    c10d.rendezvous = rendezvous


def _becomes_rank(c10d: Any, rank: int = -1, world_size: int = -1) -> None:
    """Start the probe: this process meets others, or has a group.

    ``rank`` and ``world_size``: what the program says before it has a group.
    """
    try:
        from . import identity

        if identity.is_child_of_rank(os.environ):
            return
        _start(c10d)
        if _State.probe is not None and rank >= 0 and world_size > 0:
            _State.probe.joins(rank, world_size)
    except Exception as error:
        leave_problem("the probe could not be started: %r" % (error,))


def _default_group_set(c10d: Any, group: Any) -> None:
    try:
        from . import identity

        if identity.is_child_of_rank(os.environ):
            return
        if group is None:
            os.environ.pop(identity.MARKER, None)
            return
        os.environ[identity.MARKER] = str(os.getpid())
        _start(c10d)
        if _State.probe is not None:
            _State.probe.beat_now()
    except Exception as error:
        leave_problem("the probe could not be started: %r" % (error,))


def _start(c10d: Any, alone: bool = False) -> None:
    if _State.probe is not None:
        return
    from .rank import Probe

    if not _State.forks_watched:
        os.register_at_fork(after_in_child=_after_fork)
        _State.forks_watched = True
    if _State.exit_pid != os.getpid():  # multiprocessing clears inherited exit handlers in a forked child
        atexit.register(_at_exit)
        _State.exit_pid = os.getpid()
    _State.probe = Probe(_State.run_dir, c10d, alone)
    _State.probe.start()


def _after_fork() -> None:
    """Reset a forked child, which has no probe thread and is not this rank; it may become a rank of its own."""
    probe, _State.probe = _State.probe, None
    try:
        if probe is not None:
            probe.abandon()
    except Exception:
        pass


def _at_exit() -> None:
    try:
        if _State.probe is not None:
            _State.probe.stop()
    except Exception:
        pass


def leave_problem(text: str) -> None:
    """Leave one line for the agent in ``RUN_DIR/ranks/PID.problem``; silent if even that fails."""
    try:
        path = "%s/ranks/%d.problem" % (_State.run_dir, os.getpid())
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, (text + "\n").encode("utf-8", "replace"))
        finally:
            os.close(descriptor)
    except Exception:
        pass


_HANDLERS = {
    TARGET: _arrived,
    "transformers.trainer": _library_arrived,
    "deepspeed.runtime.engine": _library_arrived,
    "lightning.pytorch.trainer.trainer": _library_arrived,
    "pytorch_lightning.trainer.trainer": _library_arrived,
}
