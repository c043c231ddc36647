"""What it costs to watch a serving engine, and to find who a rank waits for once something is suspected.

- ``engine``: CPU time of one reading of an engine's metrics, for a small and a large answer, and what that is of one
  core at the period of the agent.
- ``other ends``: CPU time of one search for who has the other end of a connection, on this machine with so many more processes,
  each with so many connections. It is done a few times a hang, and never before.

    python benchmarks/serving_cost.py

Prints one line of Markdown for each: the median of the rounds and the largest, in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hangwatch.serving.engine import PERIOD_S
from hangwatch.serving.sources.metrics import parse_engine
from hangwatch.sources.connections.other_ends import find_ends
from hangwatch.sources.proc.threads import read_calls

ROUNDS = 20
#: A process that has connections to itself, and waits for the end of its standard input.
HOLDER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
kept = []
for _ in range(int(sys.argv[1])):
    kept.append(socket.create_connection(listener.getsockname()))
    kept.append(listener.accept()[0])
print("ready", flush=True)
sys.stdin.read()
"""
#: A process that waits for an answer, over a connection whose other end this one has.
ASKING = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as asked:
    asked.recv(1)
"""


def _metrics(histograms: int) -> bytes:
    """An answer in vLLM's names and format (``vllm/v1/metrics/loggers.py``), with so many histograms of twenty buckets."""
    registry = CollectorRegistry()
    labels = {"engine": "0", "model_name": "Qwen/Qwen2.5-7B-Instruct"}
    for name in ("num_requests_running", "num_requests_waiting"):
        Gauge(f"vllm:{name}", "Requests.", list(labels), registry=registry).labels(**labels).set(8)
    for name in ("prompt_tokens", "generation_tokens"):
        Counter(f"vllm:{name}", "Tokens.", list(labels), registry=registry).labels(**labels).inc(1e6)
    for number in range(histograms):
        buckets = [float(1 << n) for n in range(20)]
        one = Histogram(f"vllm:figure_{number}", "Seconds.", list(labels), registry=registry, buckets=buckets)
        one.labels(**labels).observe(3)
    return generate_latest(registry)


def _cpu_ms(call: Callable[[], object]) -> list[float]:
    """CPU time of a call, of each round."""
    spent = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_SELF)
        call()
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return spent


@contextlib.contextmanager
def _holders(processes: int, connections: int) -> Iterator[None]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(processes)
    ]
    try:
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


@contextlib.contextmanager
def _asking() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asking = subprocess.Popen([sys.executable, "-c", ASKING, str(listener.getsockname()[1])])
        answering, _ = listener.accept()
        try:
            while asking.pid not in read_calls(asking.pid):
                time.sleep(0.05)
            yield asking.pid
        finally:
            answering.close()
            asking.wait()


def main() -> None:
    """Measure and print."""
    print("| what | median, ms | largest, ms | |")
    print("|---|---|---|---|")
    for histograms in (20, 200):
        text = _metrics(histograms)
        assert parse_engine(text) is not None
        spent = _cpu_ms(lambda text=text: parse_engine(text))  # type: ignore[misc]
        median = statistics.median(spent)
        share = median / 1e3 / PERIOD_S
        print(f"| engine, {len(text) >> 10} KiB | {median:.1f} | {max(spent):.1f} | {share:.2%} of a core |")
    for processes, connections in ((0, 0), (100, 20), (100, 200)):
        with _holders(processes, connections), _asking() as pid:

            def search(pid: int = pid) -> frozenset[int]:
                return find_ends({(pid, pid): read_calls(pid)[pid]})[pid, pid].holders

            assert search() == {os.getpid()}
            spent = _cpu_ms(search)
            what = f"other ends, {processes} processes more with {2 * connections} sockets each"
            print(f"| {what} | {statistics.median(spent):.1f} | {max(spent):.1f} | |")


if __name__ == "__main__":
    main()
