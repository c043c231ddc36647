"""Asteroid light curves fetched from an archive over HTTP, with its rate limits respected, and fitted on all ranks."""
import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn

PER_WINDOW = 90
WINDOW_S = 13.0


class Archive(http.server.BaseHTTPRequestHandler):
    """A mirror of the archive beside the job: so many requests per window, then 429."""

    served = 0
    window = None

    def do_GET(self):
        cls = type(self)
        now = time.monotonic()
        if cls.served >= PER_WINDOW:
            if cls.window is None:
                cls.window = now + WINDOW_S
            if now < cls.window:
                self.send_response(429)
                self.send_header("Retry-After", "3")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            cls.served, cls.window = -100_000, None
        cls.served += 1
        number = int(self.path.rsplit("/", 1)[1])
        g = torch.Generator().manual_seed(number)
        period = 0.5 + torch.rand(1, generator=g).item()
        body = json.dumps({"period": period, "noise": 0.05 * torch.rand(1, generator=g).item()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Client:
    def __init__(self, port, rank):
        self.base, self.rank = f"http://127.0.0.1:{port}/asteroid", rank

    def fetch(self, number, attempts=8):
        for attempt in range(attempts):
            try:
                with urllib.request.urlopen(f"{self.base}/{number}", timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                pause = float(error.headers["Retry-After"])
                print(f"[{self.rank}] asteroid {number}: 429, again in {pause:.0f} s ({attempt + 1}/{attempts})", flush=True)
                time.sleep(pause)
        raise RuntimeError(f"asteroid {number}: no answer after {attempts} attempts")


def curve(item, points=256):
    t = torch.linspace(0, 4, points)
    return torch.sin(2 * torch.pi * t / item["period"]) + item["noise"] * torch.randn(points)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    server = None
    port = torch.zeros(1, dtype=torch.long)
    if rank == 1:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port[0] = server.server_address[1]
    dist.broadcast(port, src=1)
    client = Client(int(port), rank)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for visit in range(50):
        item = client.fetch(visit * world + rank)
        batch = torch.stack([curve(item) for _ in range(256)])
        for _ in range(4):
            loss = (net(batch) - item["period"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            optimizer.step()
        if rank == 0 and visit % 10 == 0:
            print(f"visit {visit}: {loss.item():.4f}", flush=True)
    dist.barrier()
    if server is not None:
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
