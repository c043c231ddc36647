"""The job that a pod's labels name, as Kubernetes' downward API writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.sources.discovery.pods import name_job, parse_labels
from hangwatch.sources.discovery.rank_environment import POD_JOB, identify_job, read_job_name

#: As pkg/fieldpath FormatMap (Kubernetes 1.31) writes it: sorted, one a line, quoted by strconv.Quote.
LABELS = """app="train"
batch.kubernetes.io/job-name="llama-worker-0"
training.kubeflow.org/job-name="llama"
training.kubeflow.org/replica-index="0"
"""


def test_the_surest_label_names_the_job() -> None:
    """Kubeflow's own before the Job that its operator made, and with the namespace, since names are of one only."""
    assert name_job(parse_labels(LABELS), "team-a") == "team-a/llama"
    assert name_job({"jobset.sigs.k8s.io/jobset-name": "js"}, "") == "js"
    assert name_job({"app": "train"}, "team-a") is None


def test_the_replicas_of_a_leader_worker_set_are_jobs_of_their_own() -> None:
    """Each has ranks 0 to N; what names the group names the job."""
    labels = {"leaderworkerset.sigs.k8s.io/name": "llama", "leaderworkerset.sigs.k8s.io/group-index": "1"}
    assert name_job(labels, "team-a") == "team-a/llama-1"


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"HANGWATCH_JOB": "mine", "SLURM_JOB_NAME": "llama"}, "mine"),
        ({"SLURM_JOB_NAME": "llama", "SLURM_JOB_ID": "7", POD_JOB: "ns/pod"}, "llama"),
        ({"SLURM_JOB_NAME": "wrap", "SLURM_JOB_ID": "7"}, ""),
        ({POD_JOB: "ns/llama", "TORCHELASTIC_RUN_ID": "sft"}, "ns/llama"),
        ({"TORCHELASTIC_RUN_ID": "sft"}, "sft"),
        ({"TORCHELASTIC_RUN_ID": "add8f3ec-b7a9-4bca-b342-a3b31cbde71f"}, ""),
        ({"TORCHELASTIC_RUN_ID": "4711"}, ""),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}, ""),
    ],
)
def test_a_job_is_called_what_its_user_calls_it(environ: dict[str, str], name: str) -> None:
    """Never by what a launcher, Slurm or a port has made up."""
    assert read_job_name(environ) == name


@given(st.text(max_size=200))
def test_any_text_is_labels_or_none(text: str) -> None:
    """Nothing is raised."""
    assert all(isinstance(value, str) for value in parse_labels(text).values())


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "127.1.2.3", "::1", "0.0.0.0"])  # noqa: S104  # nothing is bound
def test_ranks_that_meet_at_a_loopback_address_are_of_their_host(address: str) -> None:
    """Every node has one of these, and they are different jobs."""
    environ = {"MASTER_ADDR": address, "MASTER_PORT": "29500"}
    assert identify_job(environ, "node7") == "node7:29500"
    assert identify_job({**environ, "MASTER_ADDR": "10.0.0.1"}, "node7") == "10.0.0.1:29500"


def test_a_name_given_by_its_owner_comes_first() -> None:
    """Then the launcher's own, then Slurm's, then the pod's, then where the ranks meet."""
    environ = {"HANGWATCH_JOB": "mine", "TORCHELASTIC_RUN_ID": "run", "SLURM_JOB_ID": "7", POD_JOB: "ns/pod"}
    environ |= {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}
    order = []
    for name in ("HANGWATCH_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", POD_JOB, "MASTER_ADDR"):
        order.append(identify_job(environ))
        del environ[name]
    assert [*order, identify_job(environ)] == ["mine", "run", "slurm-7/10.0.0.1:1", "ns/pod", "10.0.0.1:1", None]
