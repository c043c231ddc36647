"""Refreshes orbital elements from a (local) catalogue service between two rounds of training.

The service prepares a bulk order and answers 202 with its progress and a Retry-After header until it is done.
"""
import http.server
import json
import multiprocessing
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn

ORDER_SECONDS = 14.0


class Catalogue(http.server.BaseHTTPRequestHandler):
    orders = {}

    def do_GET(self):
        started = self.orders.setdefault(self.path, time.monotonic())
        done = min(1.0, (time.monotonic() - started) / ORDER_SECONDS)
        ready = done >= 1.0
        body = {"progress": round(done, 3)}
        if ready:
            body["mean_motion"] = [15.0 + 0.001 * n for n in range(400)]
        data = json.dumps(body).encode()
        self.send_response(200 if ready else 202)
        if not ready:
            self.send_header("Retry-After", "2")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def serve(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Catalogue)
    port.put(server.server_address[1])
    server.serve_forever()


class CatalogueClient:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def order(self, shell):
        while True:
            with urllib.request.urlopen(f"{self.base}/bulk/{shell}", timeout=10) as answer:
                body = json.load(answer)
                if answer.status == 200:
                    return torch.tensor(body["mean_motion"])
                pause = float(answer.headers["Retry-After"])
            print(f"{shell}: {body['progress']:.0%} prepared", flush=True)
            time.sleep(pause)


def rounds(model, optimizer, elements, count):
    for _ in range(count):
        rows = elements[torch.randint(0, len(elements), (2500,))].unsqueeze(1) - 15.2
        x = rows.expand(-1, 12) + 0.05 * torch.randn(2500, 12)
        loss = (model(x) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    service = None
    if rank == 2:
        queue = context.Queue()
        service = context.Process(target=serve, args=(queue,), daemon=True)
        service.start()
        client = CatalogueClient(queue.get())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 160), nn.ReLU(), nn.Linear(160, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    elements = 15 + 0.4 * torch.rand(400)
    first = rounds(model, optimizer, elements, 600)
    if rank == 2:
        elements = client.order("shell-550")
    dist.broadcast(elements, src=2)
    second = rounds(model, optimizer, elements, 600)
    if rank == 0:
        print(f"loss {first:.5f}, with new elements {second:.5f}", flush=True)
    dist.barrier()
    if service is not None:
        service.terminate()
        service.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
