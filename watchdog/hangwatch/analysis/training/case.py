"""The training case: a fault with everything that bears on why: how many ranks, which configuration, which versions.

Pure; may import ``hangwatch.model`` and ``hangwatch.analysis``. What the rules of silent failures take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.analysis.training.learning import EVIDENCE_STEPS, Fault, Learning, read_learning
from hangwatch.model.telemetry import DeepSpeedSettings, TrainingSeries

#: Trainers whose loss is 0 by right, gradients and all, while every answer of a group gets the same reward (TRL's names).
_REWARDED = re.compile(r"GRPO|RLOO|PPO|Reinforce|OnlineDPO|NashMD|XPO|DAPO|GSPO", re.IGNORECASE)


@dataclass(frozen=True)
class TrainingCase:
    """A fault of one rank's series. ``differing``: the ranks whose loss differs in kind from the job's, who are to blame then.

    ``deepspeed`` is None without it, or where its configuration was not seen; ``versions`` by distribution.
    """

    fault: Fault
    rank: int
    world_size: int | None
    deepspeed: DeepSpeedSettings | None
    versions: Mapping[str, str]
    differing: tuple[int, ...] = ()

    def at_least(self, distribution: str, version: tuple[int, ...]) -> bool | None:
        """Whether a library's version is that or newer; None where it is not known."""
        found = re.match(r"\d+(?:\.\d+)*", self.versions.get(distribution, ""))
        return tuple(int(part) for part in found[0].split(".")) >= version if found else None


def build_training_case(series: TrainingSeries, world_size: int | None) -> TrainingCase | None:
    """The fault there is, the job's own before that of a single rank; None where the training learns, or may."""
    readings = _read_all(series, world_size)
    faults = {rank: learning.fault for rank, learning in sorted(readings.items()) if learning.fault is not None}
    well = [rank for rank, learning in readings.items() if learning.recovered]
    if not faults:
        return None
    rank, fault = next(iter(faults.items()))
    # Ranks differ where others that report of themselves are well; rank 0 speaks for the job where no other reports.
    if rank == 0 or well:
        return _case(series, fault, rank, world_size, tuple(faults) if well else ())
    return None


def _read_all(series: TrainingSeries, world_size: int | None) -> dict[int, Learning]:
    """The state of each rank's series, by rank; without those of a pipeline's stages that never compute a loss."""
    ranks = dict.fromkeys((0, *(found.rank for found in series.ranks if found.rank)))
    readings = {rank: _read(series, rank, world_size) for rank in ranks}
    informative = {rank: learning for rank, learning in readings.items() if not _shows_nothing(learning)}
    others_learn = any(
        step.loss is not None and step.loss != 0 for rank in informative for step in series.of_rank(rank)
    )
    return informative if others_learn else readings


def _shows_nothing(learning: Learning) -> bool:
    """Whether a rank has never reported anything but a loss of 0, without a gradient norm."""
    fault = learning.fault
    return fault is not None and fault.kind == "zero" and not fault.before and fault.norm == "unknown"


def _read(series: TrainingSeries, rank: int, world_size: int | None) -> Learning:
    """The state of a rank's series; that a loss learnt from rewards is 0 while they are all equal is no fault."""
    learning = read_learning(series, rank, world_size)
    rewarded = any(setup.trainer is not None and _REWARDED.search(setup.trainer.name) for setup in series.setups)
    if rewarded and learning.fault is not None and learning.fault.kind == "zero":
        return Learning(None, learning.recovered)
    return learning


def has_recovered(series: TrainingSeries, world_size: int | None) -> bool:
    """Whether every series that reports a loss ends with good lines, ``EVIDENCE_STEPS`` of them at least."""
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
