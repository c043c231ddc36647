"""TensorBoard's event files. Pure; may import hangwatch.model and the standard library.

Records are framed as TensorFlow's ``lib/io/record_writer.cc`` does it: length (8 bytes, little endian), masked CRC-32C of
the length, the data, masked CRC-32C of the data. The data is a protocol buffer ``Event`` (tensorboard 2.20,
``compat/proto/event.proto`` and ``summary.proto``), of which the wall clock (field 1), the step (2) and scalars in the
summary (5) are read: values with a tag (1) and a ``simple_value`` (2), or a ``tensor`` (8) of one float.

Names of scalars: transformers 5.23.0 (``integrations/integration_utils.py``, ``rewrite_logs``): ``train/loss``; Lightning:
whatever the module logs, mostly ``train_loss``; torchtitan at 00fbaaf: ``loss_metrics/global_avg_loss``; Megatron-LM: ``lm
loss``, ``grad-norm``. Left out are ``train/train_loss``, the mean of a whole run, which a Trainer writes at its end, and
what DeepSpeed's monitor tells (``Train/Samples/train_loss``), which counts samples and not steps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from hangwatch.model.telemetry import LoggedStep

_NAMES = {
    "loss": (
        "loss", "train/loss", "loss/train", "train_loss", "train_loss_step", "train/loss_step",
        "training/loss", "training_loss", "loss_metrics/global_avg_loss", "lm loss", "lm-loss-training/lm loss",
        "train/lm_loss", "loss_step",
    ),
    "grad_norm": ("grad_norm", "train/grad_norm", "grad-norm", "grad-norm/grad-norm", "train/gradient_norm", "gradient_norm"),
    "learning_rate": (
        "lr", "learning_rate", "train/learning_rate", "train/lr", "learning-rate", "learning-rate/learning-rate",
        "lr-adamw", "lr-adam", "lr-sgd",
    ),
    "epoch": ("epoch", "train/epoch"),
    "reward": ("reward", "train/reward", "train/rewards/chosen"),
    "loss_scale": ("loss-scale", "loss-scale/loss-scale", "train/loss_scale"),
}  # fmt: skip
_FIELDS = {tag: field for field, tags in _NAMES.items() for tag in tags}


def name_scalar(tag: str) -> str | None:
    """Return what a tag stands for, one of ``_NAMES``; None for any other tag."""
    return _FIELDS.get(tag.lower())


#: Larger records hold images, graphs and audio; they are skipped without being kept.
RECORD_LIMIT_BYTES = 1 << 20
_HEAD_BYTES = 12
_CRC_BYTES = 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2


class BrokenRecord(ValueError):
    """The bytes are no record: this is no event file, or it is damaged."""


class EventStream:
    """One growing event file. ``name``: becomes the steps' source."""

    def __init__(self, name: str, rank: int | None = None) -> None:
        self._name = name
        self._rank = rank
        self._rest = b""
        self._skip = 0
        self._broken = False

    def feed(self, data: bytes, at_ns: int) -> list[LoggedStep]:
        """Return the scalars in newly written bytes, one step per event. After damage nothing more is read."""
        if self._broken:
            return []
        found: list[LoggedStep] = []
        try:
            for event in self._records(data):
                step = parse_event(event)
                if step is not None:
                    found.append(
                        msgspec.structs.replace(step, source=self._name, rank=self._rank, at_ns=step.at_ns or at_ns)
                    )
        except BrokenRecord:
            self._broken, self._rest = True, b""
        return found

    def _records(self, data: bytes) -> Iterator[bytes]:
        if self._skip:
            skipped = min(self._skip, len(data))
            data, self._skip = data[skipped:], self._skip - skipped
        data = self._rest + data if self._rest else data
        position = 0
        while len(data) - position >= _HEAD_BYTES:
            (length,) = struct.unpack_from("<Q", data, position)
            if struct.unpack_from("<I", data, position + 8)[0] != masked_crc(data[position : position + 8]):
                raise BrokenRecord("the length of a record is damaged")
            end = position + _HEAD_BYTES + length + _CRC_BYTES
            if length > RECORD_LIMIT_BYTES:
                self._skip = max(end - len(data), 0)
                position = min(end, len(data))
                continue
            if end > len(data):
                break
            yield data[position + _HEAD_BYTES : end - _CRC_BYTES]
            position = end
        self._rest = data[position:]


def parse_event(event: bytes) -> LoggedStep | None:
    """Return the scalars of one event that concern training; None without any. Raises BrokenRecord for other bytes."""
    at_s, step = 0.0, 0
    values: dict[str, float] = {}
    for number, kind, value in _fields(event):
        if number == 1 and kind == _FIXED64:
            (at_s,) = struct.unpack("<d", value)
        elif number == 2 and kind == _VARINT:
            step = int.from_bytes(value, "little")
        elif number == 5 and kind == _BYTES:
            for item, item_kind, scalar in _fields(value):
                if item == 1 and item_kind == _BYTES:
                    _take_scalar(scalar, values)
    if not values or not 0 <= step < 10**12:
        return None
    at_ns = int(at_s * 1e9) if 0 < at_s < 1e11 else 0
    reward = values.pop("reward", None)
    texts = {"reward": repr(reward)} if reward is not None else {}
    return msgspec.convert(
        {"source": "tensorboard", "at_ns": at_ns, "step": step, "texts": texts, **values}, LoggedStep
    )


def _take_scalar(item: bytes, values: dict[str, float]) -> None:
    tag, number = "", None
    for field, kind, value in _fields(item):
        if field == 1 and kind == _BYTES:
            tag = value[:200].decode("utf-8", "replace")
        elif field == 2 and kind == _FIXED32:
            (number,) = struct.unpack("<f", value)
        elif field == 8 and kind == _BYTES:
            number = _parse_tensor(value)
    name = name_scalar(tag)
    if name is not None and number is not None:
        values[name] = number


def _parse_tensor(tensor: bytes) -> float | None:
    """Return the one float of a ``TensorProto``: dtype (1), ``tensor_content`` (4), ``float_val`` (5), ``double_val`` (6)."""
    kind_of_number, number = 0, None
    for field, kind, value in _fields(tensor):
        if field == 1 and kind == _VARINT:
            kind_of_number = int.from_bytes(value, "little")
        elif field in (4, 5, 6) and kind in (_BYTES, _FIXED32, _FIXED64):
            if len(value) == 4 and kind_of_number == _FLOAT:
                (number,) = struct.unpack("<f", value)
            elif len(value) == 8 and kind_of_number == _DOUBLE:
                (number,) = struct.unpack("<d", value)
    return number


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield field number, wire type and bytes (a varint's as little endian) of each field of a message."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, kind, value.to_bytes(10, "little")
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise BrokenRecord("an unknown wire type")
        if length > len(data) - position:
            raise BrokenRecord("a field is longer than its message")
        yield number, kind, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
    raise BrokenRecord("a number is truncated")


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of a few bytes, masked as in TensorFlow's ``lib/hash/crc32c.h``."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
