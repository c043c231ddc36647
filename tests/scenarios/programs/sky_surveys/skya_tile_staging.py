"""Weak lensing maps from tiles of a mass archive; the archive stages tiles from tape and says how far it is."""
import argparse
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("lensing")


class Archive(BaseHTTPRequestHandler):
    """Stand-in for the archive: a batch of tiles is read from tape when it is first asked for."""

    started, tape_s, total = {}, 13.0, 52

    def do_GET(self):
        batch = self.path.rsplit("/", 1)[1]
        first = self.started.setdefault(batch, time.monotonic())
        staged = self.total if batch == "0" else min(self.total, int((time.monotonic() - first) / self.tape_s * self.total))
        body = json.dumps({"staged": staged, "of": self.total, "seed": int(batch)}).encode()
        self.send_response(200 if staged == self.total else 503)
        if staged < self.total:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def fetch(url, attempts=60):
    """A batch of tiles; waits as long as the archive says that it gets on."""
    for attempt in range(attempts):
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            state = json.load(error)
            log.info("archive: %d of %d tiles staged", state["staged"], state["of"])
            time.sleep(float(error.headers["Retry-After"]))
    raise TimeoutError(url)


def shear_maps(seed, rank, count=24, size=48):
    g = torch.Generator().manual_seed(seed * 64 + rank)
    kappa = torch.randn(count, 1, size, size, generator=g)
    kappa = nn.functional.avg_pool2d(kappa, 5, 1, 2)
    gamma = torch.cat([kappa.roll(1, 2) - kappa.roll(-1, 2), kappa.roll(1, 3) - kappa.roll(-1, 3)], 1)
    return gamma + 0.05 * torch.randn(gamma.shape, generator=g), kappa


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--steps", type=int, default=18)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    address = [None]
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Archive)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address[0] = f"http://127.0.0.1:{server.server_port}"
    dist.broadcast_object_list(address, src=0)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(2, 24, 5, padding=2), nn.GELU(), nn.Conv2d(24, 24, 5, padding=2), nn.GELU(), nn.Conv2d(24, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for batch in range(args.batches):
        tiles = fetch(f"{address[0]}/tiles/{min(batch, 1)}")
        for step in range(args.steps):
            gamma, kappa = shear_maps(tiles["seed"] + step, rank)
            loss = (model(gamma) - kappa).square().mean()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            log.info("batch %d: loss %.4f", batch, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
