"""``torchrun --logs-specs hangwatch``: torchrun itself loads the probe into its workers and starts an agent that ends with it.

An entry point of the group ``torchrun.logs_specs`` (torch 2.13, ``torch/distributed/run.py``): torchrun makes one object of it
before its rendezvous, and calls ``reify`` before each start of its workers, also after a restart. It runs in torchrun's own
process, so it imports only torch and what is light of ours, and none of its failures reaches torchrun.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest

from hangwatch.config.directories import probe_environment, restart_environment, shared_run_dir
from hangwatch.config.settings import Settings
from hangwatch.config.toml import read_config
from hangwatch.model.errors import UserError
from hangwatch.sources.discovery.rank_environment import RUN_DIR_VARIABLE

#: Of our variables, what is for ranks too. Others are for the agent: addresses with secrets, and where it looks for its settings.
_FOR_RANKS = frozenset({RUN_DIR_VARIABLE, "HANGWATCH_JOB", "HANGWATCH_NODE", "HANGWATCH_RAISE", "HANGWATCH_ABORTS"})
#: The agent has no parent: torchrun neither waits for it nor sees it as a worker's child, and may be ended by it.
_DETACHED = '"$@" &'


class WatchedLogsSpecs(DefaultLogsSpecs):  # type: ignore[misc]  # torch is not checked, and absent from some environments
    """torchrun's default handling of logs, unchanged, and an agent beside it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take torchrun's own arguments; set the variables by which its rendezvous allows a restart."""
        super().__init__(*arguments, **options)
        if not _is_watched() and _read_action() in ("restart", "raise"):
            os.environ.update(restart_environment(os.environ))

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Return where each worker's output goes.

        ``envs``: what is added to the environment of each worker, by local rank.
        """
        if not _is_watched():
            try:
                _watch_this_process()
            except (OSError, UserError, subprocess.SubprocessError) as error:
                print(f"hangwatch: this job is not watched: {error}", file=sys.stderr)  # noqa: T201  # torchrun's stderr
        return super().reify(envs)


def _is_watched() -> bool:
    """True if ``hangwatch run``, ``hangwatch env`` or an earlier start has already set up the environment."""
    return RUN_DIR_VARIABLE in os.environ


def _read_action() -> str:
    """Return the action that the agent's settings have for a hang.

    If they cannot be read, the agent says so and does not start.
    """
    file = os.environ.get("HANGWATCH_CONFIG")
    try:
        settings = read_config(Path(file)) if file else Settings()
    except UserError:
        return ""
    return settings.on_hang.kind


def _watch_this_process() -> None:
    """Start the agent, and let all processes started from now on load the probe."""
    loading = probe_environment(shared_run_dir(), raises=_read_action() == "raise")
    agent = (sys.executable, "-m", "hangwatch", "agent", "--pid", str(os.getpid()))
    command = ("/bin/sh", "-c", _DETACHED, "sh", *agent)
    subprocess.run(command, check=True, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for name in [name for name in os.environ if name.startswith("HANGWATCH_") and name not in _FOR_RANKS]:
        del os.environ[name]
    os.environ.update(loading)
