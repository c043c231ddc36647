"""Logged steps and settings in words, as evidence. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model.incident import Evidence
from hangwatch.model.telemetry import DeepSpeedSettings, LoggedStep
from hangwatch.training.analysis.case import TrainingCase
from hangwatch.training.analysis.learning import Fault

_RATES = {"zero": "is 0 and stays there", "frozen": "does not move", "moves": "moves as planned"}
_NORMS = {
    "not finite": "the gradient norm is not finite",
    "negative": "the gradient norm is negative, which means not finite",
    "constant": "the gradient norm is a constant root of a whole number, which means groups whose norm is not finite",
    "zero": "the gradient norm is exactly 0",
}


def describe_line(line: LoggedStep) -> str:
    """Return one logged step in words: ``step 6: loss 0, gradient norm nan, learning rate 0.001``."""
    said = [
        f"{word} {number:g}"
        for word, number in (
            ("loss", line.loss),
            ("gradient norm", line.grad_norm),
            ("learning rate", line.learning_rate),
            ("steps skipped so far", line.skipped_steps),
        )
        if number is not None
    ]
    return f"{describe_place(line) or 'a step'}: {', '.join(said)}"


def describe_place(line: LoggedStep) -> str | None:
    """Return where in its run a line stands: its step, else its number among the logged lines, else its epoch; or None."""
    if line.step is not None:
        counted = line.texts.get("step") == "counted"
        return f"logged line {line.step}" if counted else f"step {line.step}"
    return f"epoch {line.epoch:g}" if line.epoch is not None else None


def describe_settings(settings: DeepSpeedSettings) -> str:
    """Return DeepSpeed's settings that bear on non-finite gradients."""
    flags = {None: "not known", True: "on", False: "off"}
    said = [f"ZeRO stage {settings.stage}" if settings.stage is not None else "ZeRO stage not known"]
    said += [f"overlap_comm {flags[settings.overlap_comm]}"]
    if settings.dtype is not None:
        said.append(settings.dtype)
    if settings.check_grad_overflow is not None:
        said.append(f"gradient overflow check {flags[settings.check_grad_overflow]}")
    if settings.reduce_bucket_size is not None:
        said.append(f"reduce_bucket_size {settings.reduce_bucket_size:g}")
    return ", ".join(said)


def observe(case: TrainingCase) -> tuple[Evidence, ...]:
    """Return the evidence of every silent failure: the lines around its beginning, and related facts."""
    return tuple(_observations(case))


def _observations(case: TrainingCase) -> Iterator[Evidence]:
    fault, rank = case.fault, case.rank
    if fault.before:
        last = fault.before[-1]
        yield Evidence(rank, last.source, f"the last good line is {describe_line(last)}")
    shown = [fault.first, *(line for line in (fault.bad[0], fault.bad[-1]) if line is not fault.first)]
    for line in dict.fromkeys(map(describe_line, shown)):
        yield Evidence(rank, fault.first.source, line)
    words = [f"the same in {len(fault.bad)} logged steps in a row"]
    if fault.norm in _NORMS:
        words.append(_NORMS[fault.norm])
    if fault.rate in _RATES:
        words.append(f"the learning rate {_RATES[fault.rate]}")
    if fault.skipped is not None:
        words.append(
            "every one of these steps was skipped" if fault.skipped else "not every one of these steps was skipped"
        )
    yield Evidence(rank, fault.bad[0].source, "; ".join(words))
    if case.deepspeed is not None:
        yield Evidence(None, f"DeepSpeed, {case.deepspeed.source}", describe_settings(case.deepspeed))
    if case.versions:
        yield Evidence(
            None, "versions", ", ".join(f"{name} {version}" for name, version in sorted(case.versions.items()))
        )


def describe_loss(fault: Fault) -> str:
    """Return what the loss is, in a few words that fit into a sentence."""
    if fault.printed_nan:
        return "NaN"
    if fault.kind == "nan":
        return "NaN (printed as 0)"
    return "0" if fault.kind == "zero" else "finite"
