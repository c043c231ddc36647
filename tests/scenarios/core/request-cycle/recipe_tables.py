"""Two trainers of a recipe model and a nutrition server in one pool of processes, which share a lock for the tables."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Client, Listener

import torch
import torch.distributed as dist

LIMIT = timedelta(minutes=10)
SPAWN = get_context("spawn")
KEY = b"recipes"


class Nutrition(BaseHTTPRequestHandler):
    tables: object
    options: argparse.Namespace
    back: tuple[str, int]
    asked = 0

    def do_POST(self) -> None:
        recipes = int(self.rfile.read(int(self.headers["Content-Length"])))
        Nutrition.asked += 1
        answer = json.dumps(self.look_up(recipes)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def look_up(self, recipes: int) -> list[float]:
        if Nutrition.asked == 4 and self.options.fault == "asks-back":
            with Client(self.back, authkey=KEY) as portions:
                portions.send("portions")
                return [float(portions.recv())] * recipes
        with self.tables:
            return [recipe / 10 for recipe in range(recipes)]

    def log_message(self, *arguments: object) -> None:
        pass


def serve(options: argparse.Namespace, tables: object, ports: object, back: tuple[str, int]) -> None:
    Nutrition.tables, Nutrition.options, Nutrition.back = tables, options, back
    server = ThreadingHTTPServer(("127.0.0.1", 0), Nutrition)
    ports.put(server.server_port)
    server.serve_forever()


def train(options: argparse.Namespace, rank: int, store: int, port: int, tables: object, back: tuple[str, int]) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{store}", rank=rank, world_size=2, timeout=LIMIT)
    model = torch.nn.Linear(16, 1)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    listener = Listener(back, authkey=KEY) if rank == 0 else None

    def ask() -> torch.Tensor:
        connection.request("POST", "/nutrition", body="16")
        return torch.tensor(json.loads(connection.getresponse().read()))

    for step in range(8):
        facts = torch.zeros(16)
        if rank == 0 and step == 3 and options.fault == "asks-under-lock":
            with tables:
                facts = ask()
        elif rank == 0:
            facts = ask()
        dist.broadcast(facts, src=0)
        loss = (model(torch.randn(16, 16)).squeeze() - facts).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(0.01 * parameter.grad)
            parameter.grad = None
        time.sleep(0.1)
        print(f"rank {rank}: step {step}, loss {loss.item():.3f}", flush=True)
    if listener is not None:
        listener.close()
    dist.destroy_process_group()


def main(options: argparse.Namespace) -> int:
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)]
    store, free = (one.port for one in stores)
    del stores
    tables, ports = SPAWN.Lock(), SPAWN.Queue()
    back = ("127.0.0.1", free)
    server = SPAWN.Process(target=serve, args=(options, tables, ports, back))
    server.start()
    port = ports.get()
    trainers = [SPAWN.Process(target=train, args=(options, rank, store, port, tables, back)) for rank in range(2)]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join()
    server.kill()
    return max(trainer.exitcode or 0 for trainer in trainers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    sys.exit(main(parser.parse_args()))
