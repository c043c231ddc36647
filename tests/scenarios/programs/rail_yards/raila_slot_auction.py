"""Bids for train paths: the auction office's interface is paged and metered, training follows."""
import http.server
import json
import logging
import os
import socket
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("auction")
PAGES, PER_PAGE = 14, 32
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Office(http.server.BaseHTTPRequestHandler):
    """Answers one page per second; who asks sooner is told how long to wait."""

    next_free = 0.0

    def do_GET(self):
        now = time.monotonic()
        if now < Office.next_free:
            self.send_response(429)
            self.send_header("Retry-After", f"{Office.next_free - now:.2f}")
            self.end_headers()
            return
        Office.next_free = now + 1.0
        page = int(self.path.rsplit("/", 1)[1])
        bids = [[(page * 37 + k * 11 + j) % 23 / 23.0 for j in range(6)] for k in range(PER_PAGE)]
        body = json.dumps({"bids": bids, "next": page + 1 if page + 1 < PAGES else None}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def office(port):
    http.server.HTTPServer(("127.0.0.1", port), Office).serve_forever()


def get(url):
    for attempt in range(60):
        try:
            with OPENER.open(url, timeout=10) as r:
                return json.load(r)
        except urllib.error.HTTPError as e:
            if e.code != 429:
                raise
            time.sleep(float(e.headers.get("Retry-After", 1)) + 0.02)
        except urllib.error.URLError:
            time.sleep(0.2)
    raise RuntimeError(f"no answer from {url}")


def all_bids(port):
    page = 0
    while page is not None:
        answer = get(f"http://127.0.0.1:{port}/bids/{page}")
        yield from answer["bids"]
        page = answer["next"]


def fit(model, opt, bids, steps):
    for _ in range(steps):
        x = bids[torch.randint(0, len(bids), (32,))]
        loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.03)
    return loss.item()


def worker(rank, world, port, office_port):
    logging.basicConfig(level=logging.INFO)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    log.info("rank %d warm-up loss %.3f", rank, fit(model, opt, torch.rand(256, 6), 80))
    bids = torch.tensor(list(all_bids(office_port))) if rank == 0 else torch.empty(PAGES * PER_PAGE, 6)
    dist.broadcast(bids, src=0)
    log.info("rank %d final loss %.3f", rank, fit(model, opt, bids, 80))
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    spawn = mp.get_context("spawn")
    office_port = free_port()
    server = spawn.Process(target=office, args=(office_port,), daemon=True)
    server.start()
    mp.spawn(worker, args=(3, free_port(), office_port), nprocs=3)
    server.terminate()
