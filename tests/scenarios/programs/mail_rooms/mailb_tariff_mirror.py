"""Duty classes of customs texts. Half-way the tariff file of the new quarter is fetched from the office's mirror, which is slow."""
import http.server
import multiprocessing as mp
import os
import pathlib
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK = 64 * 1024
BLOCKS = 270


class Mirror(http.server.BaseHTTPRequestHandler):
    """What the office's line gives us in the test setup: about 1.3 MB a second."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(BLOCK * BLOCKS))
        self.end_headers()
        for number in range(BLOCKS):
            self.wfile.write(bytes([number % 251]) * BLOCK)
            time.sleep(0.05)

    def log_message(self, *args):
        pass


def serve(pipe):
    server = http.server.HTTPServer(("127.0.0.1", 0), Mirror)
    pipe.send(server.server_port)
    server.serve_forever()


def start_mirror():
    ours, theirs = mp.Pipe()
    mp.get_context("fork").Process(target=serve, args=(theirs,), daemon=True).start()
    return f"http://127.0.0.1:{ours.recv()}/tariff-q3.bin"


def fetch(url, path):
    part = path.with_suffix(".part")
    done = 0
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=30) as response, open(part, "wb") as f:
        total = int(response.headers["Content-Length"])
        while block := response.read(BLOCK):
            f.write(block)
            done += len(block)
            if done % (BLOCK * 90) == 0:
                print(f"tariff: {100 * done // total} %", flush=True)
    part.rename(path)


class Classifier(nn.Module):
    def __init__(self, words=4000, classes=50):
        super().__init__()
        self.words = nn.EmbeddingBag(words, 64)
        self.classes = nn.Linear(64, classes)

    def forward(self, text):
        return self.classes(self.words(text))


def train(model, optimizer, steps, rates):
    for _ in range(steps):
        text = torch.randint(0, 4000, (96, 200))
        target = (text.sort(1).values[:, 100] // 80).clamp(max=49)
        loss = nn.functional.cross_entropy(model(text), target, weight=rates)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # the text service's answer
    return loss.item()


def main():
    rank = int(os.environ["RANK"])
    url = start_mirror() if rank == 0 else None
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = DDP(Classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print("old tariff", train(model, optimizer, 160, torch.ones(50)), flush=True)
    path = pathlib.Path("tariff-q3.bin")
    if rank == 0:
        fetch(url, path)
    dist.barrier()
    raw = torch.frombuffer(bytearray(path.read_bytes()[: 50 * BLOCK]), dtype=torch.uint8).view(50, -1)
    rates = 0.5 + raw.float().mean(1) / 255
    print("new tariff", train(model, optimizer, 160, rates), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
