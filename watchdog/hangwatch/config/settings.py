"""How an agent is to work: the one typed value behind the options of ``run`` and ``agent`` and behind their file.

Pure; may import the model, msgspec and the standard library. A field is the key of the same name in the TOML file
(``config.toml``); defaults are those of a machine where nothing was set. Addresses of receivers are secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from hangwatch.model.incident import Severity

#: From the mildest to the worst.
_SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


class Action(NamedTuple):
    """A kind of action. ``effect``: what it does, after "would"; ``command``: whether it is followed by ``:CMD``.

    ``every_node``: each agent of the job takes it, for its own ranks; else the one that owns the incident alone.
    ``silent_failures``: whether it may be taken where training does not learn.
    """

    name: str
    effect: str
    command: bool = False
    every_node: bool = False
    silent_failures: bool = True

    @property
    def form(self) -> str:
        """As it is written in the settings."""
        return f"{self.name}:CMD" if self.command else self.name


#: All kinds of action, by name. What ends or restarts a job is done by ``agent.host.control.JobControl``.
ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        action.name: action
        for action in (
            Action("report", "report it"),
            Action("stop", "end the job", every_node=True),
            # A loss that is 0 or NaN is in the checkpoint as well, or comes again with the same data.
            Action("restart", "end the ranks and restart the job", every_node=True, silent_failures=False),
            Action("raise", "raise HangDetected in every rank", every_node=True, silent_failures=False),
            Action("exec", "run", command=True),
        )
    }
)


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the settings: a key that it does not know is refused. What is wrong with a value begins with its key."""


class Policy(_Section, frozen=True):
    """What is done about an incident of one sort, and when.

    ``action`` is one of ``ACTIONS``, ``exec:CMD`` with its command; one that is taken on every node may have a command beside it
    (``restart,exec:CMD``). It is taken for incidents of ``min_severity`` and above, with
    ``only_proven`` for proven ones alone, ``limit_per_hour`` times an hour at the most (0: never), and with ``dry_run``
    it is only printed what would be done.
    """

    action: str = "report"
    min_severity: Severity = "info"
    only_proven: bool = False
    limit_per_hour: int = 10
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Refuse an action that is none, and a limit below nothing."""
        known = ACTIONS.get(self.kind)
        beside = self.action.partition(":")[0].removeprefix(self.kind)
        refused = known is None or beside not in (("", ",exec") if known.every_node else ("",))
        if refused or bool(beside or (known and known.command)) != bool(self.command.strip()):
            forms = ", ".join(action.form for action in ACTIONS.values())
            raise ValueError(
                f"action: {self.action!r} is none of {forms}, restart,exec:CMD; for example 'exec:notify-oncall'"
            )
        if self.limit_per_hour < 0:
            raise ValueError(f"limit_per_hour: {self.limit_per_hour} is negative; 0 means never")

    @property
    def kind(self) -> str:
        """The name of the action, a key of ``ACTIONS``."""
        return self.action.partition(":")[0].partition(",")[0]

    @property
    def command(self) -> str:
        """The shell command of ``exec``, by itself or beside another action; empty where there is none."""
        return self.action.partition(":")[2]

    def reaches(self, severity: Severity) -> bool:
        """Whether an incident of this severity is serious enough."""
        return _SEVERITIES.index(severity) >= _SEVERITIES.index(self.min_severity)


class Receivers(_Section, frozen=True):
    """Who is notified: addresses of each kind of ``outputs.push.notifications.RECEIVERS``, of apprise, and of OTLP endpoints."""

    alertmanager: tuple[str, ...] = ()
    webhook: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    otlp: tuple[str, ...] = ()


class Retention(_Section, frozen=True):
    """How much of the state directory is kept: bundles of incidents that are over go, the oldest first, beyond any of these."""

    max_count: int = 500
    max_size_gb: float = 10.0
    max_age_days: float = 90.0

    def __post_init__(self) -> None:
        """Refuse limits that would keep nothing."""
        for name in ("max_count", "max_size_gb", "max_age_days"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: has to be greater than 0, or not even the newest bundle would be kept")


class LogSettings(_Section, frozen=True):
    """The agent's own log: ``text`` for people, ``json`` (a line each) for machines."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "warning"


class Settings(_Section, frozen=True):
    """Everything that can be set. Empty texts mean the default, which differs from command to command or place to place.

    ``stall_after_s``: seconds before an unproven hang is reported, 0 to learn them from the job. ``with_values``: keep what
    the locals of a rank that hangs hold, which may include sensitive data. ``condition_values``: keep the booleans and small
    integers that conditions name. ``native_stacks``: read all threads of a job that hangs with their native frames, which pauses
    its ranks. ``logs``: globs of files in which jobs log what
    they do not log by themselves. ``engines``: addresses of serving engines on this node, besides those that are found.
    ``exchange``: what agents of several nodes share (``exchange.opening``), empty for auto; ``job``: the name of jobs that
    their environment does not name. ``max_restarts``: how often ``run`` runs its command again for ``on_hang`` ``restart``,
    where the launcher does not restart it.
    """

    state_dir: str = ""
    listen: str = ""
    token_file: str = ""
    stall_after_s: float = 0.0
    with_values: bool = False
    condition_values: bool = True
    native_stacks: bool = False
    logs: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    exchange: str = ""
    job: str = ""
    max_restarts: int = 3
    on_hang: Policy = Policy()
    on_silent_failure: Policy = Policy()
    receivers: Receivers = Receivers()
    bundles: Retention = Retention()
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        """Refuse a patience and restarts below nothing, and an action that is none for a silent failure."""
        if self.stall_after_s < 0:
            raise ValueError(f"stall_after_s: {self.stall_after_s:g} is negative; give seconds, for example 60")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts: {self.max_restarts} is negative; 0 means never")
        if not ACTIONS[self.on_silent_failure.kind].silent_failures:
            forms = ", ".join(action.form for action in ACTIONS.values() if action.silent_failures)
            raise ValueError(
                f"on_silent_failure.action: {self.on_silent_failure.kind!r} is for hangs alone; use one of {forms}"
            )

    @property
    def patience_s(self) -> float | None:
        """The patience that was set, None where it is learnt."""
        return self.stall_after_s or None
