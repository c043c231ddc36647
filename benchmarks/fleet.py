"""What a large fleet costs the agent that holds its lease: ``python benchmarks/fleet.py 64 256 1024`` (nodes of 8 ranks).

One real agent (a job's watch and its part in the fleet) in a process of its own, a real redis-server, and a process that
speaks for all other nodes: their digests each second with all that a look adds, their asking for the lease and the notice, and
their captures when asked (a recorded hang's, of real shape). These are made before the hang: in a fleet each node makes its own
at the same time, and here one process would have to make a thousand. After some healthy seconds one rank is in another
operation than all others.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "causes"), str(ROOT / "tests" / "exchange")]

from simulated import Node  # noqa: E402

from hangwatch.agent.fleet.link import EXPIRY_S  # noqa: E402
from hangwatch.agent.fleet.member import name_channel  # noqa: E402
from hangwatch.agent.fleet.merge import shift, shorten  # noqa: E402
from hangwatch.agent.fleet.scope import FEWEST_OPERATIONS, OPERATIONS_IN_ALL  # noqa: E402
from hangwatch.agent.fleet.wire import WIRE_VERSION, Answer, LeaseNotice, decode, encode  # noqa: E402
from hangwatch.agent.host.memory import collect_less_often  # noqa: E402
from hangwatch.exchange.redis import RedisExchange  # noqa: E402
from hangwatch.model.capture import Capture, Job, RankCapture  # noqa: E402
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation  # noqa: E402
from hangwatch.model.digest import DIGEST_VERSION, Digest, DigestGroup, DigestProgress, DigestRank, encode_digest  # noqa: E402
from hangwatch.model.transforms.packing import Packed, pack  # noqa: E402
from recorded import load  # noqa: E402

RANKS = 8
HEALTHY_S = 20.0
#: Operations a rank has on record in a job of that size, more than are ever sent.
OPERATIONS = 200
MASTER = "10.0.0.1:29500"


def make_rank(template: RankCapture, rank: int, world: int, culprit: int, began_ns: int) -> RankCapture:
    """One rank of the large job: the recorded one's processes and stacks, and the operations of a job with four groups."""
    everyone = Group("0", tuple(range(world)), "default_pg")
    node = rank // RANKS * RANKS
    groups = (
        everyone,
        Group("1", tuple(range(node, node + RANKS)), "tp"),
        Group("2", tuple(range(rank % RANKS, world, RANKS)), "dp"),
        Group("3", tuple(range(rank % 64, world, 64)), "pp"),
    )
    operations = []
    for number in range(OPERATIONS):
        group = groups[number % 4]
        at_ns = began_ns - (OPERATIONS - number) * 10_000_000
        operations.append(
            Operation(number, group, number // 4 + 1, "all_reduce", True, at_ns, backend="nccl", input_sizes=((1024,),))
        )
    done = OPERATIONS // 4
    # Another operation than the others' at the same number: it is proven, and nobody has to be patient.
    op = "broadcast" if rank == culprit else "all_gather"
    operations.append(
        Operation(OPERATIONS, everyone, done + 1, op, False, began_ns, backend="nccl", input_sizes=((8,),))
    )
    progress = tuple(GroupProgress(g, done + (g is everyone), -1, done) for g in groups)
    flight = FlightRecord(began_ns, "json", "2.10", tuple(operations), progress)
    identity = msgspec.structs.replace(template.identity, rank=rank, pid=10_000 + rank, local_rank=rank % RANKS)
    return msgspec.structs.replace(template, identity=identity, flight=flight, progress=progress, beat_age_s=0.2)


def make_entry(rank: int, *, waits: bool, steps: int, still_s: float) -> DigestRank:
    """What a digest says of a rank that has come so many steps, and waits in the first of its groups or not."""
    done = OPERATIONS // 4 + steps
    progress = tuple(DigestProgress(g, done + (waits and g == 0), done, still_s) for g in range(4))
    state = "communicating" if waits else "running"
    return DigestRank(rank, 10_000 + rank, 1000.0, state, progress, rank % RANKS, beat_age_s=0.2)


def capture_of(node: int, world: int, culprit: int, began_ns: int, at_ns: int) -> Capture:
    """A node's capture as of ``at_ns``."""
    recorded = load("rank_conditional")
    moved = shift(recorded, at_ns - recorded.at_ns)
    ranks = range(node * RANKS, (node + 1) * RANKS)
    made = tuple(make_rank(moved.ranks[r % 2], r, world, culprit, began_ns) for r in ranks)
    return Capture(Job("benchmark", world), at_ns, made)


def prepare(node: int, world: int, culprit: int, began_ns: int) -> Packed:
    """A node's answer, short of the number of the question."""
    operations = max(FEWEST_OPERATIONS, OPERATIONS_IN_ALL // world)
    return pack(shorten(capture_of(node, world, culprit, began_ns, began_ns + 10**9), operations))


def speak_for_all(pipe: Connection, url: str, nodes: int) -> None:
    """All nodes but the first: digests, the lease, notices and captures."""
    import redis

    client = redis.Redis.from_url(url)
    world, culprit = nodes * RANKS, nodes * RANKS - 3
    channel = name_channel("benchmark", MASTER, world)
    key = f"hangwatch:{{{channel}}}"
    keys = [
        Group("0", tuple(range(world))).key,
        "1@aaaaaaaaaaaaaaaaaaaaaaaa",
        "2@bbbbbbbbbbbbbbbbbbbbbbbb",
        "3@cccccccccccccccccccccccc",
    ]
    groups = tuple(DigestGroup(k, label) for k, label in zip(keys, ("default_pg", "tp", "dp", "pp"), strict=True))
    began_ns, answered, count, digests = pipe.recv(), "", 0, list[int]()
    captures = list[int]()
    prepared = {node: prepare(node, world, culprit, began_ns) for node in range(1, nodes)}
    pipe.send("ready")
    while not pipe.poll():
        started = time.monotonic()
        count += 1
        hung = time.time_ns() > began_ns
        still_s = (time.time_ns() - began_ns) / 1e9 if hung else 0.01
        batch = client.pipeline(transaction=False)
        digests = []
        for node in range(1, nodes):
            ranks = tuple(
                make_entry(r, waits=hung, steps=0 if hung else count, still_s=still_s)
                for r in range(node * RANKS, (node + 1) * RANKS)
            )
            digest = Digest(
                DIGEST_VERSION, f"node{node}", f"{node:016d}", count, time.time_ns(), "", world, ranks, groups
            )
            data = encode_digest(digest)
            digests.append(len(data))
            name = f"node{node}.0"
            batch.set(f"{key}:digest:{name}", data, px=int(EXPIRY_S * 1000))
            batch.sadd(f"{key}:nodes", name)
            batch.pexpire(f"{key}:nodes", int(EXPIRY_S * 1000))
            batch.set(f"{key}:lease", name, nx=True, xx=False, px=5000)
            batch.get(f"{key}:notice")
        notices = batch.execute()[4::5]
        notice = decode(notices[-1], LeaseNotice) if notices and notices[-1] else None
        if notice is not None and notice.question is not None and notice.question.id != answered:
            answered = notice.question.id
            for node in range(1, nodes):
                wanted = notice.question.ranks
                if wanted is None or {r // RANKS for r in wanted} & {node}:
                    data = encode(Answer(WIRE_VERSION, answered, prepared[node]))
                    captures.append(len(data))
                    client.set(f"{key}:blob:{answered}/node{node}.0", data, px=60_000)
        period_s = 0.2 if hung else 1.0
        time.sleep(max(0.0, period_s - (time.monotonic() - started)))
    pipe.recv()
    pipe.send((digests, captures))


async def lead(nodes: int, url: str, crowd: Connection, folder: Path) -> tuple[float, float, float, str]:
    """The agent with the lease: CPU seconds a healthy second, seconds to the verdict, CPU seconds of that, and what it says."""
    collect_less_often()
    world = nodes * RANKS
    culprit = world - 3
    # As long as it takes to prepare, to meet all nodes, and to be healthy.
    began_ns = time.time_ns() + int((HEALTHY_S + 10.0 + 0.08 * nodes) * 1e9)
    crowd.send(began_ns)
    capture = capture_of(0, world, culprit, began_ns, time.time_ns())
    while not crowd.poll():
        await asyncio.sleep(0.1)
    crowd.recv()
    node = Node("node0.0", RedisExchange(url), folder, msgspec.structs.replace(capture), tuple(range(RANKS)))
    node.reader.moving = True
    while len(node.fleet.link.members.members) < nodes - 1:
        await node.tick()
        await asyncio.sleep(0.5)
    while time.time_ns() < began_ns - (HEALTHY_S + 0.5) * 1e9:
        await node.tick()
        await asyncio.sleep(1.0)
    cpu, began = time.process_time(), time.monotonic()
    while time.time_ns() < began_ns:
        await node.tick()
        await asyncio.sleep(min(1.0, max(0.0, (began_ns - time.time_ns()) / 1e9)))
    round_s = (time.process_time() - cpu) / (time.monotonic() - began)
    cpu, began = time.process_time(), time.monotonic()
    node.reader.capture, node.reader.began_s, node.reader.moving = capture, began, False

    async def capture_now() -> Capture:
        return capture_of(0, world, culprit, began_ns, time.time_ns())

    node.watch.local.capture = capture_now  # type: ignore[method-assign]
    while time.monotonic() - began < 90.0:
        # As the agent does: each second, and sooner where a tick says so.
        soon_s = await node.watch.tick(node.reader.read()[0], time.monotonic())
        if node.announced:
            break
        await asyncio.sleep(min(1.0, soon_s if soon_s is not None else 1.0))
    verdict_s = time.monotonic() - began
    said = node.announced[0].verdict.summary[:100] if node.announced else "none"
    await node.fleet.link.stop()
    return round_s, verdict_s, time.process_time() - cpu, said


def measure(nodes: int) -> None:
    """One size: a line of the table."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("redis-server is not installed: apt-get install redis-server")
    options = ("--port", str(port), "--save", "", "--appendonly", "no")
    server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}"
    ours, theirs = multiprocessing.Pipe()
    crowd = multiprocessing.Process(target=speak_for_all, args=(theirs, url, nodes))
    try:
        import redis

        client = redis.Redis.from_url(url)
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        crowd.start()
        with tempfile.TemporaryDirectory() as folder:
            before = client.info()
            started = time.monotonic()
            round_s, verdict_s, verdict_cpu_s, said = asyncio.run(lead(nodes, url, ours, Path(folder)))
            took_s = time.monotonic() - started
        info = client.info()
        ours.send("stop")
        digests, captures = ours.recv()
        used_s = sum(info[k] - before[k] for k in ("used_cpu_sys", "used_cpu_user"))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {nodes} | {round_s * 1000:.0f} ms | {memory:.0f} MB | {verdict_s:.1f} s | {verdict_cpu_s:.1f} s "
            f"| {sum(digests) / max(1, len(digests)):.0f} B | {sum(captures) / max(1, len(captures)) / 1024:.1f} KiB "
            f"| {used_s / took_s:.1%} | {info['used_memory_peak'] / 2**20:.0f} MB |",
            flush=True,
        )
        print(f"  ({said})", file=sys.stderr)
    finally:
        if crowd.is_alive():
            crowd.terminate()
        crowd.join()
        server.terminate()
        server.wait()


def main() -> None:
    """One process a size: the highest memory is of the whole process."""
    sizes = [int(argument) for argument in sys.argv[1:]] or [64, 256, 1024]
    if len(sizes) == 1:
        measure(sizes[0])
        return
    heads = ("nodes", "CPU a round", "memory", "verdict after", "its CPU", "digest", "capture of a node")
    heads = (*heads, "Redis, of a core", "Redis, memory")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for size in sizes:
        subprocess.run([sys.executable, __file__, str(size)], check=True, env=os.environ)


if __name__ == "__main__":
    main()
