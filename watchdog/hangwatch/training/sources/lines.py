"""The forms of logged lines: a line in, a step or None out. Pure; may import hangwatch.model and the standard library.

A new form is a parser and an entry in ``FORMATS``. Whoever reads the line says where and when: ``source`` and ``at_ns`` are
empty here. Each was read in the source of its library:

- transformers 4.57.6 and 5.23.0, ``trainer_callback.py``, ``ProgressCallback.on_log`` and ``PrinterCallback.on_log``: the
  ``dict`` as it is (``{'loss': 0.6931, 'grad_norm': 1.25, 'learning_rate': 0.00025, 'epoch': 0.25}``), and its floats as text
  (``{'loss': '0.6931', 'grad_norm': 'nan', ...}``). LLaMA-Factory's console (``train/callbacks.py``, ``LogCallback.on_log``)
  and TRL's trainers print the same. The line names no step, but for ms-swift's.
- JSON objects: ``trainer_log.jsonl`` of LLaMA-Factory (``src/llamafactory/train/callbacks.py`` at 9174a7a, ``LogCallback``),
  ``{"current_steps": 5, "total_steps": 100, "loss": 0.6931, "lr": 0.0001, "epoch": 0.1, ...}``, written by ``json.dumps``, so
  with a bare ``NaN``; ``logging.jsonl`` of ms-swift (``"global_step/max_steps": "2/4389"``); and those that own loops print.
- DeepSpeed 0.19.8, ``runtime/engine.py``, ``_report_progress``, and ``runtime/fp16/loss_scaler.py`` (the last one is of 0.19.3
  and later)::

    [Rank 0] step=10, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]
    [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
    [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.

- Lightning 2.6.6, ``pytorch/callbacks/progress/tqdm_progress.py`` (``BAR_FORMAT``), ``progress_bar.py`` (``get_metrics``). The
  bar counts batches, which are optimizer steps where gradients are not accumulated::

    Epoch 1:   4%|3         | 40/1095 [00:03<01:37, 10.84it/s, v_num=10, train_loss=0.693]

- Megatron-LM and its relatives, ``megatron/training/training.py``, ``training_log`` (one line). A loss that is not above 0 (so
  also NaN) is left out; skipped iterations are those of the interval alone::

    iteration       10/   500 | consumed samples: .. | learning rate: 1.0E-04 | .. | lm loss: 7.1E+00 | loss scale: 1.0 |
    grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |

- What torchtitan (``torchtitan/components/metrics.py`` at 00fbaaf, ``MetricsProcessor.log``) and own loops print, each number by
  its name: ``step: 10  loss:  7.1234  grad_norm:  1.2345``, ``iter 120: loss 2.3456, time 30ms`` (nanoGPT), ``Epoch [1/5], Step
  [100/600], Loss: 0.123``, ``step=3 loss=0.5 lr=1e-4``. A line that speaks of validation or a test is none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from hangwatch.model.telemetry import LoggedStep

#: Escape sequences of colours and cursors (ECMA-48 CSI).
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: A number as programs print it; also what is none: ``nan``, ``inf``, ``-Infinity``, and the ``nan.0`` and ``-inf.`` of
#: Lightning, which pads everything to five letters (2.6.6, ``progress/tqdm_progress.py``, ``Tqdm.format_num``).
_NUMERAL = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)(?:\.0?)?)"
_NUMBER = re.compile(_NUMERAL, re.IGNORECASE)


def parse_number(word: str) -> float | None:
    """Return the number in a word, which may be NaN or infinite; None if it is no number."""
    if len(word) > 64 or not _NUMBER.fullmatch(word):
        return None
    return float(word.rstrip(".0") if "n" in word.lower() else word)


def parse_count(word: str) -> int | None:
    """Return a whole number as large as a step can be; else None."""
    return int(word) if len(word) <= 12 and word.isascii() and word.isdigit() else None


def _keep_words(name: str, word: str) -> dict[str, str]:
    """Return the word as text if it tells more than its number: a zero, a non-finite number, or one in quotes."""
    number = parse_number(word.strip("'\" "))
    return {name: word} if number is None or not number or number - number != 0 or word[:1] in "'\"" else {}


_DICT = re.compile(r"\{[^{}]*'loss': [^{}]*\}")
#: TRL's trainers that learn from rewards or preferences tell them in the same line; a loss of 0 means something else there.
_REWARD_ITEMS = (re.compile(r"'reward': '?([^,'}]{1,64})"), re.compile(r"'rewards/[^']{1,80}': '?([^,'}]{1,64})"))
#: ms-swift 3 (``swift/trainers/callback.py``, ``ProgressCallbackNew``) puts it in; the Trainer's own line names no step.
_STEP_ITEM = re.compile(r"'global_step(?:/max_steps)?': '?(\d{1,12})\b")
_ITEM = re.compile(r"'(loss|grad_norm|learning_rate|epoch)': ('?)([^,'}]{1,64})'?")


def _parse_transformers(line: str) -> LoggedStep | None:
    found = _DICT.search(line)
    if found is None:
        return None
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for name, quote, word in _ITEM.findall(found.group()):
        number = parse_number(word.strip())
        if number is None or name in values:
            continue
        values[name] = number
        texts |= _keep_words(name, f"{quote}{word.strip()}{quote}")
    if "loss" not in values or len(values) < 2:
        return None
    reward = next((match for form in _REWARD_ITEMS if (match := form.search(found.group())) is not None), None)
    if reward is not None:
        texts["reward"] = reward[1]
    step = _STEP_ITEM.search(found.group())
    return LoggedStep("", 0, int(step[1]) if step is not None else None, texts=texts, **values)


_KEYS = {
    "loss": ("loss", "train_loss", "train/loss"),
    "grad_norm": ("grad_norm", "train/grad_norm"),
    "learning_rate": ("lr", "learning_rate", "train/learning_rate"),
    "epoch": ("epoch", "train/epoch"),
}
_STEPS = ("current_steps", "step", "global_step", "train/global_step", "iteration", "iter", "global_step/max_steps")
_REWARDS = ("reward", "train/reward", "rewards/chosen", "rewards/margins")
#: Of preferences LLaMA-Factory logs only the accuracy; an accuracy of 1 goes with a loss of 0.
_ACCURACIES, _LEARNT = ("accuracy", "rewards/accuracies"), 0.9


def _parse_json(line: str) -> LoggedStep | None:
    """Parse a line with a step, and a loss or a gradient norm."""
    start, end = line.find("{"), line.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        found = json.loads(line[start : end + 1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "train_runtime" in found:  # that is the summary at the end of a run
        return None
    values: dict[str, Any] = {name: _first(found, keys) for name, keys in _KEYS.items()}
    step = next((number for key in _STEPS if (number := _count(found.get(key))) is not None), None)
    texts = _keep_words("loss", repr(values["loss"])) if values["loss"] is not None else {}
    reward, accuracy = _first(found, _REWARDS), _first(found, _ACCURACIES)
    if reward is None and accuracy is not None and accuracy >= _LEARNT:
        reward = accuracy
    if reward is not None:
        texts["reward"] = repr(reward)
    if step is None or not 0 <= step < 10**12 or (values["loss"] is None and values["grad_norm"] is None):
        return None
    return LoggedStep("", 0, step, texts=texts, **values)


def _count(value: object) -> int | None:
    """Return a whole number, or the first of two as in ``2/4389``; else None."""
    if isinstance(value, str):
        return parse_count(value.partition("/")[0])
    return value if isinstance(value, int) else None


def _first(found: dict[str, object], keys: tuple[str, ...]) -> float | None:
    """Return the first of the keys that holds a number, also as text; None if none does."""
    for key in keys:
        value = found.get(key)
        if isinstance(value, str):
            value = parse_number(value)
        if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63):
            return float(value)
    return None


_ENGINE_STEP = re.compile(r"(?:\[Rank (\d{1,7})\] )?step=(\d{1,12}), skipped=(\d{1,12}), lr=\[([^\],]{0,64})")
_OVERFLOW = re.compile(
    r"OVERFLOW! (?:Rank (\d{1,7}) )?Skipping step\.(?: Attempted loss scale: ([\d.e+]{1,24}))?[^\[]{0,60}"
)


def _parse_deepspeed(line: str) -> LoggedStep | None:
    """Parse the line of progress, which tells steps, skipped steps and the learning rate, but no loss."""
    found = _ENGINE_STEP.search(line)
    if found is None:
        return None
    rank, step, skipped, rate = found.groups()
    return LoggedStep(
        "",
        0,
        int(step),
        int(rank) if rank else None,
        learning_rate=parse_number(rate.strip()),
        skipped_steps=int(skipped),
    )


def _parse_overflow(line: str) -> LoggedStep | None:
    """Parse the line of a skipped step, which names no step."""
    found = _OVERFLOW.search(line)
    if found is None:
        return None
    rank, scale = found.groups()
    scaled = parse_number(scale) if scale else None
    texts = {"overflow": found.group().strip()}
    return LoggedStep("", 0, rank=int(rank) if rank else None, overflow=True, loss_scale=scaled, texts=texts)


_BAR = re.compile(r"Epoch (\d{1,9}):\s{0,4}\d{1,3}%\|[^|]{0,400}\| (\d{1,12})/(\d{1,12}) \[([^\]]{0,2000})\]")
_BAR_LOSS = re.compile(
    rf"[, ](?:loss|train_loss|train/loss|loss_step|train_loss_step|reduced_train_loss)=({_NUMERAL})(?=[,\]]|$)",
    re.IGNORECASE,
)


def _parse_lightning(line: str) -> LoggedStep | None:
    """Parse one drawing of the training bar with a loss in it."""
    found = _BAR.search(line)
    if found is None:
        return None
    epoch, done, total, rest = found.groups()
    loss = _BAR_LOSS.search(rest)
    if loss is None or int(done) == 0:
        return None
    value = parse_number(loss.group(1))
    step = int(epoch) * int(total) + int(done)
    texts = _keep_words("loss", str(value))  # three significant digits, padded with zeros: 0.000 is exactly 0
    return LoggedStep("", 0, step, epoch=step / max(int(total), 1), loss=value, texts=texts)


_ITERATION = re.compile(r"\biteration\s{1,12}(\d{1,12})/\s{0,12}\d{1,12} \|(.{0,4000})")
_COLUMNS = {"learning rate": "learning_rate", "lm loss": "loss", "loss scale": "loss_scale", "grad norm": "grad_norm"}


def _parse_megatron(line: str) -> LoggedStep | None:
    found = _ITERATION.search(line)
    if found is None:
        return None
    items = dict(part.strip().rpartition(": ")[::2] for part in found.group(2).split("|") if ": " in part)
    values: dict[str, Any] = {
        field: parse_number(items[name].strip()) for name, field in _COLUMNS.items() if name in items
    }
    if not values:
        return None
    nan = parse_count(items.get("number of nan iterations", "").strip())
    skipped = parse_count(items.get("number of skipped iterations", "").strip())
    if nan and values.get("loss") is None:
        values["loss"] = float("nan")
    texts = {"loss": f"number of nan iterations: {nan}"} if nan else {}
    overflow = None if skipped is None else skipped > 0
    return LoggedStep("", 0, int(found.group(1)), overflow=overflow, texts=texts, **values)


_OTHER = re.compile(
    r"\b(?:val|valid|validation|validate|eval|evaluation|test|dev)\b|val[_/ ]loss|eval[_/ ]loss", re.IGNORECASE
)
_IS = r"['\"]?\s{0,3}[:=]?\s{0,8}"
_STEP = re.compile(rf"\b(?:global_step|train_step|step|iter|iteration)s?{_IS}\[?(\d{{1,12}})\b(?!\.\d)", re.IGNORECASE)
_LOSS = re.compile(rf"(?<![\w/.-])(?:(\w{{1,40}})[_/ -])?loss{_IS}({_NUMERAL})(?![\w.%])", re.IGNORECASE)
#: What may precede it. Any other word makes it a part of the loss (auxiliary, KL, of a discriminator), which may be 0.
_WHOLE = re.compile(
    r"\d+|total|train|training|avg|average|mean|batch|running|smoothed|current|lm|the|info", re.IGNORECASE
)
_NORM = re.compile(rf"\bgrad(?:ient)?[_ -]?norm{_IS}({_NUMERAL})(?![\w.%])", re.IGNORECASE)
_RATE = re.compile(rf"\b(?:lr|learning[_ ]rate){_IS}({_NUMERAL})(?![\w.%])", re.IGNORECASE)


def _parse_plain(line: str) -> LoggedStep | None:
    """Parse a line with a step and a loss, each by its name."""
    step, loss = _STEP.search(line), _find_loss(line)
    if step is None or loss is None or _OTHER.search(line):
        return None
    norm, rate = (parse_number(found[1]) if (found := form.search(line)) else None for form in (_NORM, _RATE))
    texts = _keep_words("loss", loss)
    return LoggedStep(
        "", 0, int(step.group(1)), loss=parse_number(loss), grad_norm=norm, learning_rate=rate, texts=texts
    )


def _find_loss(line: str) -> str | None:
    """Return the text of the whole loss, preferring a total; None if a line has only parts of a loss."""
    found = [(word.lower(), number) for word, number in _LOSS.findall(line) if not word or _WHOLE.fullmatch(word)]
    return next((number for word, number in found if word == "total"), found[0][1] if found else None)


#: All forms in the order in which they are tried, each with a word that every line of it contains.
FORMATS: tuple[tuple[str, Callable[[str], LoggedStep | None]], ...] = (
    ("'loss': ", _parse_transformers),
    ("loss", _parse_json),
    ("skipped=", _parse_deepspeed),
    ("OVERFLOW!", _parse_overflow),
    ("loss", _parse_lightning),
    ("loss", _parse_megatron),
    ("oss", _parse_plain),
)
#: A log's bytes are searched for these before anything is decoded; every line with a mark contains one.
NEEDLES = (b"loss", b"Loss", b"skipped=", b"OVERFLOW!")


def parse_line(line: str) -> LoggedStep | None:
    """Return the step that a line of output reports, by the first form that matches; None if none does."""
    plain = _ANSI.sub("", line) if "\x1b" in line else line
    for mark, parse in FORMATS:
        if mark in plain and (step := parse(plain)) is not None:
            return step
    return None
