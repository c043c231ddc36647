"""``hangwatch mcp`` as a coding agent uses it: the real client of the MCP SDK, over stdio, on a real job that hangs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from support import SOURCE_ROOT, Job, JobRunner, wait_for

pytestmark = pytest.mark.usefixtures("real")

ENTRY = "import sys; sys.argv[0] = 'hangwatch'; from hangwatch.cli.main import main; main()"
#: A value of the job's own environment, a literal that is secret by its name, and a key on several lines.
WORD, LITERAL, KEY = "correct-battery-horse", "hunter2hunter2", "MIIEvQIBADANBgkqhkiG9w0BAQ"
PROGRAM = f'''"""A metric that rank 0 averages alone."""
import os

import torch
import torch.distributed as dist

password = "{LITERAL}"
CHANNEL = "{WORD}"
CERTIFICATE = """-----BEGIN PRIVATE KEY-----
{KEY}
-----END PRIVATE KEY-----"""


def log_loss(loss):
    dist.all_reduce(loss)  # all ranks have to call it
    print("mean loss", loss.item())


def train():
    for step in range(100):
        dist.barrier()
        if step == 3 and dist.get_rank() == 0:
            log_loss(torch.ones(1))


dist.init_process_group("gloo")
train()
'''


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real torchrun job of three ranks under ``hangwatch run``, once its hang is stored: job, program, state directory."""
    folder = tmp_path_factory.mktemp("hanging")
    program, state = folder / "train.py", folder / "state"
    program.write_text(PROGRAM)
    runner = JobRunner(folder / "jobs")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    try:
        job = runner.hangwatch(
            "run", "--state-dir", state, "--", *launcher, program, env={"TEAM_SECRET": WORD, "TMPDIR": str(folder)}
        )
        wait_for(lambda: list(state.glob("incidents/*/incident.json")), 120.0, "the incident to be stored")
        wait_for(lambda: "Bundle " in job.stderr(), 60.0, "the verdict to be printed")
        yield job, program, state
    finally:
        runner.end_all()


@asynccontextmanager
async def connected(state: Path) -> AsyncIterator[Client]:
    """A client of the server, which it starts as any host does: as a process that speaks on stdin and stdout."""
    arguments = ["-c", ENTRY, "mcp", "--state-dir", str(state)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": str(SOURCE_ROOT)})
    async with Client(server, read_timeout_seconds=240.0) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured answer of a tool, which must not be an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.asyncio
async def test_a_question_leads_to_the_line(hanging: tuple[Job, Path, Path]) -> None:
    """From the latest incident to both lines, the cause's page, and who waits for whom."""
    _, program, state = hanging
    async with connected(state) as client:
        found = await call(client, "get_incident")
        assert (found["kind"], found["proven"], found["culprit_ranks"]) == ("deadlock", True, "0")
        culprit, others = found["sides"]
        assert (culprit["file"], culprit["source"]) == (
            str(program),
            "dist.all_reduce(loss)  # all ranks have to call it",
        )
        assert (others["ranks"], others["source"]) == ("1-2", "dist.barrier()")

        page = await client.read_resource(found["cause"]["page"])
        assert page.contents[0].text.startswith(f"# {found['cause']['id']}: ")
        assert found["cause"]["id"] in (await client.read_resource("hangwatch://causes")).contents[0].text

        waits = await call(client, "who_waits_for_whom", incident=found["id"])
        assert waits["total"] == len(waits["waits"]) > 0
        compared = await call(client, "compare_ranks", one=0, other=1)
        assert [where.partition(" ")[0] for where in compared["diverge_at"]] == ["train", "train"]
        assert compared["diverge_at"][0] != compared["diverge_at"][1]


@pytest.mark.asyncio
async def test_what_runs_now_is_seen_without_a_stop(hanging: tuple[Job, Path, Path]) -> None:
    """The job with its open incident, its ranks, the live stack of one; a process that is no rank is refused."""
    job, program, state = hanging
    async with connected(state) as client:
        incident = (await call(client, "list_incidents", limit=50))["incidents"][0]
        jobs = (await call(client, "list_jobs", limit=50))["jobs"]
        (ours,) = [one for one in jobs if one["job"] == incident["job"]]
        assert (ours["open_incident"], ours["ranks_here"], ours["world_size"]) == (incident["id"], 3, 3)
        ranks = (await call(client, "list_job_ranks", job=ours["job"]))["ranks"]
        assert {one["rank"]: one["pid"] for one in ranks} == {rank: one.pid for rank, one in job.ranks().items()}

        live = await call(client, "stack_of_process", pid=ranks[0]["pid"])
        stored = await call(client, "stack_of_rank", rank=0)
        for answer in (live, stored):
            frames = answer["threads"][0]["frames"]
            assert [f["function"] for f in frames if f["file"] == str(program)] == ["log_loss", "train", "<module>"]
        assert job.ranks()[0].status() != "stopped"

        refused = await client.call_tool("stack_of_process", {"pid": job.pid})
        assert refused.is_error
        assert "is no rank of a distributed job" in refused.content[0].text


@pytest.mark.asyncio
async def test_no_answer_holds_a_secret(hanging: tuple[Job, Path, Path]) -> None:
    """Of the environment, of a literal, and of a key on several lines: in the stacks, the verdict and the job."""
    job, _, state = hanging
    pid = job.ranks()[0].pid
    async with connected(state) as client:
        said = [
            await call(client, name) for name in ("get_incident", "list_incidents", "list_jobs", "who_waits_for_whom")
        ]
        said += [await call(client, "stack_of_process", pid=pid), await call(client, "stack_of_rank", rank=1)]
    for secret in (WORD, LITERAL, KEY):
        assert secret not in str(said)


@pytest.mark.asyncio
async def test_a_bundle_is_diagnosed_by_its_path_and_doctor_answers(hanging: tuple[Job, Path, Path]) -> None:
    """The same verdict from the files; and the checks of this machine."""
    _, _, state = hanging
    async with connected(state) as client:
        found = await call(client, "get_incident")
        again = await call(client, "diagnose_path", path=str(state / "incidents" / found["id"]))
        assert (again["cause"]["id"], again["culprit_ranks"]) == (found["cause"]["id"], found["culprit_ranks"])
        checked = await call(client, "doctor")
        assert checked["works"], checked["problems"]
        assert "stacks (py-spy)" in checked["fine"]
        nothing = await client.call_tool("diagnose_path", {"path": str(state.parent / "nowhere")})
        assert nothing.is_error
