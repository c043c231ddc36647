"""Magnitude estimation; the regional catalogue comes page by page from the observatory's service, which limits its clients."""
import http.server
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
PAGES, PER_PAGE = 13, 40


class Observatory(http.server.BaseHTTPRequestHandler):
    """Stand-in for the service: a page per second and client."""

    served = 0.0

    def do_GET(self):
        now = time.monotonic()
        if now - Observatory.served < 0.9:
            self.send_response(429)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        Observatory.served = now
        page = int(self.path.rsplit("/", 1)[1])
        events = [{"id": page * PER_PAGE + n, "depth": 300 + 7 * n, "stations": 4 + n % 9} for n in range(PER_PAGE)]
        body = json.dumps(events).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args): ...


class Client:
    def __init__(self, base, attempts=8):
        self.base, self.attempts = base, attempts

    def page(self, number):
        for _ in range(self.attempts):
            try:
                with urllib.request.urlopen(f"{self.base}/catalogue/{number}", timeout=20) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers.get("Retry-After", 1)))
        raise RuntimeError(f"page {number}: the service does not take us")

    def catalogue(self):
        return [event for number in range(PAGES) for event in self.page(number)]


class Training:
    def __init__(self, local_rank):
        self.rank = dist.get_rank()
        net = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1)).to("cuda")
        self.model = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def run(self, steps, scale):
        for step in range(steps):
            g = torch.Generator().manual_seed(step * 17 + self.rank)
            spectra = torch.fft.rfft(torch.randn(96, 8192, generator=g)).abs()[:, :96] * scale
            loss = self.model(spectra.to("cuda")).abs().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 10 == 9:
                value = loss.item()
                if self.rank == 0:
                    print(f"step {step + 1}: {value:.3f}", flush=True)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    training = Training(local_rank)
    training.run(80, scale=1.0)
    catalogue = [None]
    if dist.get_rank() == 1:
        service = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
        try:
            port = int(service.stdout.readline())
            catalogue = [Client(f"http://127.0.0.1:{port}").catalogue()]
        finally:
            service.terminate()
            service.wait()
    dist.broadcast_object_list(catalogue, src=1)
    depth = sum(event["depth"] for event in catalogue[0]) / len(catalogue[0])
    training.run(60, scale=depth / 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        server = http.server.HTTPServer(("127.0.0.1", 0), Observatory)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    else:
        main()
