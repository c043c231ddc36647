"""The training case: a fault and everything that bears on its cause: number of ranks, configuration, versions.

Pure; may import ``hangwatch.model`` and ``hangwatch.analysis``. The rules of silent failures take it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.model.telemetry import DeepSpeedSettings, TrainingSeries
from hangwatch.training.analysis.learning import EVIDENCE_STEPS, Fault, Learning, read_learning

#: Trainers whose loss and gradients are rightly 0 while every answer of a group gets the same reward (TRL's names).
_REWARDED = re.compile(r"GRPO|RLOO|PPO|Reinforce|OnlineDPO|NashMD|XPO|DAPO|GSPO", re.IGNORECASE)


@dataclass(frozen=True)
class TrainingCase:
    """A fault of one rank's series.

    ``differing``: the ranks whose loss differs in kind from the job's; then they are to blame. ``deepspeed``: None
    without DeepSpeed, or if its configuration was not seen. ``versions``: by distribution.
    """

    fault: Fault
    rank: int
    world_size: int | None
    deepspeed: DeepSpeedSettings | None
    versions: Mapping[str, str]
    differing: tuple[int, ...] = ()

    def at_least(self, distribution: str, version: tuple[int, ...]) -> bool | None:
        """True if a library has that version or a newer one; None if its version is not known."""
        found = re.match(r"\d+(?:\.\d+)*", self.versions.get(distribution, ""))
        return tuple(int(part) for part in found[0].split(".")) >= version if found else None


def build_training_case(series: TrainingSeries, world_size: int | None) -> TrainingCase | None:
    """Return the case of the job's fault, else of a single rank's; None if there is none, or none can be shown."""
    readings = _read_all(series, world_size)
    faults = {rank: learning.fault for rank, learning in sorted(readings.items()) if learning.fault is not None}
    well = [rank for rank, learning in readings.items() if learning.recovered]
    if not faults:
        return None
    rank, fault = next(iter(faults.items()))
    # Ranks differ if others that report are well; if no other reports, rank 0 speaks for the job.
    if rank == 0 or well:
        return _case(series, fault, rank, world_size, tuple(faults) if well else ())
    return None


def _read_all(series: TrainingSeries, world_size: int | None) -> dict[int, Learning]:
    """Return the state of each rank's series, without pipeline stages that never compute a loss."""
    ranks = dict.fromkeys((0, *(found.rank for found in series.ranks if found.rank)))
    readings = {rank: _read(series, rank, world_size) for rank in ranks}
    informative = {rank: learning for rank, learning in readings.items() if not _shows_nothing(learning)}
    others_learn = any(
        step.loss is not None and step.loss != 0 for rank in informative for step in series.of_rank(rank)
    )
    return informative if others_learn else readings


def _shows_nothing(learning: Learning) -> bool:
    """True if a rank has only ever reported a loss of 0, and no gradient norm."""
    fault = learning.fault
    return fault is not None and fault.kind == "zero" and not fault.before and fault.norm == "unknown"


def _read(series: TrainingSeries, rank: int, world_size: int | None) -> Learning:
    """Return the state of a rank's series.

    A loss learnt from rewards that is 0 while all rewards are equal is no fault.
    """
    learning = read_learning(series, rank, world_size)
    rewarded = any(setup.trainer is not None and _REWARDED.search(setup.trainer.name) for setup in series.setups)
    if rewarded and learning.fault is not None and learning.fault.kind == "zero":
        return Learning(None, learning.recovered)
    return learning


def has_recovered(series: TrainingSeries, world_size: int | None) -> bool:
    """True if every series with a loss ends with at least ``EVIDENCE_STEPS`` good lines."""
    return all(
        learning.recovered
        for rank, learning in _read_all(series, world_size).items()
        if sum(s.loss is not None for s in series.of_rank(rank)) >= EVIDENCE_STEPS
    )


def _case(
    series: TrainingSeries, fault: Fault, rank: int, world_size: int | None, differing: tuple[int, ...]
) -> TrainingCase:
    setups = sorted(series.setups, key=lambda setup: (setup.rank != rank, setup.rank or 0))
    settings = [setup.deepspeed for setup in setups if setup.deepspeed is not None]
    versions: dict[str, str] = {}
    for setup in reversed(setups):
        versions |= setup.versions
    return TrainingCase(
        fault=fault,
        rank=rank,
        world_size=world_size,
        deepspeed=settings[0] if settings else None,
        versions=versions,
        differing=differing,
    )
