"""DeepSpeed's configuration as it was given to a rank, or as DeepSpeed prints it into its log.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. The probe knows better
what the engine really uses; this is for a rank without the probe.

A configuration is what ``DeepSpeedConfig`` takes (``runtime/config.py``, 0.19.8) and accelerate's
``HfDeepSpeedConfig`` (``utils/deepspeed.py``, 1.15): a path, a JSON object, or the urlsafe base64 of either.
accelerate's own YAML reaches its ranks as ``ACCELERATE_DEEPSPEED_*`` (``utils/launch.py``), so their environment is
read instead of the YAML. Values that are ``auto`` are filled in by the reader of the file: None here.

When an engine is made, DeepSpeed 0.9.5 to 0.19.8 prints its version (``__init__.py``: ``DeepSpeed info: version=0.14.4,
git-hash=...``) and every attribute of the configuration in force (``runtime/config.py``, ``DeepSpeedConfig.print``)::

    [INFO] [config.py:1003:print]   zero_config .................. stage=2 contiguous_gradients=True ... overlap_comm=True ...
    [INFO] [config.py:1003:print]   world_size ................... 8
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import DeepSpeedSettings
from hangwatch.sources.discovery.rank_environment import pick_variables
from hangwatch.sources.proc.files import read_arguments, read_link, read_small, read_whole
from hangwatch.training.sources.lines import parse_count, parse_number

_SOURCE = "DeepSpeed configuration"
#: ``--deepspeed`` and ``--ds``: transformers' and LLaMA-Factory's arguments; the others: DeepSpeed's own and accelerate's.
_OPTIONS = frozenset({"deepspeed", "ds", "ds_config", "deepspeed_config", "deepspeed_config_file"})
#: The same in a YAML or JSON file of arguments, as LLaMA-Factory's ``deepspeed: examples/deepspeed/ds_z2_config.json``.
_NAMED_IN_FILE = re.compile(rb"""^\s*["']?deepspeed(?:_config)?["']?\s*:\s*["']?([^\s"',#{]+)""", re.MULTILINE)
_VARIABLES = ("ACCELERATE_DEEPSPEED_CONFIG_FILE", "ACCELERATE_DEEPSPEED_ZERO_STAGE", "ACCELERATE_MIXED_PRECISION")
_LARGEST_FILE_BYTES = 1 << 20
#: The first version that skips bf16 steps with non-finite gradients by default (DeepSpeed#8035, and #6976 before it).
_CHECKED_BY_DEFAULT = (0, 19, 3)
_DTYPES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16"}


class DeepSpeedConfigError(ValueError):
    """A configuration that cannot be read; the message says why."""


def read_deepspeed_config(pid: int, version: str | None = None) -> DeepSpeedSettings | Gap | None:
    """Return the configuration that a rank was started with; None if nothing names one.

    ``version``: DeepSpeed's, for its defaults.
    """
    arguments = read_arguments(pid)
    environment = pick_variables(read_whole(f"/proc/{pid}/environ", 1 << 20) or b"", _VARIABLES, 1 << 20)
    given = (
        find_given(arguments) or environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE") or _named_in_file(pid, arguments)
    )
    if given is None or given == "none":
        stage = environment.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "")
        if not stage.isdigit():
            return None
        dtype = _DTYPES.get(environment.get("ACCELERATE_MIXED_PRECISION", ""), "fp32")
        config = {"zero_optimization": {"stage": int(stage)}, **({dtype: {"enabled": True}} if dtype != "fp32" else {})}
        return parse_deepspeed_config(config, "environment", version)
    try:
        return _read_given(pid, given, version)
    except DeepSpeedConfigError as error:
        return Gap(_SOURCE, str(error), hint="start the job with the probe, which asks the engine directly")


def _read_given(pid: int, given: str, version: str | None) -> DeepSpeedSettings:
    """Return the configuration that a command line gives. Raises ``DeepSpeedConfigError``."""
    if given.lstrip().startswith("{"):
        return parse_deepspeed_config(_decode(given.encode()), "command line", version)
    path = _place(pid, given)
    if path is not None:
        data = read_whole(str(path), _LARGEST_FILE_BYTES + 1) or b""
        if len(data) > _LARGEST_FILE_BYTES:
            raise DeepSpeedConfigError(f"{given} is too large for a configuration")
        return parse_deepspeed_config(_decode(data), given, version)
    try:
        decoded = base64.b64decode(given, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded.lstrip().startswith(b"{"):
        raise DeepSpeedConfigError(f"{given[:200]} is neither a readable file nor JSON")
    return parse_deepspeed_config(_decode(decoded), "command line", version)


def find_given(arguments: Sequence[str]) -> str | None:
    """Return what a command line names as DeepSpeed's configuration, the last if several; None for a bare flag."""
    found = None
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, separator, value = argument.partition("=")
        # Training arguments of Hydra or LLaMA-Factory have no dashes.
        if name.lstrip("-").replace("-", "_") not in _OPTIONS or not (argument.startswith("-") or separator):
            continue
        value = value if separator else following
        if value and not value.startswith("-"):
            found = value
    return found


def _named_in_file(pid: int, arguments: Sequence[str]) -> str | None:
    """Return the configuration that a YAML or JSON file of arguments on the command line names; else None."""
    for argument in arguments[1:]:
        if argument.endswith((".yaml", ".yml", ".json")) and (path := _place(pid, argument)) is not None:
            found = _NAMED_IN_FILE.search(read_small(str(path)) or b"")
            if found is not None:
                return found[1].decode(errors="replace")
    return None


def _place(pid: int, name: str) -> Path | None:
    """Return our path of a regular file of the process (its working directory, its root); None if it is none."""
    folder = read_link(f"/proc/{pid}/cwd")
    if len(name) > 4096 or "\0" in name or folder is None:
        return None
    inside = Path(folder) / name
    for path in (Path(f"/proc/{pid}/root") / str(inside).lstrip("/"), inside):
        try:
            if path.is_file():
                return path
        except OSError:
            continue
    return None


def _decode(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DeepSpeedConfigError(f"not readable JSON: {error}") from None


def parse_deepspeed_config(config: object, source: str, version: str | None = None) -> DeepSpeedSettings:
    """Return a configuration's object as settings, with the defaults of ``version`` (None: those that all versions share).

    Defaults are those of ``runtime/zero/config.py`` and ``runtime/precision_config.py``: ``overlap_comm`` is on for
    stage 3 and off for others (0.9.5 to 0.19.8). Raises ``DeepSpeedConfigError`` if it is no object.
    """
    if not isinstance(config, dict):
        raise DeepSpeedConfigError("not a JSON object")
    zero = _object(config, "zero_optimization")
    stage = _whole(zero, "stage")
    if stage is None and zero.get("stage") is None:
        stage = 0
    overlap = _flag(zero, "overlap_comm")
    if overlap is None and zero.get("overlap_comm") is None:
        overlap = stage == 3 if stage is not None else None
    bucket = _whole(zero, "reduce_bucket_size")
    if bucket is None and zero.get("reduce_bucket_size") is None:
        bucket = 500_000_000  # elements
    dtype = _dtype(config)
    return DeepSpeedSettings(
        source=source,
        stage=stage,
        overlap_comm=overlap,
        reduce_bucket_size=bucket,
        dtype=dtype,
        check_grad_overflow=_check(config, dtype, parse_release(version)),
        gradient_accumulation_steps=_whole(config, "gradient_accumulation_steps"),
    )


def parse_release(version: str | None) -> tuple[int, ...] | None:
    """Return the numbers that a version begins with: (0, 19, 3) of ``0.19.3+cu12``; None without numbers."""
    found = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in found[0].split(".")) if found else None


def _dtype(config: Mapping[str, object]) -> str | None:
    """Return fp16, bf16 or fp32; None if it is left to the trainer (``auto``)."""
    for name, dtype in _DTYPES.items():
        enabled = _object(config, name).get("enabled")
        if enabled == "auto":
            return None
        if enabled is True:
            return dtype
    return "fp32"


def _check(config: Mapping[str, object], dtype: str | None, version: tuple[int, ...] | None) -> bool | None:
    """True if steps with non-finite gradients are skipped; None if that depends on something unknown."""
    if dtype in {"fp16", "fp32"}:
        return dtype == "fp16"
    configured = _flag(_object(config, "bf16") or _object(config, "bfloat16"), "check_grad_overflow")
    if configured is not None or dtype is None or version is None:
        return configured
    return version >= _CHECKED_BY_DEFAULT


def _object(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _flag(config: Mapping[str, object], name: str) -> bool | None:
    value = config.get(name)
    return value if isinstance(value, bool) else None


def _whole(config: Mapping[str, object], name: str) -> int | None:
    value = config.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return int(value) if abs(value) < 2**63 else None


_VERSION = re.compile(rb"DeepSpeed info: version=(\d[\w.+-]{0,40})")
_ATTRIBUTE = re.compile(rb"\[config\.py:\d{1,6}:print\]\s{1,4}(\w{1,60}) \.{0,40} ([^\r\n]{1,4000})")
_PART = re.compile(r"(\w+)=(?:<\w+\.\w+: )?([^\s<>,)]+)")
_FLAGS = {"True": True, "False": False}


class DeepSpeedWords(msgspec.Struct, frozen=True, omit_defaults=True):
    """What DeepSpeed printed of itself. ``version``: as printed; ``settings``: None if it printed no configuration."""

    version: str | None = None
    world_size: int | None = None
    settings: DeepSpeedSettings | None = None


def parse_deepspeed_words(log: bytes) -> DeepSpeedWords:
    """Return what the last engine created in this part of a log says of itself."""
    versions = _VERSION.findall(log)
    said = {name.decode(): value.decode("utf-8", "replace").strip() for name, value in _ATTRIBUTE.findall(log)}
    return DeepSpeedWords(
        version=versions[-1].decode() if versions else None,
        world_size=parse_count(said.get("world_size", "")),
        settings=_printed_settings(said) if "zero_config" in said else None,
    )


def _printed_settings(said: Mapping[str, str]) -> DeepSpeedSettings:
    zero = dict(_PART.findall(said["zero_config"]))
    names = {"bf16": "bfloat16_config", "fp16": "float16_config"}
    halves = {dtype: dict(_PART.findall(said.get(name, ""))) for dtype, name in names.items()}
    enabled = {
        "bf16": halves["bf16"].get("enabled") or said.get("bfloat16_enabled"),
        "fp16": halves["fp16"].get("enabled") or said.get("fp16_enabled"),
    }
    dtype = next(
        (name for name, value in enabled.items() if value == "True"), "fp32" if any(enabled.values()) else None
    )
    bucket = parse_number(zero.get("reduce_bucket_size", ""))
    return DeepSpeedSettings(
        source="log",
        stage=parse_count(zero.get("stage", "")),
        overlap_comm=_FLAGS.get(zero.get("overlap_comm", "")),
        reduce_bucket_size=int(bucket) if bucket is not None and abs(bucket) < 2**63 else None,
        dtype=dtype,
        check_grad_overflow=True if dtype == "fp16" else _FLAGS.get(halves["bf16"].get("check_grad_overflow", "")),
        gradient_accumulation_steps=parse_count(said.get("gradient_accumulation_steps", "")),
    )
