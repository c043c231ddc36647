"""Autoencoder for weld images; the midpoint checkpoint goes to the plant's object store."""
import http.client
import io
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

STORE = r'''
import http.server
parts = {}
class Store(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        parts[self.path] = len(data)
        self.send_response(200)
        self.send_header("ETag", "%08x" % (hash(data) & 0xffffffff))
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Store)
print(server.server_port, flush=True)
server.serve_forever()
'''


class Bucket:
    """Token bucket: the uplink of the plant is shared, so we keep to `rate` bytes per second."""

    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.level, self.stamp = burst, time.monotonic()

    def take(self, amount):
        while True:
            now = time.monotonic()
            self.level = min(self.burst, self.level + (now - self.stamp) * self.rate)
            self.stamp = now
            if self.level >= amount:
                self.level -= amount
                return
            time.sleep((amount - self.level) / self.rate)


def parts_of(blob, size):
    for number, start in enumerate(range(0, len(blob), size), 1):
        yield number, blob[start:start + size]


def upload(port, name, blob):
    part_size = len(blob) // 8 + 1
    bucket = Bucket(rate=len(blob) / 15, burst=part_size)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    tags = []
    for number, part in parts_of(blob, part_size):
        bucket.take(len(part))
        connection.request("PUT", f"/{name}?partNumber={number}", body=part)
        reply = connection.getresponse()
        reply.read()
        tags.append(reply.getheader("ETag"))
    connection.close()
    return tags


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.GELU(), torch.nn.Linear(64, 256)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    store = None
    if rank == 0:
        store = subprocess.Popen([sys.executable, "-c", STORE], stdout=subprocess.PIPE, text=True)
        port = int(store.stdout.readline())
    for step in range(1, 61):
        x = torch.rand(16, 256)
        loss = torch.nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
        if step == 30:
            if rank == 0:
                buffer = io.BytesIO()
                torch.save({"model": model.module.state_dict(), "step": step}, buffer)
                tags = upload(port, f"weld-{step}.pt", buffer.getvalue())
                print(f"step {step}: {len(tags)} parts stored", flush=True)
            dist.barrier()
    if rank == 0:
        print(f"done, loss {loss.item():.4f}", flush=True)
        store.terminate()
        store.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
