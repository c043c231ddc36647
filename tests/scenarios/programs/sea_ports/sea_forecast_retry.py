"""Swell forecast for mooring lines. The buoy's spectrum comes from a small HTTP service that answers 503 while it is busy."""
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

SERVICE = r"""
import http.server, json, socketserver, sys, time
class Buoy(http.server.BaseHTTPRequestHandler):
    ready = None
    def do_GET(self):
        if Buoy.ready is None:  # the first request of the day starts the computation
            Buoy.ready = time.monotonic() + float(sys.argv[1])
        left = Buoy.ready - time.monotonic()
        body = json.dumps([(k * 7 % 13) / 13 for k in range(16)]).encode() if left <= 0 else b"recomputing"
        self.send_response(200 if left <= 0 else 503)
        if left > 0:
            self.send_header("Retry-After", str(max(1, int(left / 2))))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = socketserver.TCPServer(("127.0.0.1", 0), Buoy)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Spectrum:
    def __init__(self, buoy, busy):
        self.buoy = buoy
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        command = [sys.executable, "-c", SERVICE, str(busy)]
        self.service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.service.stdout.readline())}/{buoy}"

    def fetch(self, attempts=20):
        for attempt in range(1, attempts + 1):
            try:
                with self.opener.open(self.url, timeout=5) as answer:
                    return torch.tensor(json.load(answer))
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                wait = min(float(error.headers.get("Retry-After", 1)), 5.0)
                print(f"{self.buoy}: attempt {attempt} answered {error.code}, next in {wait:.0f} s", flush=True)
                time.sleep(wait)
        raise RuntimeError(f"{self.buoy}: no spectrum")

    def close(self):
        self.service.terminate()
        self.service.wait()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    buoy = ["Fino1", "Helgoland", "Elbe-N", "Sylt"][rank]
    source = Spectrum(buoy, busy=14.0 if rank == 2 else 0.0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1).cuda(), device_ids=[local])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    spectrum = torch.ones(16)
    for hour in range(120):
        time.sleep(0.05)
        if hour == 60:
            spectrum = source.fetch()
        x = torch.rand(8, 16) * spectrum
        loss = (model(x.cuda()) - x.max(1, keepdim=True).values.cuda()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
    source.close()
    print(f"{buoy}: done, {value:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
