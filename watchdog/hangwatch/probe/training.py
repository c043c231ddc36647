"""Training telemetry of this rank, as part of the beat (``model.beats.Beat.telemetry``). Standard library only.

The program calls ``report``, which only notes plain numbers; everything else happens in the probe's thread, once per
beat. Each source keeps its last steps, so that an agent that missed many beats still sees them; the agent remembers
what is older.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from typing import Any, Deque

from . import trainers
from .beat import finite

#: Steps each source keeps in the beat.
STEPS_KEPT = 64
_SETUP_PERIOD = 20
_REPORTED = ("step", "loss", "learning_rate", "grad_norm")
_LOGGED = ("loss", "grad_norm", "learning_rate", "epoch", "step")

#: What the program reported itself: a running number, the wall clock, then ``_REPORTED``.
reported: Deque[tuple[Any, ...]] = deque(maxlen=STEPS_KEPT)
_PLAIN = frozenset({float, int, type(None)})
_numbers = itertools.count(1)


def note_report(step: Any, loss: Any, lr: Any, grad_norm: Any) -> None:
    """Note what the program reports; values that are no plain numbers (tensors above all) are dropped."""
    if not (type(step) in _PLAIN and type(loss) in _PLAIN and type(lr) in _PLAIN and type(grad_norm) in _PLAIN):
        step, loss, lr, grad_norm = (trainers.number(value) for value in (step, loss, lr, grad_norm))
    reported.append((next(_numbers), time.time_ns(), step, loss, lr, grad_norm))


class Telemetry:
    """Collects what training says; used by the probe's thread alone."""

    def __init__(self) -> None:
        self._steps: dict[str, Deque[str]] = {}
        self._count = 0
        self._reports_seen = 0
        self._logs: dict[int, trainers.TrainerLog] = {}
        self._engines: dict[int, tuple[int, int]] = {}
        self._setup = ""
        self._countdown = 0
        self._known = 0

    def render(self, now_ns: int) -> str:
        """Return the JSON of ``model.beats.BeatTelemetry``; empty while there is nothing to say."""
        reached: int | None = None
        living = list(trainers.living())
        self._forget({id(found) for _, found in living})
        for source, found in living:
            try:
                step = self._read(source, found, now_ns)
            except (AttributeError, KeyError, IndexError, RuntimeError):  # it is being built, or is changing
                continue
            reached = step if step is not None else reached
        reached = self._take_reports(reached)
        if not self._steps and not living:
            return ""
        self._refresh_setup(living)
        steps = ",".join(step for kept in self._steps.values() for step in list(kept))
        return '{"reached":%s,"setup":%s,"steps":[%s]}' % (json.dumps(reached), self._setup, steps)

    def _read(self, source: str, found: Any, now_ns: int) -> int | None:
        """Take in what one trainer or engine says; return the step it has reached, or None."""
        if source == "transformers":
            log = self._logs.setdefault(id(found), trainers.TrainerLog())
            for entry in log.read_new(found, STEPS_KEPT):
                self._keep(source, now_ns, entry, _LOGGED, trainers.reward_of(entry))
            return trainers.read_trainer_step(found)
        if source == "lightning":
            return trainers.read_lightning_step(found)
        values = trainers.read_engine_step(found, trainers.computes_on_cpu(found))
        if values is None:
            return None
        step, skipped = values["step"], values.get("skipped_steps", 0)
        step_before, skipped_before = self._engines.get(id(found), (0, 0))
        if step != step_before:
            self._engines[id(found)] = (step, skipped)
            # It is known for this step only if it was the same for every step since we last looked.
            if skipped == skipped_before or skipped - skipped_before == step - step_before:
                values["overflow"] = skipped != skipped_before
            self._keep(source, now_ns, values, tuple(values))
        return int(step)

    def _take_reports(self, reached: int | None) -> int | None:
        for count, at_ns, *values in list(reported):
            if count > self._reports_seen:
                self._reports_seen = count
                entry = dict(zip(_REPORTED, values))  # noqa: B905 -- Python 3.8 has no strict
                self._keep("report", at_ns, entry, _REPORTED)
                if isinstance(entry["step"], int):
                    reached = entry["step"]
        return reached

    def _keep(
        self, source: str, at_ns: int, entry: dict[str, Any], names: tuple[str, ...], reward: float | None = None
    ) -> None:
        self._count += 1
        fields: dict[str, Any] = {"count": self._count, "source": source, "at_ns": at_ns}
        if reward is not None:
            fields["texts"] = {"reward": repr(reward)}
        for name in names:
            value = trainers.number(entry.get(name))
            if value is not None:
                fields[name] = finite(value)
            elif isinstance(entry.get(name), str):
                fields.setdefault("texts", {})[name] = entry[name][:64]
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False)
        self._steps.setdefault(source, deque(maxlen=STEPS_KEPT)).append(text)

    def _refresh_setup(self, living: list[tuple[str, Any]]) -> None:
        """Read versions and settings again if a trainer is new, and at intervals: they rarely change."""
        self._countdown -= 1
        if self._countdown > 0 and len(living) == self._known:
            return
        self._countdown, self._known = _SETUP_PERIOD, len(living)
        setup: dict[str, Any] = {"versions": trainers.read_versions()}
        for source, found in living:
            try:
                if source == "transformers":
                    setup["trainer"] = trainers.read_trainer_settings(found)
                elif source == "deepspeed":
                    setup["deepspeed"] = trainers.read_engine_settings(found)
            except (AttributeError, KeyError, RuntimeError):
                self._countdown = 1
            if setup.get("deepspeed", "") is None or setup.get("trainer", "") is None:
                self._countdown = 1  # it is still being built
        plain = {name: value for name, value in setup.items() if value is not None}
        self._setup = json.dumps({k: {n: finite(v) for n, v in part.items()} for k, part in plain.items()})

    def _forget(self, living: set[int]) -> None:
        for table in (self._logs, self._engines):
            for key in [key for key in table if key not in living]:
                del table[key]
