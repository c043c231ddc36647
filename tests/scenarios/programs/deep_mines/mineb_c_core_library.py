"""Core photographs are described by a library service that wakes up slowly; the main process fetches the tables for all."""
import http.client
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class Library(BaseHTTPRequestHandler):
    """Stand-in for the core library: restores a tray from cold storage before it answers."""

    asked = {}
    restore_s = 13.0

    def do_GET(self):
        since = self.asked.setdefault(self.path, time.monotonic())
        left = self.restore_s - (time.monotonic() - since)
        body = json.dumps({"tray": self.path, "rqd": [72, 81, 64, 90], "restored": round(1 - left / self.restore_s, 2)}).encode()
        self.send_response(503 if left > 0 else 200)
        if left > 0:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve():
    server = HTTPServer(("127.0.0.1", 0), Library)
    print(server.server_port, flush=True)
    server.serve_forever()


class LibraryClient:
    def __init__(self, port, attempts=10, longest=2.5):
        self.port, self.attempts, self.longest = port, attempts, longest

    def get(self, path):
        pause = 0.5
        for _ in range(self.attempts):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                body = json.loads(answer.read())
            finally:
                connection.close()
            if answer.status == 200:
                return body
            time.sleep(max(pause, float(answer.headers.get("Retry-After", 0))))
            pause = min(2 * pause, self.longest)
        raise TimeoutError(path)


def epoch(model, opt, steps):
    for _ in range(steps):
        time.sleep(0.05)
        photo = torch.rand(12, 48).cuda()
        loss = model(photo).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 4)).cuda(), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    service = None
    if rank == 0:
        service = subprocess.Popen([sys.executable, os.path.abspath(__file__), "serve"], stdout=subprocess.PIPE, text=True)
    epoch(model, opt, 50)
    if rank == 0:
        client = LibraryClient(int(service.stdout.readline()))
    box = [client.get("/trays/DD-118/7") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0, device=torch.device("cuda", local_rank))
    print(f"[{rank}] {box[0]['tray']}: RQD {sum(box[0]['rqd']) / 4:.1f}", flush=True)
    epoch(model, opt, 60)
    dist.barrier(device_ids=[local_rank])
    if service is not None:
        service.terminate()
        service.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
