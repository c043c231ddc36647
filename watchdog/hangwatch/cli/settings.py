"""The settings of ``run`` and ``agent``: options, settings file and defaults merged into one value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import msgspec
import typer

from hangwatch.config.errors import UserError
from hangwatch.config.settings import Policy, Settings
from hangwatch.config.toml import read_config
from hangwatch.sources.serving.endpoint import check_engine

Config = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="HANGWATCH_CONFIG",
        help="Settings file in TOML (see docs/configuration.md); command-line options override it.",
    ),
]
StallAfter = Annotated[
    Optional[float],  # noqa: UP045  # see above
    typer.Option(
        "--stall-after",
        metavar="SECONDS",
        help="Seconds before an unproven hang is reported (default: learned from the job, at least 30).",
    ),
]


WithValues = Annotated[
    bool,
    typer.Option(
        "--with-values",
        help="Store values of local variables in the bundle, not only types and shapes; may include sensitive data.",
    ),
]


ConditionValues = Annotated[
    bool,
    typer.Option(
        "--condition-values/--no-condition-values",
        help="Compare booleans and small integers that conditions in the code name, and show them.",
    ),
]


NativeStacks = Annotated[
    bool,
    typer.Option(
        "--native-stacks",
        help="Read all threads of ranks that hang, also NCCL's, with native frames (pystack); pauses each rank for a moment.",
    ),
]


#: A variable, because the URL may contain a password.
EXCHANGE_VARIABLE = "HANGWATCH_EXCHANGE"
ExchangeOption = Annotated[
    Optional[str],  # noqa: UP045  # see above
    typer.Option(
        "--exchange",
        metavar="auto|local|tcp[:PORT]|redis://...",
        envvar=EXCHANGE_VARIABLE,
        help="How agents of a multi-node job meet: at a TCPStore next to rank 0 (auto, the default), at a Redis, or not (local).",
    ),
]
JobOption = Annotated[
    Optional[str],  # noqa: UP045  # see above
    typer.Option(
        "--job",
        metavar="ID",
        help="Name of the job, the same on all its nodes, if its environment does not provide one.",
    ),
]
EngineOption = Annotated[
    Optional[list[str]],  # noqa: UP045  # see above
    typer.Option(
        "--engine",
        metavar="URL",
        help="A serving engine (vLLM, SGLang, TensorRT-LLM) on this node, if it is not found automatically; repeatable.",
    ),
]


def combine(
    config: Path | None,
    *,
    state_dir: Path | None,
    listen: str | None,
    stall_after: float | None = None,
    alertmanager: list[str] | None = None,
    webhook: list[str] | None = None,
    notify: list[str] | None = None,
    otlp: list[str] | None = None,
    on_hang: str | None = None,
    on_silent_failure: str | None = None,
    log: list[str] | None = None,
    with_values: bool = False,
    condition_values: bool = True,
    native_stacks: bool = False,
    exchange: str | None = None,
    job: str | None = None,
    max_restarts: int | None = None,
    engine: list[str] | None = None,
) -> Settings:
    """The settings of a command: the option if given, else the settings file, else the default.

    Raises ``UserError``.
    """
    settings = read_config(config) if config is not None else Settings()
    given: dict[str, object] = {
        "state_dir": str(state_dir) if state_dir is not None else None,
        "listen": listen,
        "stall_after_s": _check_stall_after(stall_after),
        "on_hang": _with_action(settings.on_hang, on_hang, "--on-hang"),
        "on_silent_failure": _with_action(settings.on_silent_failure, on_silent_failure, "--on-silent-failure"),
        "logs": tuple(log) if log else None,
        "engines": _check_engines(engine or settings.engines),
        "with_values": with_values or None,
        "condition_values": None if condition_values else False,
        "native_stacks": native_stacks or None,
        "exchange": exchange or None,
        "job": job or None,
        "max_restarts": max_restarts,
    }
    urls_by_kind = {
        "alertmanager": alertmanager, "webhook": webhook, "notify": notify, "otlp": otlp,
    }  # fmt: skip
    receivers = {kind: tuple(url for url in urls if url) for kind, urls in urls_by_kind.items() if urls}
    given["receivers"] = msgspec.structs.replace(settings.receivers, **receivers)
    try:
        return msgspec.structs.replace(settings, **{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        raise UserError(f"--{name.partition('.')[0].replace('_', '-')} {reason}") from None


def _check_stall_after(stall_after_s: float | None) -> float | None:
    if stall_after_s is not None and stall_after_s < 0:
        raise UserError(f"--stall-after {stall_after_s:g} is negative; give seconds, for example 60")
    return stall_after_s


def _check_engines(addresses: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(map(check_engine, addresses))
    except ValueError as error:
        raise UserError(f"--engine {error}") from None


def _with_action(policy: Policy, action: str | None, option: str) -> Policy | None:
    if action is None:
        return None
    try:
        return Policy(**{**msgspec.structs.asdict(policy), "action": action})
    except ValueError as error:
        reason = str(error).removeprefix("action: ").replace("for example", f"for example {option}")
        raise UserError(f"{option} {reason}") from None
