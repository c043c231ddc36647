"""REINFORCE with marks from a service that rank 0 starts; each rank asks it for the marks of its own prompts."""

import json
import logging
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

log = logging.getLogger("marks")


def service() -> None:
    class Marks(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            words = [len(text.split()) for text in texts]
            time.sleep(0.002 * max(words) ** 1.5)
            body = json.dumps([1.0 / count for count in words]).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except BrokenPipeError:
                pass

        def log_message(self, *args) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Marks)
    print(server.server_address[1], flush=True)
    server.serve_forever()


class Prompts:
    """An epoch of a rank's shard: mostly short ones."""

    def __init__(self, rank: int, steps: int) -> None:
        self.rank, self.steps = rank, steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self):
        for step in range(self.steps):
            length = 8 + (5 * step + self.rank) % 9
            if (self.rank, step) == (1, 6):
                length = 160
            yield [" ".join(f"w{i}" for i in range(length))] * 4


class Marker:
    def __init__(self, port: int, patience: float = 1.5) -> None:
        self.url, self.patience = f"http://127.0.0.1:{port}/marks", patience

    def __call__(self, texts: list[str]) -> list[float]:
        return requests.post(self.url, json=texts, timeout=self.patience).json()


def main() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world, port = dist.get_rank(), dist.get_world_size(), [None]
    if rank == 0:
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "service"], stdout=subprocess.PIPE, text=True)
        port = [int(child.stdout.readline())]
    dist.broadcast_object_list(port, src=0)
    marker, prompts = Marker(port[0]), Prompts(rank, steps=12)
    policy = torch.zeros(4, 4, requires_grad=True)
    for epoch in range(8):
        seen = []
        for step, texts in enumerate(prompts):
            try:
                marks = torch.tensor(marker(texts))
            except requests.Timeout:
                log.warning("rank %d: no marks for step %d in time", rank, step)
                continue
            loss = -((torch.randn(4, 4) @ policy).log_softmax(-1).mean(1) * marks).mean()
            loss.backward()
            dist.all_reduce(policy.grad)
            policy.data -= 0.05 / world * policy.grad
            policy.grad = None
            seen.append(marks.mean())
            time.sleep(0.15)
        mean = torch.stack(seen).mean()
        means = [torch.zeros(()) for _ in range(world)]
        dist.all_gather(means, mean)
        if rank == 0:
            print(f"epoch {epoch}: marks {[round(m.item(), 3) for m in means]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    service() if sys.argv[1:] == ["service"] else main()
