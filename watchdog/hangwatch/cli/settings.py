"""The settings of ``run``, ``agent``, ``dump`` and ``doctor``: options, settings file and defaults merged into one value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from hangwatch.cli.options import SectionOption
from hangwatch.model.receivers import RECEIVER_KINDS

if TYPE_CHECKING:
    from hangwatch.config.settings import Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])

DETECTION, ACTIONS, NOTIFICATIONS = "Detection", "Actions", "Notifications"
JOBS, EVIDENCE, AGENT = "Jobs", "Evidence", "Agent"


class SettingOption(NamedTuple):
    """An option for one setting. ``setting``: its key in the settings file, ``on_hang.action``; ``attributes``: click's own."""

    setting: str
    flags: str
    section: str
    help: str
    attributes: Mapping[str, Any] = MappingProxyType({})

    @property
    def parameter(self) -> str:
        """The name of the command's parameter."""
        return self.setting.replace(".", "__")

    @property
    def blamed(self) -> str:
        """What the user has to change if the value is wrong: the option, and the variable beside it if that is set."""
        flag, variable = self.flags.partition("/")[0], self.attributes.get("envvar", "")
        return f"{flag} (or {variable})" if os.environ.get(variable) else flag


#: Every option that overrides a setting.
OPTIONS: Mapping[str, SettingOption] = MappingProxyType(
    {
        option.setting: option
        for option in (
            SettingOption(
                "stall_after_s", "--stall-after", DETECTION,
                "Seconds before an unproven hang is reported (default: learned from the job, at least 30).",
                {"metavar": "SECONDS", "type": float},
            ),
            SettingOption(
                "logs", "--log", DETECTION,
                "Read loss and learning rate from these files, if they are not found automatically; repeatable.",
                {"metavar": "GLOB", "multiple": True},
            ),
            SettingOption(
                "on_hang.action", "--on-hang", ACTIONS,
                "What to do when a hang is confirmed: report (the default); stop: end the job, with exit status 75; restart: end "
                "the ranks and start the job again; raise: raise an exception in every rank; exec:CMD: run a command; "
                "restart,exec:CMD: do both.",
                {"metavar": "ACTION"},
            ),
            SettingOption(
                "act_after_s", "--act-after", ACTIONS,
                "Seconds between the report of an unproven hang and the action (default: as long as the hang had to last to "
                "be reported, at least 60).",
                {"metavar": "SECONDS", "type": float},
            ),
            SettingOption(
                "max_restarts", "--max-restarts", ACTIONS,
                "With --on-hang restart, run CMD again up to N times if its launcher does not restart it (default: 3).",
                {"metavar": "N", "type": int},
            ),
            SettingOption(
                "on_silent_failure.action", "--on-silent-failure", ACTIONS,
                "What to do when training runs but does not learn, e.g. loss stuck at 0 or NaN: report (the default), stop or "
                "exec:CMD.",
                {"metavar": "ACTION"},
            ),
            *(
                SettingOption(
                    f"receivers.{kind.name}", kind.option, NOTIFICATIONS, f"{kind.gets}; repeatable.",
                    {"metavar": "URL", "multiple": True, "envvar": kind.variable},
                )
                for kind in RECEIVER_KINDS.values()
            ),
            SettingOption(
                "job", "--job", JOBS,
                "Name of the job, the same on all its nodes, if its environment does not provide one.",
                {"metavar": "NAME"},
            ),
            SettingOption(
                "engines", "--engine", JOBS,
                "Watch this serving engine (vLLM, SGLang, TensorRT-LLM) too, if it is not found automatically; repeatable.",
                {"metavar": "URL", "multiple": True},
            ),
            SettingOption(
                "state_dir", "--state-dir", EVIDENCE,
                "Directory of incidents (default: ~/.local/state/hangwatch).",
                {"metavar": "DIR"},
            ),
            SettingOption(
                "with_values", "--with-values", EVIDENCE,
                "Keep the values of local variables, not only types and shapes; may include sensitive data.",
                {"is_flag": True, "default": None},
            ),
            SettingOption(
                "condition_values", "--condition-values/--no-condition-values", EVIDENCE,
                "Keep booleans and small integers that conditions in the code use, and compare them between ranks (the default).",
                {"default": None},
            ),
            SettingOption(
                "native_stacks", "--native-stacks", EVIDENCE,
                "Read all threads of hanging ranks with native frames (pystack), NCCL's too; pauses each rank for a moment.",
                {"is_flag": True, "default": None},
            ),
            SettingOption(
                "listen", "--listen", AGENT,
                "Address of /metrics and the page (default: a free port on 127.0.0.1; `agent` for a whole node: port 9753).",
                {"metavar": "HOST:PORT"},
            ),
            SettingOption(
                "exchange", "--exchange", AGENT,
                "Where agents of a job on several nodes meet: auto (the default) or tcp[:PORT]: at a TCPStore next to rank 0; "
                "redis://...: at a Redis; local: nowhere.",
                # The URL may contain a password.
                {"metavar": "WHERE", "envvar": "HANGWATCH_EXCHANGE"},
            ),
        )
    }
)  # fmt: skip
#: Environment variables that hold secrets of the agent: the job must not inherit them.
SECRET_VARIABLES = frozenset(
    {*(kind.variable for kind in RECEIVER_KINDS.values()), OPTIONS["exchange"].attributes["envvar"]}
)
RECEIVER_SETTINGS = tuple(f"receivers.{kind}" for kind in RECEIVER_KINDS)

config = click.option(
    "--config",
    cls=SectionOption,
    section=AGENT,
    metavar="FILE",
    envvar="HANGWATCH_CONFIG",
    type=click.Path(path_type=Path),
    help="Settings file in TOML (see docs/configuration.md); options override it.",
)


def takes_settings(*settings: str) -> Callable[[_Function], _Function]:
    """Return a decorator that gives a command the options for these settings."""

    def decorate(function: _Function) -> _Function:
        for setting in reversed(settings):
            option = OPTIONS[setting]
            function = click.option(
                option.parameter,
                option.flags,
                cls=SectionOption,
                section=option.section,
                help=option.help,
                **option.attributes,
            )(function)
        return function

    return decorate


def combine(given: Mapping[str, object], config: Path | None = None) -> Settings:
    """Return the settings of a command: the option if given, else the settings file, else the default.

    ``given``: values by ``SettingOption.parameter``; None and empty ones were not given. Raises ``UserError``.
    """
    import msgspec

    from hangwatch.config.settings import Settings
    from hangwatch.config.toml import read_config
    from hangwatch.model.errors import UserError

    settings = Settings()
    if config is not None:
        settings = check_addresses(read_config(config), lambda setting: f"{config}: {setting}")
    for option in OPTIONS.values():
        value = given.get(option.parameter)
        if value in (None, "", ()):
            continue
        section, _, key = option.setting.rpartition(".")
        try:
            if section:
                changed = msgspec.structs.replace(getattr(settings, section), **{key: value})
                settings = msgspec.structs.replace(settings, **{section: changed})
            else:
                settings = msgspec.structs.replace(settings, **{key: value})
        except ValueError as error:
            raise UserError(f"{option.blamed}: {str(error).partition(': ')[2]}") from None
    return check_addresses(settings, lambda setting: OPTIONS[setting].blamed)


def check_addresses(settings: Settings, blame: Callable[[str], str]) -> Settings:
    """Return the settings with complete addresses of engines.

    Raises ``UserError`` for an address that is malformed or a token that cannot be read; ``blame``: says what the user has to
    change, by the key of the setting.
    """
    import msgspec

    from hangwatch.model.errors import PlainError, UserError

    engines: tuple[str, ...] = ()
    setting = ""
    try:
        for setting, value in _addresses(settings):
            if setting == "exchange":
                from hangwatch.exchange.opening import parse_exchange

                parse_exchange(value)
            elif setting == "listen":
                from hangwatch.outputs.web.server import parse_listen

                parse_listen(value)
            elif setting == "token_file":
                from hangwatch.outputs.web.access import read_token

                read_token({"HANGWATCH_TOKEN_FILE": value})
            elif setting == "engines":
                from hangwatch.sources.connections.endpoint import check_engine

                engines = (*engines, check_engine(value))
            else:
                from hangwatch.outputs.push.senders import parse_target

                parse_target(setting.partition(".")[2], value)
    except (PlainError, ValueError) as error:
        raise UserError(f"{blame(setting)}: {error}") from None
    return msgspec.structs.replace(settings, engines=engines)


def _addresses(settings: Settings) -> list[tuple[str, str]]:
    """Return the settings that are addresses or files with secrets, each with its key."""
    import msgspec

    single = [(key, getattr(settings, key)) for key in ("exchange", "listen", "token_file")]
    engines = [("engines", url) for url in settings.engines]
    targets = msgspec.structs.asdict(settings.receivers)
    receivers = [(f"receivers.{kind}", url) for kind, urls in targets.items() for url in urls]
    return [(key, value) for key, value in (*single, *engines, *receivers) if value]
