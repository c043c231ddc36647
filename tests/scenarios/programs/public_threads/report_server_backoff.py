"""Rank 0 fetches the curriculum from a service that starts slowly, and tries again with growing pauses."""

import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Curriculum(BaseHTTPRequestHandler):
    ready_at = float("inf")

    def do_GET(self):
        ready = time.monotonic() >= self.ready_at
        body = json.dumps({"scales": [0.5, 1.0, 2.0]} if ready else {"status": "loading"}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def start_service(seconds):
    Curriculum.ready_at = time.monotonic() + seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), Curriculum)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/curriculum"


def fetch(url, first_pause=0.25, factor=1.6, tries=12):
    pause = first_pause
    for attempt in range(1, tries + 1):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            print(f"attempt {attempt}: {error.code}, again in {pause:.1f} s", flush=True)
        time.sleep(pause)
        pause *= factor
    raise RuntimeError(f"{url} does not answer")


def agree_on_curriculum(rank):
    box = [None]
    if rank == 0:
        box[0] = fetch(start_service(11.0))
    dist.broadcast_object_list(box, src=0)
    return box[0]["scales"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(12, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def epoch(scale):
        for _ in range(40):
            x = scale * torch.randn(16, 12)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        return loss.item()

    losses = [epoch(1.0)]
    losses += [epoch(scale) for scale in agree_on_curriculum(rank)]
    print(f"rank {rank}: {[round(loss, 4) for loss in losses]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
