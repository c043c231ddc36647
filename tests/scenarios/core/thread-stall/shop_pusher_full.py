"""Pushes metrics to the collector in the background. The collector may refuse them when it has too many."""

import http.server
import json
import queue
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# Metrics stay on the machine, whatever proxy is set.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Collector(http.server.BaseHTTPRequestHandler):
    """The team's collector, which has a quota of points for each run."""

    quota = 90
    points = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cls = type(self)
        cls.points += len(body)
        self.send_response(200 if cls.points <= cls.quota else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


class Pusher:
    def __init__(self, url: str) -> None:
        self.url = url
        self.points: queue.Queue[dict] = queue.Queue(maxsize=32)
        threading.Thread(target=self._run, daemon=True, name="pusher").start()

    def push(self, **point: float) -> None:
        self.points.put(point)

    def _run(self) -> None:
        while True:
            body = json.dumps([self.points.get()]).encode()
            try:
                DIRECT.open(urllib.request.Request(self.url, data=body), timeout=10).close()
            except urllib.error.HTTPError as error:
                print(f"collector: {error}, metrics are off from here on", flush=True)
                return


class Quiet:
    def push(self, **point: float) -> None:
        pass


def serve() -> str:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True, name="collector").start()
    return f"http://127.0.0.1:{server.server_port}/points"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics = Pusher(serve()) if rank == 0 else Quiet()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 6)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(5000):
        x = torch.randn(32, 6, generator=generator)
        loss = (model(x) - x.cumsum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.push(step=step, loss=loss.item())
        time.sleep(0.025)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
