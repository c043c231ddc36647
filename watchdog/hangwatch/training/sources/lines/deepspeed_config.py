"""What DeepSpeed says of itself when an engine is made: version, ranks and the configuration in force. Pure.

DeepSpeed 0.9.5 to 0.19.8: ``__init__.py`` (``DeepSpeed info: version=0.14.4, git-hash=...``) and ``runtime/config.py``,
``DeepSpeedConfig.print``, a line for every attribute, in the log prefix of ``config.py``::

    [INFO] [config.py:1003:print]   zero_config .................. stage=2 contiguous_gradients=True ... overlap_comm=True ...
    [INFO] [config.py:1003:print]   world_size ................... 8
"""

from __future__ import annotations

import re

import msgspec

from hangwatch.model.telemetry import DeepSpeedSettings
from hangwatch.training.sources.lines.values import parse_count, parse_number

_VERSION = re.compile(rb"DeepSpeed info: version=(\d[\w.+-]{0,40})")
_ATTRIBUTE = re.compile(rb"\[config\.py:\d{1,6}:print\]\s{1,4}(\w{1,60}) \.{0,40} ([^\r\n]{1,4000})")
_PART = re.compile(r"(\w+)=(?:<\w+\.\w+: )?([^\s<>,)]+)")
_FLAGS = {"True": True, "False": False}


class DeepSpeedWords(msgspec.Struct, frozen=True, omit_defaults=True):
    """``version``: as DeepSpeed prints it. ``settings``: None if it printed no configuration."""

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
        settings=_settings(said) if "zero_config" in said else None,
    )


def _settings(said: dict[str, str]) -> DeepSpeedSettings:
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
    stage = parse_count(zero.get("stage", ""))
    clipping = parse_number(said.get("gradient_clipping", ""))
    return DeepSpeedSettings(
        source="log",
        stage=stage,
        overlap_comm=_FLAGS.get(zero.get("overlap_comm", "")),
        reduce_bucket_size=_whole(zero.get("reduce_bucket_size")),
        allgather_bucket_size=_whole(zero.get("allgather_bucket_size")),
        contiguous_gradients=_FLAGS.get(zero.get("contiguous_gradients", "")),
        dtype=dtype,
        check_grad_overflow=True if dtype == "fp16" else _FLAGS.get(halves["bf16"].get("check_grad_overflow", "")),
        gradient_clipping=clipping,
        gradient_accumulation_steps=parse_count(said.get("gradient_accumulation_steps", "")),
        batch=parse_count(said.get("train_micro_batch_size_per_gpu", "")),
    )


def _whole(word: str | None) -> int | None:
    number = parse_number(word or "")
    return int(number) if number is not None and abs(number) < 2**63 else None
