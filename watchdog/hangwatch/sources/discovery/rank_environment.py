"""What a process's environment says of its rank. Pure; may import msgspec and the standard library.

The variables are those of torchrun (torch 2.x ``run.py``), DeepSpeed's and accelerate's launchers, Open MPI, MPICH and
Intel MPI (PMI), PMIx, and Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

#: A pod's name and namespace, under the names that Kubernetes' documentation of the downward API gives such variables.
POD_NAME, POD_NAMESPACE = "POD_NAME", "POD_NAMESPACE"
#: Where a process that was started with the probe's environment leaves its beats.
RUN_DIR_VARIABLE = "HANGWATCH_RUN_DIR"
_NAMES = frozenset(
    {
        RUN_DIR_VARIABLE,
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMIX_RANK",
        "HANGWATCH_JOB", "KUBERNETES_SERVICE_HOST", POD_NAME, POD_NAMESPACE, "USER", "LOGNAME",
        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_JOB_NAME",
        "SLURM_STEP_ID",
    }
)  # fmt: skip
_LONGEST_VALUE = 1024


class RankClaim(msgspec.Struct, frozen=True):
    """A process's claim to a rank.

    ``by``: who gave the rank: env (RANK itself), mpirun or srun. ``job_id``: None if the environment names no job.
    ``elastic``: torchrun's own variables are set. ``restart``: how often torchrun has restarted the ranks, at most
    ``max_restarts`` times. ``master``: where the ranks meet, ``HOST:PORT`` as configured. ``local_world_size``: how
    many ranks the launcher started on this node.
    """

    rank: int
    by: str
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    max_restarts: int = 0
    job_id: str | None = None
    elastic: bool = False
    master: str = ""
    local_world_size: int | None = None


def parse_environ(data: bytes) -> dict[str, str]:
    """Return the variables of ``/proc/PID/environ`` that concern ranks and jobs; all others are dropped."""
    return pick_variables(data, _NAMES, _LONGEST_VALUE)


def pick_variables(data: bytes, names: Collection[str], longest: int) -> dict[str, str]:
    """Return these variables of ``/proc/PID/environ``, values cut to ``longest`` bytes.

    Of duplicates the first counts, as in getenv.
    """
    found: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, separator, value = item.partition(b"=")
        if separator and len(name) < 64 and (key := name.decode("ascii", "replace")) in names:
            found.setdefault(key, value[:longest].decode(errors="replace"))
    return found


def claim_rank(environ: Mapping[str, str], inherited_rank: str | None = None, *, host: str = "") -> RankClaim | None:
    """Return the rank that an environment gives its process; None if it gives none.

    ``inherited_rank``: the RANK of the MPI or Slurm launcher itself, given by a pod or an outer job. If the process
    has the same RANK, it inherited it, and the launcher's own variable decides. ``host``: this node's name, for
    ``identify_job``.
    """
    rank = _number(environ, "RANK")
    mpi = _first_number(environ, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
    restart = _number(environ, "TORCHELASTIC_RESTART_COUNT") or 0
    elastic = "TORCHELASTIC_RUN_ID" in environ
    overridden = inherited_rank is not None and environ.get("RANK") == inherited_rank and mpi is not None
    if rank is not None and not overridden:
        return RankClaim(
            rank=rank,
            by="env",
            world_size=_number(environ, "WORLD_SIZE"),
            local_rank=_number(environ, "LOCAL_RANK"),
            restart=restart,
            max_restarts=_number(environ, "TORCHELASTIC_MAX_RESTARTS") or 0,
            job_id=identify_job(environ, host),
            master=_master(environ),
            elastic=elastic,
            local_world_size=_first_number(environ, "LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
        )
    if mpi is not None:
        return RankClaim(
            rank=mpi,
            by="mpirun",
            world_size=_first_number(environ, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"),
            local_rank=_first_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK"),
            job_id=identify_job(environ, host),
            master=_master(environ),
            local_world_size=_first_number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
        )
    slurm = _number(environ, "SLURM_PROCID")
    # The batch script itself has SLURM_PROCID=0 too, and is no task of any step.
    if slurm is not None and environ.get("SLURM_STEP_ID", "batch").isdigit():
        return RankClaim(
            rank=slurm,
            by="srun",
            world_size=_first_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
            local_rank=_number(environ, "SLURM_LOCALID"),
            job_id=identify_job(environ, host),
            master=_master(environ),
        )
    return None


def identify_job(environ: Mapping[str, str], host: str = "") -> str | None:
    """Return a name for the job, equal on all its ranks and nodes; None if the environment gives none.

    The first of: the owner's name (``HANGWATCH_JOB``); torchrun's run id, if it names a job; where the ranks meet,
    within the Slurm job if there is one (with the port, because a batch script may run two jobs side by side); the
    Slurm job and step; the job that the pod's labels name. Ranks that meet at a loopback address exist on ``host``
    alone, so its name is added.
    """
    if environ.get("HANGWATCH_JOB"):
        return environ["HANGWATCH_JOB"]
    run_id = environ.get("TORCHELASTIC_RUN_ID", "")
    if run_id and run_id != "none":
        return run_id
    slurm, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    meeting = _meeting(environ, host)
    if slurm:
        return f"slurm-{slurm}/{meeting}" if meeting else f"slurm-{slurm}.{step}" if step else f"slurm-{slurm}"
    pod = environ.get(POD_JOB)
    return pod or meeting


def read_job_name(environ: Mapping[str, str]) -> str:
    """Return what the job's user calls it; empty if nobody has named it.

    The first of: ``HANGWATCH_JOB`` (``--job``), the name of the Slurm job, the job that the pod's labels name, and the
    ``--rdzv-id`` of torchrun, unless that is a number or the UUID that ``--standalone`` makes up.
    """
    slurm, run_id = environ.get("SLURM_JOB_NAME", ""), environ.get("TORCHELASTIC_RUN_ID", "")
    named = slurm if slurm not in _SLURM_DEFAULTS else ""
    given = "" if run_id == "none" or _MADE_UP.fullmatch(run_id) else run_id
    return environ.get("HANGWATCH_JOB") or named or environ.get(POD_JOB) or given


def read_user(environ: Mapping[str, str]) -> str:
    """Return the name of who runs the job, by the environment alone: to ask for a name may mean to ask a server."""
    return environ.get("USER") or environ.get("LOGNAME") or ""


def names_later_runs(job_id: str) -> bool:
    """True if a later job of this id is the same job, run again.

    False for ids made of a process or of a meeting place alone.
    """
    return _OF_THIS_RUN.fullmatch(job_id) is None


_OF_THIS_RUN = re.compile(r"pid-\d+|(?!slurm-\d+/).*:\d+", re.DOTALL)
#: Names that Slurm gives by itself (23.11, ``src/sbatch/opt.c``, ``src/salloc/opt.c``): of ``--wrap``, a script from standard
#: input, and an interactive job.
_SLURM_DEFAULTS = frozenset({"wrap", "sbatch", "interactive"})
_MADE_UP = re.compile(r"\d+|[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
#: Ours: where ``pods`` leaves what the labels of a rank's pod say.
POD_JOB = "HANGWATCH_POD_JOB"
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0|::", re.IGNORECASE)


def _meeting(environ: Mapping[str, str], host: str) -> str | None:
    """Return where the ranks meet, as a name that no other job of the fleet has; None if not known."""
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if not address or not port:
        return None
    return f"{host}:{port}" if host and _LOOPBACK.fullmatch(address) else f"{address}:{port}"


def _master(environ: Mapping[str, str]) -> str:
    """Return where the ranks meet, as configured; empty if not known."""
    return _meeting(environ, "") or ""


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """Return a variable's value if it is a small whole number; else None."""
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 8 else None


def _first_number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the first of several variables that is a number; None if none is."""
    return next((number for name in names if (number := _number(environ, name)) is not None), None)
