"""Who is a rank, who is a launcher, and how torch's recorder is read: the parts that need no process."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hangwatch.probe import identity, recorder

PROBE = Path(recorder.__file__).parent


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"RANK": "0"}, (0, None, None)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (1, 2, None)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (None, None, None)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, None)),
        ({"RANK": "first"}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_identity_comes_from_the_launchers_environment(
    environment: dict[str, str], expected: tuple[int | None, ...]
) -> None:
    """RANK counts alone; Slurm's and MPI's numbers only with a world of more than one."""
    assert identity.read_identity(environment) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m torch.distributed.run --nproc_per_node 2 train.py", True),
        ("python -um torch.distributed.launch train.py", True),
        ("python -X dev -W error /venv/bin/torchrun train.py", True),
        ("python -u -mdeepspeed.launcher.launch train.py", True),
        ("python /venv/bin/accelerate launch train.py", True),
        ("python -m accelerate.commands.launch train.py", True),
        ("python train.py torchrun", False),
        ("python -m trainer.torchrun", False),
        ("python -c import-torch torchrun", False),
        ("python -Wignore train.py -m torch.distributed.run", False),
        ("python", False),
    ],
)
def test_launchers_are_known_by_what_they_run(command: str, expected: bool) -> None:
    """The module or script decides, whatever stands among its arguments."""
    assert identity.is_launcher(command.split()) is expected


def test_marker_of_a_dead_or_own_process_is_stale() -> None:
    """Only the marker of another process that lives makes this one a rank's child."""
    assert identity.is_child_of_rank({identity.MARKER: str(os.getppid())})
    assert not identity.is_child_of_rank({identity.MARKER: str(os.getpid())})
    assert not identity.is_child_of_rank({identity.MARKER: "4194305"})
    assert not identity.is_child_of_rank({identity.MARKER: ""})
    assert not identity.is_child_of_rank({})


@pytest.mark.parametrize(
    ("header", "text", "version", "expected"),
    [
        (
            "FlightRecorder.hpp",
            'getCvarInt(\n {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, 2000)',
            "2.13.0",
            {},
        ),
        ("FlightRecorder.hpp", 'getCvarInt({"TORCH_NCCL_TRACE_BUFFER_SIZE"}, 2000)', "2.8.0", {}),
        (
            "NCCLUtils.hpp",
            'getCvarInt({"TORCH_NCCL_TRACE_BUFFER_SIZE"}, 0)',
            "2.5.1",
            {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
        ),
        ("other.h", "", "2.4.0", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}),
        ("other.h", "", "2.13.0+cu130", {}),
    ],
)
def test_recorder_variable_is_set_only_where_torch_needs_it(
    tmp_path: Path, header: str, text: str, version: str, expected: dict[str, str]
) -> None:
    """A torch that records unasked is left alone; the old name would make a newer one warn."""
    folder = tmp_path / "include/torch/csrc/distributed/c10d"
    folder.mkdir(parents=True)
    (folder / header).write_text(text)
    torch = SimpleNamespace(__file__=str(tmp_path / "__init__.py"), __version__=version)
    environment: dict[str, str] = {}
    recorder.set_environment(environment, torch)
    assert environment == expected
    chosen = {"TORCH_FR_BUFFER_SIZE": "10"}
    recorder.set_environment(chosen, torch)
    assert chosen == {"TORCH_FR_BUFFER_SIZE": "10"}


def test_group_names_are_found_in_a_dump_whatever_their_keys_order() -> None:
    """An id is matched with its own entry's name, also with brackets in it, or not at all."""
    usual = b'{"entries":[{"pg_id":1,"process_group":["1","a]b"]},{"pg_id":12,"process_group":["x","y"]}]}'
    turned = b'{"entries":[{"process_group":["1","a"],"pg_id":1, "z":0},{"process_group":["x","y"],"pg_id":12,"z":0}]}'
    assert recorder.parse_names(usual, [1, 12, 2]) == {1: "1", 12: "x"}
    assert recorder.parse_names(turned, [1]) == {1: "1", 12: "x"}
    assert recorder.parse_names(b"{}", [0]) == {}


def test_versions_are_read_with_their_suffixes() -> None:
    """Nightly and local versions compare by major and minor."""
    assert recorder.parse_version("2.13.0+cpu") == (2, 13)
    assert recorder.parse_version("2.4.0a0+git") == (2, 4)
    assert recorder.parse_version("unknown") == (0, 0)


def test_probe_is_written_for_the_oldest_python_of_a_rank() -> None:
    """Every file of the probe parses as Python 3.8."""
    files = list(PROBE.rglob("*.py"))
    assert len(files) > 5
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 8))
