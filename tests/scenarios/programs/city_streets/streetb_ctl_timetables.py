"""Timetable feed from the transit agency's mirror, which serves at a limited rate; then a model of dwell times."""
import http.server
import logging
import os
import socketserver
import threading
import time
import urllib.request
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("timetables")
CHUNK, CHUNKS = 64 * 1024, 70


class Feed(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(CHUNK * CHUNKS))
        self.end_headers()
        for number in range(CHUNKS):
            self.wfile.write(bytes([number % 256]) * CHUNK)
            time.sleep(0.2)  # 320 KiB/s for each client

    def log_message(self, *args):
        pass


class Mirror(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def open_mirror():
    mirror = Mirror(("127.0.0.1", 0), Feed)
    threading.Thread(target=mirror.serve_forever, daemon=True, name="mirror").start()
    return f"http://127.0.0.1:{mirror.server_address[1]}/feed.zip"


def download(url, report):
    crc = size = 0
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        while piece := answer.read(CHUNK):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            if size % (CHUNK * 14) == 0:
                report(size)
    return crc, size


def train(model, optimizer, steps, rng):
    for _ in range(steps):
        boardings = torch.rand(2048, 32, generator=rng)
        dwell = torch.sort(boardings, dim=1).values[:, 16:].mean(1, keepdim=True)
        loss = nn.functional.huber_loss(model(boardings.cuda()), dwell.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    place = [open_mirror() if rank == 0 else None]
    dist.broadcast_object_list(place, src=0)
    rng = torch.Generator().manual_seed(rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log.info("[%d] warm-up %.3g", rank, train(model, optimizer, 80, rng))

    crc, size = download(place[0], lambda done: log.info("[%d] %.1f MiB", rank, done / 2**20))
    seen = [None] * dist.get_world_size()
    dist.all_gather_object(seen, crc)
    assert len(set(seen)) == 1, seen
    log.info("[%d] %.1f MiB, crc %08x; %.3g", rank, size / 2**20, crc, train(model, optimizer, 80, rng))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
