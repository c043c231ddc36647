"""Ranks by environment and launchers by command line: every launcher's habits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.sources.discovery.launchers import name_launcher, read_script
from hangwatch.sources.discovery.rank_environment import claim_rank, identify_job, parse_environ

TORCHRUN = {
    "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_RESTART_COUNT": "2",
}  # fmt: skip


def test_torchrun() -> None:
    """torchrun's run id is the job, and its restart count is read."""
    claim = claim_rank(TORCHRUN)
    assert claim is not None
    assert (claim.rank, claim.world_size, claim.local_rank, claim.restart, claim.job_id) == (3, 4, 1, 2, "job7")
    assert claim.elastic


def test_mpi_and_slurm() -> None:
    """Without RANK the variables of Open MPI, PMI and Slurm decide."""
    ompi = claim_rank({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"})
    pmi = claim_rank({"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"})
    slurm = claim_rank({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"})
    assert ompi is not None
    assert (ompi.rank, ompi.world_size, ompi.local_rank, ompi.by) == (1, 2, 0, "mpirun")
    assert pmi is not None
    assert (pmi.rank, pmi.world_size, pmi.local_rank) == (5, 8, 1)
    assert slurm is not None
    assert (slurm.rank, slurm.world_size, slurm.by, slurm.job_id) == (2, 4, "srun", "slurm-9.0")


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "2"}, 2),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_SIZE": "2"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, 8),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, 4),
        ({"RANK": "0", "WORLD_SIZE": "4"}, None),
    ],
    ids=["torchrun", "deepspeed", "open-mpi", "pmi", "nobody"],
)
def test_how_many_ranks_a_node_has(environ: dict[str, str], size: int | None) -> None:
    """torchrun, DeepSpeed and MPI say it; an environment that was set by hand does not."""
    claim = claim_rank(environ)
    assert claim is not None
    assert claim.local_world_size == size


def test_batch_script_of_slurm_is_no_rank() -> None:
    """A batch script has SLURM_PROCID=0 without being a task."""
    assert claim_rank({"SLURM_PROCID": "0", "SLURM_JOB_ID": "9"}) is None
    assert claim_rank({"SLURM_PROCID": "0", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "batch"}) is None


def test_rank_of_the_pod_around_mpirun_is_no_rank_of_its_processes() -> None:
    """Where mpirun itself has a RANK, an equal one in its processes is inherited, and MPI's own variable decides."""
    environ = {"RANK": "0", "OMPI_COMM_WORLD_RANK": "3"}
    inherited, own = claim_rank(environ, inherited_rank="0"), claim_rank(environ, inherited_rank="7")
    assert inherited is not None
    assert inherited.rank == 3
    assert own is not None
    assert own.rank == 0


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "a:1"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"}, "slurm-9/a:1"),
        ({"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"}, "slurm-9.0"),
        ({"MASTER_ADDR": "a"}, None),
    ],
)
def test_job_is_named_alike_on_all_nodes(environ: dict[str, str], job: str | None) -> None:
    """The name is made of what all ranks of a job share."""
    assert identify_job(environ) == job


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("/opt/venv/bin/python3 /opt/venv/bin/torchrun --standalone train.py", "torchrun"),
        ("python -u -m torch.distributed.run train.py", "torchrun"),
        ("python -m torch.distributed.launch --nnodes 2 train.py", "torchrun"),
        ("/usr/bin/python3.11 -X dev -W error /usr/bin/deepspeed train.py", "deepspeed"),
        ("python -u -m deepspeed.launcher.launch --world_info=x train.py", "deepspeed"),
        ("python /opt/venv/bin/accelerate launch train.py", "accelerate"),
        ("python /opt/venv/bin/accelerate env", None),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("mpirun -n 2 python train.py", "mpirun"),
        ("/usr/bin/orted -mca x", "mpirun"),
        ("srun python train.py", "srun"),
        ("slurmstepd: [123.0]", "srun"),
        ("python -m hangwatch run -- torchrun train.py", "hangwatch"),
        ("python train.py torchrun", None),
        ("python -c torchrun", None),
        ("bash -c torchrun", None),
        ("python", None),
        ("", None),
    ],
)
def test_launchers_are_known_by_their_command(command: str, launcher: str | None) -> None:
    """A launcher is what is run, not a word somewhere in its arguments."""
    assert name_launcher(command.split()) == launcher


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python -u train.py --lr 1", "train.py"),
        ("/usr/bin/python3.11 -X dev -W error src/train.py", "src/train.py"),
        ("python -m pkg.train --config x.py", "pkg.train"),
        ("./train --fast", "./train"),
        ("python -c pass", ""),
        ("python", ""),
        ("", ""),
    ],
)
def test_the_program_of_a_rank_is_read_from_its_command_line(command: str, script: str) -> None:
    """As it stands there, without the interpreter and its options."""
    assert read_script(command.split()) == script


@given(st.binary(max_size=300))
def test_any_environment_can_be_read(data: bytes) -> None:
    """Environments are bytes; whatever they are, they parse, and claims are none or whole."""
    claim_rank(parse_environ(data))
    assert parse_environ(b"X=1\0RANK=5\0\0RANK=6\0junk" + data)["RANK"] == "5"


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_command_line_can_be_named(arguments: list[str]) -> None:
    """No command line fails."""
    name_launcher(arguments)
    read_script(arguments)
