"""Arrival-delay model with weather: one worker starts the METAR service and waits until its stations are loaded."""
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SERVICE = """
import json, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
stations = {}
def load():
    for k in range(110):
        time.sleep(0.12)
        stations["S%03d" % k] = [(k * j) % 7 for j in range(24)]
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = len(stations) == 110
        if self.path == "/wind" and ready:
            body = json.dumps({k: sum(v) / 24 for k, v in stations.items()})
        else:
            body = json.dumps({"loaded": len(stations), "of": 110})
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *args):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=load, daemon=True).start()
server.serve_forever()
"""


class WeatherService:
    def __init__(self, limit_s=60):
        self.child = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True)
        self.base = f"http://127.0.0.1:{int(self.child.stdout.readline())}"
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never over the company's proxy
        self.limit_s = limit_s

    def get(self, path):
        with self.http.open(self.base + path, timeout=5) as answer:
            return json.loads(answer.read())

    def wait_ready(self):
        deadline, pause = time.monotonic() + self.limit_s, 0.25
        while time.monotonic() < deadline:
            try:
                return self.get("/health")
            except urllib.error.HTTPError as busy:
                state = json.loads(busy.read())
                print(f"weather service: {state['loaded']} of {state['of']} stations", flush=True)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
        raise TimeoutError("weather service did not come up")

    def close(self):
        self.child.terminate()
        self.child.wait(timeout=10)


def train(model, optimizer, rng, wind, steps):
    for _ in range(steps):
        x = torch.randn(32, 6, generator=rng)
        x[:, 0] = wind
        loss = nn.functional.mse_loss(model(x).squeeze(1), x[:, 1] * 2 + wind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rng = torch.Generator().manual_seed(rank)
    print(f"climatology: {train(model, optimizer, rng, 0.0, 40):.3f}", flush=True)
    wind = torch.zeros(1)
    if rank == 1:
        service = WeatherService()
        service.wait_ready()
        winds = service.get("/wind")
        wind[0] = sum(winds.values()) / len(winds)
        service.close()
    dist.broadcast(wind, src=1)
    print(f"with weather: {train(model, optimizer, rng, wind.item(), 40):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
