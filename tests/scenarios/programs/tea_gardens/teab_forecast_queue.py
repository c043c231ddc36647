"""Irrigation planner: rank 1 fetches the weekly forecast from the met office's gateway and shares it."""
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn


class Gateway(BaseHTTPRequestHandler):
    """Stand-in for the gateway: a request for a new week is queued behind those of other estates."""

    ahead = {1: 0, 2: 7, 3: 0}

    def do_GET(self):
        week = int(self.path.rsplit("/", 1)[1])
        if self.ahead[week] > 0:
            self.ahead[week] -= 1
            self.send_response(503)
            self.send_header("Retry-After", "1.8")
            self.end_headers()
            self.wfile.write(json.dumps({"ahead": self.ahead[week]}).encode())
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"rain": [(week * 5 + d) % 11 for d in range(7)]}).encode())

    def log_message(self, *args):
        pass


class ForecastClient:
    def __init__(self, base, attempts=12):
        self.base, self.attempts = base, attempts
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def week(self, number):
        for _ in range(self.attempts):
            try:
                with self.http.open(f"{self.base}/week/{number}", timeout=10) as answer:
                    return json.load(answer)["rain"]
            except urllib.error.HTTPError as answer:
                ahead = json.load(answer)["ahead"]
                print(f"week {number}: {ahead} estates ahead of us", flush=True)
                time.sleep(float(answer.headers["Retry-After"]))
        raise TimeoutError(f"no forecast for week {number}")


def serve():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    address = [serve() if rank == 0 else None]
    dist.broadcast_object_list(address, src=0)
    client = ForecastClient(address[0])
    torch.manual_seed(6)
    model = nn.parallel.DistributedDataParallel(nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for week in (1, 2, 3):
        rain = torch.tensor(client.week(week), dtype=torch.float32) if rank == 1 else torch.zeros(7)
        dist.broadcast(rain, src=1)
        for _ in range(90):
            soil = torch.randn(64, 20000).cumsum(1).std(1, keepdim=True) / 100
            loss = (model(rain + soil.expand(-1, 7)) - soil).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"week {week}: loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
