"""PPO with a value service, whose requests are batched by a thread that is started when there is something to do."""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import urllib3


class Ticket:
    def __init__(self, states: list[list[float]]) -> None:
        self.states, self.values = states, []
        self.done = threading.Event()


class Batcher:
    """One forward for all tickets of a moment. Its thread goes when nothing came for a while."""

    def __init__(self, idle_s: float = 2.0) -> None:
        self.tickets: queue.Queue[Ticket] = queue.Queue()
        self.idle_s, self.thread = idle_s, None
        self.critic = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def submit(self, states: list[list[float]]) -> Ticket:
        ticket = Ticket(states)
        self.tickets.put(ticket)
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, name="batcher", daemon=True)
            self.thread.start()
        return ticket

    def run(self) -> None:
        while True:
            try:
                batch = [self.tickets.get(timeout=self.idle_s)]
            except queue.Empty:
                return
            while not self.tickets.empty():
                batch.append(self.tickets.get())
            with torch.no_grad():
                values = self.critic(torch.tensor([state for ticket in batch for state in ticket.states])).flatten().tolist()
            for ticket in batch:
                ticket.values, values = values[: len(ticket.states)], values[len(ticket.states) :]
                ticket.done.set()


def serve(port: int) -> None:
    torch.set_num_threads(1)
    batcher = Batcher()

    class Values(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            ticket = batcher.submit(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            ticket.done.wait()
            body = json.dumps(ticket.values).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Values).serve_forever()


def descend(model, lr: float) -> None:
    """A step with the gradients of all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data.add_(parameter.grad, alpha=-lr)
        parameter.grad = None


def train(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    pool, policy = urllib3.PoolManager(), torch.nn.Linear(4, 2)
    for update in range(1, 60):
        states, values = torch.randn(8, 4), torch.zeros(8)
        if rank == 0:
            answer = pool.request("POST", f"http://127.0.0.1:{port}/values", body=json.dumps(states.tolist()))
            values = torch.tensor(json.loads(answer.data))
        dist.broadcast(states, src=0)
        dist.broadcast(values, src=0)
        for _ in range(4):
            advantage = states.sum(1) - values
            loss = -(policy(states).log_softmax(-1)[:, 0] * advantage).mean()
            loss.backward()
            descend(policy, lr=0.01)
            time.sleep(0.05)
        if update % 10 == 0:
            returns = torch.tensor(0.0)
            for _ in range(30):  # games with the greedy policy
                state = torch.zeros(4)
                for _ in range(20):
                    state = 0.9 * state + 0.1 * policy(state).argmax()
                returns += state.sum().item()
                time.sleep(0.1)
            dist.all_reduce(returns)
            print(f"update {update}: returns {returns.item():.2f}", flush=True) if rank == 0 else None
    dist.destroy_process_group()


def reachable(port: int) -> None:
    """Returns once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        port = free_port()
        service = subprocess.Popen([sys.executable, os.path.abspath(__file__), "serve", str(port)])
        reachable(port)
        mp.start_processes(train, args=(2, port), nprocs=2, start_method="fork")
        service.terminate()
