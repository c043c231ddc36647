"""Itineraries are streamed by a text server (server-sent events) and feed a length model."""
import http.client
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

STOPS = "old harbour, tile museum, tram, market hall, viewpoint, fado bar, castle, river ferry".split(", ")


class TextServer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_POST(self):
        wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for tick in range(wish["days"] * 4):
            time.sleep(0.55)
            if tick % 4 == 3:
                event = {"day": tick // 4 + 1, "stop": random.choice(STOPS)}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            else:
                self.wfile.write(b": keep-alive\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


class Stream:
    def __init__(self, host, port):
        self.connection = http.client.HTTPConnection(host, port, timeout=20)

    def events(self, days):
        self.connection.request("POST", "/itinerary", json.dumps({"days": days}))
        reply = self.connection.getresponse()
        for line in reply:
            field, _, value = line.decode().strip().partition(": ")
            if field != "data":
                continue
            if value == "[DONE]":
                break
            yield json.loads(value)
        self.connection.close()


def itinerary(days=6):
    server = ThreadingHTTPServer(("127.0.0.1", 0), TextServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plan = {e["day"]: e["stop"] for e in Stream(*server.server_address).events(days)}
    server.shutdown()
    return plan


def session(model, optimizer, steps, bias=0.0):
    for _ in range(steps):
        trip = torch.randn(16, 6)
        loss = torch.nn.functional.mse_loss(model(trip), trip.relu().sum(1, keepdim=True) + bias)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Sequential(torch.nn.Linear(6, 18), torch.nn.ReLU(), torch.nn.Linear(18, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    session(model, optimizer, 75)
    letters = torch.zeros(6)
    if dist.get_rank() == 1:
        letters = torch.tensor([float(len(stop)) for _, stop in sorted(itinerary().items())])
    dist.reduce(letters, dst=0)
    session(model, optimizer, 45, 0.1)
    if dist.get_rank() == 0:
        print("letters per stop:", letters.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
