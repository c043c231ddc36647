"""Fine-tunes a movement model with range maps from the atlas server, which is busy on Saturdays and asks its clients to wait."""
import functools
import http.server
import json
import logging
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("atlas")
CELLS = 32
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Atlas(http.server.BaseHTTPRequestHandler):
    """Stand-in for the national atlas: its workers are all taken at first."""

    served = 0

    def do_GET(self):
        Atlas.served += 1
        if Atlas.served <= 4:
            self.send_response(503)
            self.end_headers()
            return
        body = json.dumps([[((r * 7 + c * 3) % 11) / 11 for c in range(CELLS)] for r in range(CELLS)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def start_atlas():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Atlas)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def retrying(attempts, first, factor):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            pause = first
            for attempt in range(attempts):
                try:
                    return fn(*args)
                except urllib.error.HTTPError as e:
                    log.info("%s: %d, again in %.1f s (%d of %d)", fn.__name__, e.code, pause, attempt + 1, attempts)
                    time.sleep(pause)
                    pause *= factor
            raise RuntimeError(f"{fn.__name__} gave up after {attempts} attempts")

        return wrapper

    return decorate


@retrying(attempts=7, first=1.0, factor=2.0)
def range_map(url):
    with direct.open(url, timeout=10) as answer:
        return torch.tensor(json.load(answer))


def season(model, opt, prior, rank, steps, offset):
    for step in range(steps):
        g = torch.Generator().manual_seed(offset + 5 * step + rank)
        at = torch.rand(15000, CELLS, generator=g)
        loss = (model(at) - at @ prior).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(CELLS, 128), torch.nn.Tanh(), torch.nn.Linear(128, CELLS)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    prior = torch.eye(CELLS)
    first = season(model, opt, prior, rank, 150, 0)
    if rank == 1:  # the one with a way out of the cluster
        atlas = start_atlas()
        prior = range_map(f"http://127.0.0.1:{atlas.server_address[1]}/range/ciconia")
        atlas.shutdown()
    dist.broadcast(prior, src=1)
    second = season(model, opt, prior, rank, 150, 700_000)
    if rank == 0:
        log.info("loss %.4f without, %.4f with the range map", first, second)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
