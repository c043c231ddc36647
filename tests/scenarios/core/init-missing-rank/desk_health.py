"""Training beside an inference server: `python desk_health.py` starts the server and two trainers on this machine."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Server:
    """Is healthy once it has a model and knows the trainers, from whom it will get weights."""

    def __init__(self, port: int) -> None:
        self.trainers, self.model, self.port = None, torch.nn.Linear(4, 4), port

    @property
    def healthy(self) -> bool:
        return self.model is not None and self.trainers is not None

    def run(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def reply(self, status: int, value: dict) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.reply(200, {"healthy": server.healthy})

            def do_POST(self) -> None:
                server.trainers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.reply(200, {"trainers": server.trainers})

            def log_message(self, *args) -> None:
                pass

        ThreadingHTTPServer(("127.0.0.1", self.port), Handler).serve_forever()


class InferenceClient:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return json.load(answer)["healthy"]
        except OSError:
            return False

    def wait(self) -> "InferenceClient":
        while not self.healthy():
            time.sleep(0.5)
        return self

    def register(self, world: int) -> None:
        request = urllib.request.Request(f"{self.url}/trainers", data=json.dumps({"world": world}).encode())
        urllib.request.urlopen(request, timeout=5).close()


def train(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    client = InferenceClient(port)
    if rank == world - 1:  # the one that evaluates on the server
        client.wait()
    dist.init_process_group("gloo", rank=rank, world_size=world)
    if rank == 0:
        client.register(world)
    dist.barrier()
    weight = torch.zeros(4, requires_grad=True)
    for step in range(50):
        (weight - step).square().sum().backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        time.sleep(0.1)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        Server(int(sys.argv[2])).run()
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        port = free_port()
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "serve", str(port)])
        try:
            mp.start_processes(train, args=(2, port), nprocs=2, start_method="fork")
        finally:
            process.terminate()
