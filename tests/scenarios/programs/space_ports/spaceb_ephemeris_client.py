"""Light time correction net; planetary ephemerides come from the mission's small HTTP service, which limits its callers."""
import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Service(http.server.BaseHTTPRequestHandler):
    """GET /ephemeris/<body>: positions as JSON. Callers that come too soon are told when to come again."""

    opens_at = None
    quiet_s = 13.0

    def do_GET(self):
        cls = type(self)
        if cls.opens_at is None:
            cls.opens_at = time.monotonic() + cls.quiet_s
        left = cls.opens_at - time.monotonic()
        if left > 0:
            self.send_response(429)
            self.send_header("Retry-After", f"{left:.1f}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps([[k * 0.1, k * 0.2, k * 0.3] for k in range(64)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class EphemerisClient:
    def __init__(self, port, attempts=10, longest=4.0):
        self.base, self.attempts, self.longest = f"http://127.0.0.1:{port}", attempts, longest
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def fetch(self, body):
        delay = 1.0
        for attempt in range(1, self.attempts + 1):
            try:
                with self.opener.open(f"{self.base}/ephemeris/{body}", timeout=20) as answer:
                    return torch.tensor(json.load(answer))
            except urllib.error.HTTPError as err:
                if err.code != 429:
                    raise
                print(f"{body}: service busy for {err.headers['Retry-After']} s, attempt {attempt}", flush=True)
                time.sleep(min(delay, self.longest))
                delay *= 1.7
        raise RuntimeError(f"no ephemeris of {body} after {self.attempts} attempts")


def start_service():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def practise(net, opt, count, gen, table):
    for _ in range(count):
        x = torch.randn(24, 3, generator=gen) + table[torch.randint(0, len(table), (24,), generator=gen)]
        loss = (net(x).squeeze(1) - x.norm(dim=1) / 3e5).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    port = torch.zeros(1, dtype=torch.long)
    server = None
    if rank == 0:
        server = start_service()
        port[0] = server.server_address[1]
    dist.broadcast(port, src=0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    practise(net, opt, 90, gen, torch.zeros(64, 3))
    table = torch.zeros(64, 3)
    if rank == 1:  # the node with the service account
        table = EphemerisClient(int(port)).fetch("mars")
    dist.broadcast(table, src=1)
    loss = practise(net, opt, 90, gen, table)
    print(f"rank {rank}: {loss:.5f}", flush=True)
    dist.barrier()
    if server is not None:
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
