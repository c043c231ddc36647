"""DeepSpeed's configuration as a rank was given it, and the versions it runs, seen from outside."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import DeepSpeedSettings
from hangwatch.training.sources.deepspeed_config import (
    DeepSpeedConfigError,
    find_given,
    parse_deepspeed_config,
    parse_release,
    read_deepspeed_config,
)
from hangwatch.training.sources.versions import parse_maps, read_versions
from support import JobRunner

#: The machine may be slow; the examples are the same each time.
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
#: LLaVA's scripts/zero2.json.
ZERO2 = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16},
    "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": "auto",
    "train_batch_size": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {
        "stage": 2,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
    },
}
_WAIT = "import sys; print('up', flush=True); sys.stdin.read()"


def test_a_users_file() -> None:
    """What is said is taken, what is auto is not known."""
    found = parse_deepspeed_config(ZERO2, "zero2.json")
    assert (found.stage, found.overlap_comm) == (2, True)
    assert (found.dtype, found.reduce_bucket_size, found.gradient_accumulation_steps) == (None, None, None)
    assert parse_deepspeed_config({}, "x").reduce_bucket_size == 500_000_000


@pytest.mark.parametrize(("stage", "overlap"), [(0, False), (1, False), (2, False), (3, True)])
def test_the_default_of_overlap_comm(stage: int, overlap: bool) -> None:
    """It is on for stage 3 and for no other."""
    assert parse_deepspeed_config({"zero_optimization": {"stage": stage}}, "x").overlap_comm is overlap


@pytest.mark.parametrize(
    ("version", "reported", "checked"),
    [("0.14.4", None, False), ("0.19.2", None, False), ("0.19.3", None, True), ("0.20.0+abc", None, True),
     ("0.19.8", False, False), ("0.17.1", True, True), (None, None, None)],
)  # fmt: skip
def test_the_default_of_the_check_of_bf16(version: str | None, reported: bool | None, checked: bool | None) -> None:
    """Gradients in bf16 are checked since 0.19.3, unless the file says otherwise."""
    bf16 = {"enabled": True} | ({} if reported is None else {"check_grad_overflow": reported})
    assert parse_deepspeed_config({"bf16": bf16}, "x", version).check_grad_overflow is checked


def test_types() -> None:
    """fp16 is always checked, fp32 never."""
    found = [parse_deepspeed_config(c, "x") for c in ({"fp16": {"enabled": True}}, {}, {"bfloat16": {"enabled": True}})]
    assert [(f.dtype, f.check_grad_overflow) for f in found] == [("fp16", True), ("fp32", False), ("bf16", None)]


@pytest.mark.parametrize(
    ("arguments", "given_"),
    [
        (["train.py", "--deepspeed", "zero2.json", "--bf16"], "zero2.json"),
        (["train.py", "--deepspeed=zero2.json"], "zero2.json"),
        (["train.py", "--deepspeed_config", "ds.json", "--deepspeed"], "ds.json"),
        (["train.py", "--ds", "ds.json"], "ds.json"),
        (["llamafactory-cli", "train", "deepspeed=ds.json"], "ds.json"),
        (["deepspeed", "train.py", "--bf16", "True"], None),
        ([], None),
    ],
)
def test_command_lines(arguments: list[str], given_: str | None) -> None:
    """Where a configuration is named; the launcher of that name and the bare flag name none."""
    assert find_given(arguments) == given_


_NAMES = st.sampled_from(["zero_optimization", "stage", "bf16", "enabled", "overlap_comm", "offload_param", "device"])
_VALUES = st.none() | st.booleans() | st.floats() | st.text(max_size=5)


@SETTINGS
@given(st.recursive(_VALUES, lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner)))
def test_any_json_is_a_configuration_or_an_error_of_ours(value: object) -> None:
    """No nonsense gets through as an error of another type."""
    try:
        found = parse_deepspeed_config(value, "x", "0.19.8")
    except DeepSpeedConfigError:
        assert not isinstance(value, dict)
    else:
        assert isinstance(found, DeepSpeedSettings)


@pytest.mark.parametrize("form", ["path", "json", "base64", "yaml", "accelerate", "accelerate file"])
def test_a_real_process(jobs: JobRunner, tmp_path: Path, form: str) -> None:
    """Every form in which a configuration is given is found in a process that was given it, paths below its directory."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ds.json").write_text(json.dumps(ZERO2))
    (tmp_path / "arguments.yaml").write_text("### method\nstage: sft\ndeepspeed: conf/ds.json  # ZeRO-2\n")
    text = json.dumps(ZERO2)
    arguments, environment = {
        "path": (["--deepspeed", "conf/ds.json"], {}),
        "json": (["--deepspeed", text], {}),
        "base64": (["--deepspeed_config", base64.urlsafe_b64encode(text.encode()).decode()], {}),
        "yaml": (["train", "arguments.yaml"], {}),
        "accelerate": ([], {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "2", "ACCELERATE_MIXED_PRECISION": "bf16"}),
        "accelerate file": ([], {"ACCELERATE_DEEPSPEED_CONFIG_FILE": "conf/ds.json"}),
    }[form]
    job = jobs.start([sys.executable, "-c", _WAIT, *arguments], env=environment, cwd=tmp_path, stdin=subprocess.PIPE)
    job.wait_for_output("up")
    found = read_deepspeed_config(job.process.pid)
    assert isinstance(found, DeepSpeedSettings)
    assert found.stage == 2
    assert found.overlap_comm is (form != "accelerate")
    assert found.dtype == ("bf16" if form == "accelerate" else None)


def test_a_file_that_is_not_there_is_a_gap(jobs: JobRunner, tmp_path: Path) -> None:
    """The gap says which; a process that names none has none."""
    job = jobs.start([sys.executable, "-c", _WAIT, "--deepspeed", "gone.json"], cwd=tmp_path, stdin=subprocess.PIPE)
    job.wait_for_output("up")
    found = read_deepspeed_config(job.process.pid)
    assert isinstance(found, Gap)
    assert "gone.json" in found.reason
    other = jobs.start([sys.executable, "-c", _WAIT], cwd=tmp_path, stdin=subprocess.PIPE)
    other.wait_for_output("up")
    assert read_deepspeed_config(other.process.pid) is None


def test_versions_of_a_real_process(jobs: JobRunner) -> None:
    """They are those of the environment whose torch it has loaded, without anything being imported from there."""
    job = jobs.start([sys.executable, "-c", f"import torch; {_WAIT}"], stdin=subprocess.PIPE)
    job.wait_for_output("up")
    found = read_versions(job.process.pid)
    assert found["torch"] == importlib.metadata.version("torch")
    assert found["deepspeed"] == importlib.metadata.version("deepspeed")


def test_maps_and_versions_of_other_forms() -> None:
    """Package folders wherever they are, once each; what is no version has no numbers."""
    maps = (
        b"7f r-xp 0 0:1 1 /opt/a b/site-packages/torch/lib/x.so\n7f r 0 0:1 2 /usr/lib/python3/dist-packages/n/y.so\n"
        * 2
    )
    assert parse_maps(maps) == ("/opt/a b/site-packages", "/usr/lib/python3/dist-packages")
    assert parse_release("0.19.3+cu12") == (0, 19, 3)
    assert parse_release("main") is None
