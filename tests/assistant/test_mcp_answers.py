"""The answers of ``hangwatch mcp``: small whatever the size, one line where they refuse."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client

from hangwatch.assistant import incidents, node
from hangwatch.assistant.server import make_server
from hangwatch.assistant.skill import read_skill
from hangwatch.assistant.stacks import describe_sample
from hangwatch.causes.knowledge import list_pages
from hangwatch.demos import find_scenario
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.outputs.bundle.bundle import write_bundle
from recorded import NAMES, load
from replicas import enlarged
from support import JobRunner

RECORDED = "rank_conditional"
DOCS = Path(__file__).resolve().parents[2] / "docs"
LARGE = 2048
#: What a coding agent reads at once without losing its thread: about four thousand tokens.
SMALL_CHARACTERS = 16_000


def incident_of(capture: Capture, id: str = "20261123T000000000Z-job") -> Incident:
    """The document of a capture."""
    return make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns, id=id)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with a recorded hang, and later the same of 2,048 ranks."""
    folder = tmp_path_factory.mktemp("state")
    small = load(RECORDED)
    rest = sorted(rank.rank for rank in small.ranks)[1:]
    copies = {0: [0], rest[0]: list(range(1, LARGE - len(rest) + 1))}
    copies |= {rank: [LARGE - len(rest) + number] for number, rank in enumerate(rest[1:], 1)}
    for name, capture in (("20261123T000000000Z-small", small), ("20261124T000000000Z-large", enlarged(small, copies))):
        incident = incident_of(capture, name)
        onset = f"2026-11-2{3 if name.endswith('small') else 4}T00:00:00.000Z"
        write_bundle(folder, msgspec.structs.replace(incident, onset_at=onset), capture)
    return folder


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured answer of a tool, which must not be an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.asyncio
async def test_every_tool_only_reads_and_says_what_it_answers(state: Path) -> None:
    """A host may call them without asking: the hints say so, and results are typed."""
    async with Client(make_server(state)) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == 11
        for tool in tools:
            assert tool.annotations.read_only_hint
            assert not tool.annotations.destructive_hint
            assert tool.output_schema["type"] == "object"
            assert 30 < len(tool.description) < 200


@pytest.mark.asyncio
async def test_answers_stay_small_at_two_thousand_ranks(state: Path) -> None:
    """Ranks are sets, lists come in pages, and all pages together are all ranks."""
    async with Client(make_server(state)) as client:
        for tool in ("list_incidents", "get_incident", "who_waits_for_whom", "list_incident_ranks"):
            assert len(json.dumps(await call(client, tool))) < SMALL_CHARACTERS
        found = await call(client, "get_incident")
        assert (found["ranks_total"], found["culprit_ranks"]) == (LARGE, "0")
        seen: list[int] = []
        offset: int | None = 1900
        while offset is not None:
            page = await call(client, "list_incident_ranks", offset=offset, limit=50)
            assert (page["total"], page["of"]) == (LARGE, found["id"])
            seen += [one["rank"] for one in page["ranks"]]
            offset = page["next_offset"]
        assert seen == list(range(1900, LARGE))


def large_job(number: int) -> LiveJob:
    """A job of 2,048 ranks in 64 groups each, of which the last is stuck; the names and the command are as long as real ones."""
    names = [f"mesh_dp_shard_cp_{number}_{group}_of_the_expert_parallel_mesh" for group in range(64)]
    everyone = tuple(range(LARGE))
    groups = tuple(LiveProgress(name, name, everyone, 900, 899 if name == names[-1] else 900, 3.0) for name in names)
    frame = "all_reduce (/opt/conda/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:2810)"
    return LiveJob(
        id=f"gpu-{number:04}.cluster.example.org:29500",
        world_size=LARGE,
        launcher="torchrun",
        command=f"torchrun --nnodes 256 --nproc-per-node 8 pretrain.py --config configs/{number}.yaml "
        + "--override a.b=c " * 40,
        ranks=tuple(
            LiveRank(r, f"gpu-{r // 8:04}", 4000 + r, "communicating" if r % 2 else "idle", 0.4, groups, frame)
            for r in everyone
        ),
        groups=tuple(GroupFront(name, everyone, 900, 899, 899, everyone[1::2], 3.0) for name in names),
    )


@pytest.mark.asyncio
async def test_answers_on_a_node_stay_small_at_two_thousand_ranks(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs now, ten jobs of 2,048 ranks (a stand-in for what a node shows): the first answers, and all pages together."""
    view = LiveView(1, tuple(large_job(number) for number in range(10)))
    monkeypatch.setattr(node.NodeObserver, "view", lambda _: (view, []))
    async with Client(make_server(state)) as client:
        jobs = await call(client, "list_jobs")
        assert (len(jobs["jobs"]), jobs["total"], jobs["next_offset"]) == (4, 10, 4)
        ranks = await call(client, "list_job_ranks", job=view.jobs[3].id)
        assert (ranks["total"], ranks["next_offset"]) == (LARGE, 20)
        for answer in (jobs, ranks):
            assert len(json.dumps(answer)) < SMALL_CHARACTERS
        for one in ranks["ranks"]:
            assert one["progress"][0].endswith("enqueued 900, completed 899")
        seen: list[int] = []
        offset: int | None = 1990
        while offset is not None:
            page = await call(client, "list_job_ranks", job=view.jobs[3].id, offset=offset)
            seen += [one["rank"] for one in page["ranks"]]
            offset = page["next_offset"]
        assert seen == list(range(1990, LARGE))


@pytest.mark.asyncio
async def test_answers_on_ranks_of_a_large_incident_stay_small(state: Path) -> None:
    """A stack, and two ranks side by side, of 2,048."""
    async with Client(make_server(state)) as client:
        stack = await call(client, "stack_of_rank", rank=LARGE - 1)
        compared = await call(client, "compare_ranks", one=0, other=LARGE - 1)
        assert compared["diverge_at"][0] != compared["diverge_at"][1]
        for answer in (stack, compared):
            assert len(json.dumps(answer)) < SMALL_CHARACTERS


@pytest.mark.parametrize("name", ["x" * 40, "\u5927" * 5000])
def test_the_deepest_stacks_make_an_answer_of_bounded_size(name: str) -> None:
    """Of many threads, deep recursion and long names: the main thread's deepest frames, and how many there are."""
    frames = tuple(
        Frame(f"{name}{n}", f"/{name}/{n}.py", n + 1, f"{name}()", {f"{name}{v}": name for v in range(20)})
        for n in range(900)
    )
    threads = tuple(ThreadStack(n, name, n == 3, True, False, frames) for n in range(30))
    answer = describe_sample(StackSample(1, threads), load(RECORDED).ranks[0].identity)
    assert len(json.dumps(dataclasses.asdict(answer), ensure_ascii=False)) < SMALL_CHARACTERS
    assert answer.threads[0].is_main
    assert answer.threads_total == 30
    assert 0 < len(answer.threads[0].frames) < answer.threads[0].frames_total == 900


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_hang_has_its_answers(name: str) -> None:
    """For all kinds of hangs: the verdict's own words, every rank, and every pair of ranks side by side."""
    capture = load(name)
    incident = incident_of(capture)
    assert incidents.list_ranks(incident, 0, 50).total == len(incident.ranks)
    waits = incidents.who_waits(incident, 0, 50)
    assert waits.total == len(incident.verdict.waits)
    ranks = [seen.rank for seen in capture.ranks]
    compared = incidents.compare_ranks(incident, capture, ranks[0], ranks[-1])
    assert compared.ranks == (ranks[0], ranks[-1])
    for seen in capture.ranks:
        if seen.stacks:
            answer = incidents.stack_of_rank(incident, capture, seen.rank)
            assert answer.threads_total == len(seen.stacks[-1].threads)


@pytest.mark.asyncio
async def test_what_is_refused_is_one_line(state: Path) -> None:
    """An unknown incident, a path in place of an id, a rank that is not there, a cause that is none."""
    async with Client(make_server(state)) as client:
        for tool, arguments, said in (
            ("get_incident", {"incident": "other"}, "no incident 'other'"),
            ("get_incident", {"incident": "../incidents/20261123T000000000Z-small"}, "no incident"),
            ("get_incident", {"incident": str(state)}, "no incident"),
            ("stack_of_rank", {"rank": 5000}, "has no rank 5000"),
            ("diagnose_path", {"path": str(state / "nothing")}, "cannot be read"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert said in result.content[0].text
            assert result.content[0].text.count("\n") == 0
        for address in ("hangwatch://causes/none", "hangwatch://causes/..%2Fknowledge", "hangwatch://causes/README"):
            with pytest.raises(Exception, match=r"(?i)cause|resource"):
                await client.read_resource(address)


@pytest.mark.asyncio
async def test_the_pages_of_all_causes_are_resources(state: Path) -> None:
    """Listed with their titles, and each read by its address; and the skill beside them."""
    async with Client(make_server(state)) as client:
        listed = (await client.read_resource("hangwatch://causes")).contents[0].text
        for cause in list_pages():
            assert f"(hangwatch://causes/{cause})" in listed
            assert (
                (await client.read_resource(f"hangwatch://causes/{cause}")).contents[0].text.startswith(f"# {cause}: ")
            )
        assert (await client.read_resource("hangwatch://skill")).contents[0].text == read_skill()


@pytest.mark.asyncio
async def test_the_skill_names_every_tool_and_no_other(state: Path) -> None:
    """What is in backquotes and looks like a tool is one."""
    async with Client(make_server(state)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
    words = set(re.findall(r"`([a-z_]+)`", read_skill()))
    assert tools <= words
    verbs = ("list_", "get_", "who_", "stack_", "compare_", "diagnose_")
    assert {word for word in words if word.startswith(verbs)} <= tools


def test_without_the_sdk_one_line_says_what_to_install(jobs: JobRunner, tmp_path: Path) -> None:
    """A stand-in that fails as an absent package does; the skill is printed all the same."""
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError('No module named mcp', name='mcp')\n")
    entry = "import sys; sys.path.insert(0, sys.argv[1]); sys.argv[:2] = ['hangwatch']; import hangwatch.cli.main as m; m.main()"
    job = jobs.start([sys.executable, "-c", entry, str(tmp_path), "mcp"])
    assert job.wait(120.0) == 2
    assert (job.stdout(), job.stderr()) == (
        "",
        "hangwatch: hangwatch mcp needs the MCP SDK: pip install 'mcp>=2.3'\n",
    )
    skill = jobs.start([sys.executable, "-c", entry, str(tmp_path), "mcp", "--skill"])
    assert skill.wait(120.0) == 0
    assert skill.stdout() == read_skill()


def check_fields(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> None:
    """Every field of an object of the answer, and of those in it, is one that the schema has."""
    for option in schema.get("anyOf", ()):
        if option.get("type") != "null":
            schema = option
    schema = whole["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if isinstance(value, dict):
        assert value.keys() <= schema["properties"].keys(), value.keys() - schema["properties"].keys()
        for name, inner in value.items():
            check_fields(inner, schema["properties"][name], whole)
    elif isinstance(value, list):
        for inner in value:
            check_fields(inner, schema.get("items") or schema["prefixItems"][0], whole)


@pytest.mark.asyncio
async def test_the_recorded_session_is_one_of_these_tools(state: Path) -> None:
    """In docs/mcp.md: tools, arguments, fields of the answers, and lines of the program are those of today."""
    session = (DOCS / "mcp.md").read_text().partition("## A recorded session")[2]
    calls = re.findall(r"```\n(\w+)\(([^\n]*)\)\n```\n\n```json\n(.*?)```", session, re.DOTALL)
    assert len(calls) == session.count("```json") == 2
    async with Client(make_server(state)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, arguments, answer in calls:
            given = set(re.findall(r"(?:^|, )(\w+)=", arguments))
            assert given <= tools[name].input_schema["properties"].keys()
            schema = tools[name].output_schema
            check_fields(json.loads(re.sub(r",\n  \.\.\.", "", answer)), schema, schema)
    with pytest.raises(AssertionError):
        check_fields(
            {"sides": [{"nosuch": 1}]}, tools["get_incident"].output_schema, tools["get_incident"].output_schema
        )
    demo = find_scenario("rank-conditional")
    assert demo is not None
    program = demo.path.read_text().splitlines()
    shown = re.findall(r"^(\d+): ?(.*)$", session, re.MULTILINE)
    assert len(shown) > 5
    for number, line in shown:
        assert line == program[int(number) - 1]
    (cause,) = re.findall(r"`hangwatch://causes/([a-z0-9-]+)`", session)
    assert (DOCS / "causes" / f"{cause}.md").exists()
