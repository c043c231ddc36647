"""Sends a trained triage model to the regional registry over the shared clinic line."""
import io
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PART = 32 * 1024
LINE_RATE = 110 * 1024      # bytes per second that the clinic grants us


class TokenBucket:
    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.level, self.stamp = burst, time.monotonic()

    def _refill(self):
        now = time.monotonic()
        self.level = min(self.burst, self.level + (now - self.stamp) * self.rate)
        self.stamp = now

    def take(self, amount):
        self._refill()
        while self.level < amount:
            time.sleep(min(1.0, (amount - self.level) / self.rate))
            self._refill()
        self.level -= amount


class Registry(BaseHTTPRequestHandler):
    received = 0

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Registry.received += len(body)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def publish(state):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/models/triage"
    buffer = io.BytesIO()
    torch.save(state, buffer)
    blob, bucket = buffer.getbuffer(), TokenBucket(LINE_RATE, PART)
    for number, start in enumerate(range(0, len(blob), PART)):
        part = bytes(blob[start:start + PART])
        bucket.take(len(part))
        request = urllib.request.Request(f"{base}?part={number}", data=part, method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
    server.shutdown()
    return Registry.received


def steps(model, opt, count):
    for _ in range(count):
        vitals = torch.randn(32, 256)
        time.sleep(0.05)
        loss = nn.functional.cross_entropy(model(vitals), vitals[:, :5].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(nn.Sequential(nn.Linear(256, 1400), nn.GELU(), nn.Linear(1400, 5)))   # about 1.4 MB
opt = torch.optim.SGD(model.parameters(), lr=0.05)
first = steps(model, opt, 45)
sent = torch.zeros(1)
if rank == 2:
    sent += publish(model.module.state_dict())
dist.broadcast(sent, src=2)
last = steps(model, opt, 40)
print(f"rank {rank}: {first:.3f} -> {last:.3f}, registry holds {int(sent)} bytes", flush=True)
dist.destroy_process_group()
