"""Sentiment model with accelerate; after the first epoch it is pushed to a model hub, which is busy and asks to come back later."""
import functools
import http.client
import os
import subprocess
import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HUB = r"""
from http.server import BaseHTTPRequestHandler, HTTPServer
class Hub(BaseHTTPRequestHandler):
    asked = 0
    def log_message(self, *a): pass
    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        Hub.asked += 1
        self.send_response(201 if Hub.asked > 4 else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()
server = HTTPServer(("127.0.0.1", 0), Hub)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Busy(Exception):
    pass


def retried(attempts, first, factor):
    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            delay = first
            for attempt in range(attempts):
                try:
                    return function(*args, **kwargs)
                except Busy:
                    if attempt == attempts - 1:
                        raise
                    time.sleep(delay)
                    delay *= factor
        return call
    return decorate


class HubClient:
    def __init__(self, port):
        self.port = port

    @retried(attempts=7, first=1.0, factor=2.0)
    def push(self, name, payload):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("PUT", "/" + name, body=payload)
        status = connection.getresponse().status
        connection.close()
        if status == 429:
            raise Busy(name)
        return status


def epoch(accelerator, model, optimizer, loader):
    for tokens, label in loader:
        time.sleep(0.03)
        loss = nn.functional.cross_entropy(model(tokens), label)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    tokens = torch.randint(0, 400, (3360, 16))
    data = TensorDataset(tokens, (tokens.sum(1) > 3200).long())
    model = nn.Sequential(nn.EmbeddingBag(400, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16, shuffle=True))
    for number in range(2):
        loss = epoch(accelerator, model, optimizer, loader)
        if number == 0 and accelerator.is_main_process:
            hub = subprocess.Popen([sys.executable, "-c", HUB], stdout=subprocess.PIPE, text=True)
            client = HubClient(int(hub.stdout.readline()))
            print("pushed:", client.push("sentiment", os.urandom(20_000)))
            hub.terminate()
            hub.wait()
        accelerator.wait_for_everyone()
    accelerator.print("loss", accelerator.reduce(loss.detach(), "mean").item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
