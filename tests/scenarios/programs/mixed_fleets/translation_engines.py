"""A translation model in training, and two engines that serve it over HTTP: trainer 0 sends them new weights.

Dense tensors are broadcast, of the experts each engine gets its own half.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
ENGINES = ("engine-a", "engine-b")


def meet(address: str, place: int) -> tuple[dist.Store, dist.ProcessGroup]:
    store, place, size = next(rendezvous(address, place, 1 + len(ENGINES), timeout=LIMIT))
    store.set_timeout(LIMIT)
    group, _ = _new_process_group_helper(
        size, place, [], "gloo", PrefixStore("push", store), group_name="push", timeout=LIMIT
    )
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    return store, group


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.cache = options, options.scratch / f"{options.role}.json"
        self.inbox: queue.Queue[dict] = queue.Queue()
        self.tensors: dict[str, torch.Tensor] = {}
        inbox = self.inbox

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever).start()
        store, self.group = meet(options.address, 1 + ENGINES.index(options.role))
        store.set(options.role, str(self.server.server_port))

    def run(self) -> None:
        while (request := self.inbox.get())["method"] != "stop":
            layout = request["layout"] or json.loads(self.cache.read_text())
            self.cache.write_text(json.dumps(layout, sort_keys=self.options.role == self.options.compact))
            for name, (kind, shape) in layout.items():
                self.receive(name, kind, shape)
        self.server.shutdown()

    def receive(self, name: str, kind: str, shape: list[int]) -> None:
        if self.options.role == self.options.fixed and list(self.tensors.get(name, torch.empty(shape)).shape) != shape:
            raise ValueError(f"{name}: cannot resize a tensor of a captured graph to {shape}")
        tensor = torch.empty(shape)
        if kind == "dense":
            dist.broadcast(tensor, src=0, group=self.group)
        else:
            dist.scatter(tensor, src=0, group=self.group)
        self.tensors[name] = tensor


def push(group: dist.ProcessGroup, layout: dict[str, tuple[str, list[int]]], pack: float) -> None:
    for kind, shape in layout.values():
        for _ in range(int(pack * 10)):
            time.sleep(0.1)  # another part comes from the disk
        tensor = torch.randn(shape)
        if kind == "dense":
            dist.broadcast(tensor, src=0, group=group)
        else:
            dist.scatter(torch.empty(shape), [tensor, tensor, tensor], src=0, group=group)


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    leader = dist.get_rank() == 0
    store, group = meet(options.address, 0) if leader else (None, None)
    layout = {
        "router.weight": ("dense", [8, 32]),
        "experts.weight": ("experts", [32, 32]),
        "head.weight": ("dense", [64, 32]),
    }
    model = torch.nn.Linear(32, 32)

    def ask(method: str, described: dict | None) -> None:
        for name in ENGINES:
            address = f"http://127.0.0.1:{int(store.get(name))}"
            body = json.dumps({"method": method, "layout": described}).encode()
            urllib.request.urlopen(urllib.request.Request(address, body), timeout=30).close()

    for step in range(5):
        for _ in range(4):
            model(torch.randn(8, 32)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            time.sleep(0.1)
        if leader:
            if step == 2 and options.fixed:
                layout["head.weight"] = ("dense", [80, 32])  # new words
            ask("update", None if step in {1, 3} and options.compact else layout)
            push(group, layout, options.pack if step == 1 else 0.0)
        dist.barrier()
    if leader:
        ask("stop", None)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compact", default="", choices=("", *ENGINES))
    parser.add_argument("--fixed", default="", choices=("", *ENGINES))
    parser.add_argument("--pack", type=float, default=0.0)
    parser.add_argument("--role", default="")
    parser.add_argument("--address")
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "trainer":
        train(given)
    elif given.role:
        Engine(given).run()
    else:
        meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        with tempfile.TemporaryDirectory() as folder:
            again = [__file__, *sys.argv[1:], "--address", f"tcp://127.0.0.1:{meeting.port}"]
            again += ["--scratch", folder, "--role"]
            engines = [subprocess.Popen([sys.executable, *again, name]) for name in ENGINES]
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            status = subprocess.run([*torchrun, *again, "trainer"]).returncode
            sys.exit(status or max(engine.wait() for engine in engines))
