"""How an agent should work: one typed value behind the options of ``run`` and ``agent`` and behind the settings file.

Pure; may import the model, msgspec and the standard library. A field is the key of the same name in the TOML file
(``config.toml``); defaults are those of a machine where nothing was set. Addresses of receivers are secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from hangwatch.model.incident import Severity
from hangwatch.model.receivers import RECEIVER_KINDS

#: From the mildest to the worst.
_SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


class Action(NamedTuple):
    """A kind of action.

    ``effect``: what it does, after "would"; ``done``: the same after "has". ``command``: it is followed by ``:CMD``.
    ``every_node``: each agent of the job takes it for its own ranks; else only the agent that owns the incident.
    ``silent_failures``: it may be taken if training does not learn.
    """

    name: str
    effect: str
    done: str
    command: bool = False
    every_node: bool = False
    silent_failures: bool = True

    @property
    def form(self) -> str:
        """How it is written in the settings."""
        return f"{self.name}:CMD" if self.command else self.name


#: All kinds of action, by name. What ends or restarts a job is done by ``agent.host.control.JobControl``.
ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        action.name: action
        for action in (
            Action("report", "report it", "reported it"),
            Action("stop", "end the job", "stopped the job", every_node=True),
            # A loss of 0 or NaN is in the checkpoint as well, or returns with the same data.
            Action(
                "restart",
                "end the ranks and restart the job",
                "ended the ranks to restart the job",
                every_node=True,
                silent_failures=False,
            ),
            Action(
                "raise",
                "raise HangDetected in every rank",
                "raised HangDetected in every rank",
                every_node=True,
                silent_failures=False,
            ),
            Action("exec", "run", "run the command", command=True),
        )
    }
)


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the settings: an unknown key is refused, and an error message about a value begins with its key."""


class Policy(_Section, frozen=True):
    """What to do about an incident of one sort, and when.

    ``action``: one of ``ACTIONS``; ``exec:CMD`` has a command, and an action that is taken on every node may have one
    too (``restart,exec:CMD``). It is taken for incidents of ``min_severity`` and above, at most ``limit_per_hour``
    times an hour (0: never). ``only_proven``: only for proven ones. ``dry_run``: only print what would be done.
    """

    action: str = "report"
    min_severity: Severity = "info"
    only_proven: bool = False
    limit_per_hour: int = 10
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown action, and a negative limit."""
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
        """The shell command of ``exec``, alone or beside another action; empty if there is none."""
        return self.action.partition(":")[2]

    def reaches(self, severity: Severity) -> bool:
        """True if an incident of this severity is serious enough."""
        return _SEVERITIES.index(severity) >= _SEVERITIES.index(self.min_severity)


if TYPE_CHECKING:
    Receivers = msgspec.Struct
else:
    #: Who is notified: addresses of each kind of ``model.receivers``.
    Receivers = msgspec.defstruct(
        "Receivers",
        [(kind, tuple[str, ...], ()) for kind in RECEIVER_KINDS],
        bases=(_Section,),
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
        module=__name__,
    )


class Retention(_Section, frozen=True):
    """How much of the state directory is kept: beyond any of these limits, bundles of ended incidents go, oldest first."""

    max_count: int = 500
    max_size_gb: float = 10.0
    max_age_days: float = 90.0

    def __post_init__(self) -> None:
        """Refuse limits that would keep nothing."""
        for name in ("max_count", "max_size_gb", "max_age_days"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: has to be greater than 0, or not even the newest bundle would be kept")


class LogSettings(_Section, frozen=True):
    """The agent's own log: ``text`` for people, ``json`` (one object per line) for machines."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "warning"


class Settings(_Section, frozen=True):
    """Everything that can be set. Empty texts mean the default, which differs from command to command or place to place.

    - ``stall_after_s``: seconds before an unproven hang is reported; 0 to learn them from the job.
    - ``act_after_s``: seconds from the report until it is acted on; 0 for as long again, at least a minute.
    - ``with_values``: keep the values of the locals of a hanging rank, which may include sensitive data.
      ``condition_values``: keep the booleans and small integers that conditions name.
    - ``native_stacks``: read all threads of a hanging job with their native frames, which pauses its ranks.
    - ``logs``: globs of training logs to read, besides those that are found.
    - ``engines``: addresses of serving engines on this node, besides those that are found.
    - ``exchange``: what agents of several nodes share (``exchange.opening``), empty for auto. ``job``: the name of
      jobs that their environment does not name.
    - ``external_url``: the address at which people reach the agent's page, for links in alerts; empty for where it
      listens. ``runbook_base_url``: where ``docs`` is published; empty for nowhere. ``outputs.briefing`` names the
      placeholders in both.
    - ``receivers``: addresses by kind (``model.receivers``).
    - ``max_restarts``: how often ``run`` runs its command again for ``on_hang`` ``restart``, if the launcher does not
      restart it.
    """

    state_dir: str = ""
    listen: str = ""
    token_file: str = ""
    stall_after_s: float = 0.0
    act_after_s: float = 0.0
    with_values: bool = False
    condition_values: bool = True
    native_stacks: bool = False
    logs: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    exchange: str = ""
    job: str = ""
    external_url: str = ""
    runbook_base_url: str = ""
    max_restarts: int = 3
    on_hang: Policy = Policy()
    on_silent_failure: Policy = Policy()
    receivers: Receivers = Receivers()
    bundles: Retention = Retention()
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        """Refuse negative patience and restarts, and an unknown action for a silent failure."""
        for name in ("stall_after_s", "act_after_s"):
            if (seconds := getattr(self, name)) < 0:
                raise ValueError(f"{name}: {seconds:g} is negative; give seconds, for example 60")
        for name in ("external_url", "runbook_base_url"):
            if (url := getattr(self, name)) and not url.startswith(("http://", "https://")):
                raise ValueError(f"{name}: {url!r} is no URL; for example https://hangwatch.example.org")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts: {self.max_restarts} is negative; 0 means never")
        if not ACTIONS[self.on_silent_failure.kind].silent_failures:
            forms = ", ".join(action.form for action in ACTIONS.values() if action.silent_failures)
            raise ValueError(
                f"on_silent_failure.action: {self.on_silent_failure.kind!r} is for hangs alone; use one of {forms}"
            )

    @property
    def patience_s(self) -> float | None:
        """The patience that the user has set, in seconds; None if it is learnt."""
        return self.stall_after_s or None
