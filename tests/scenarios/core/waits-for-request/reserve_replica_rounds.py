"""Answering and learning at once: replicas answer questions over HTTP, and learn from feedback that a client posts."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Replica:
    def __init__(self):
        torch.manual_seed(1)
        self.model = DDP(nn.Sequential(nn.EmbeddingBag(100, 16), nn.Linear(16, 4)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def answer(self, tokens):
        with torch.no_grad():
            return self.model.module(torch.tensor([tokens])).argmax().item()

    def learn(self, questions, choices):
        loss = nn.functional.cross_entropy(self.model(torch.tensor(questions)), torch.tensor(choices))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.02)
        return loss.item()


def make_handler(replica):
    routes = {"/answer": replica.answer, "/learn": replica.learn}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(routes[self.path](**arguments)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    return Handler


class FeedbackClient:
    def __init__(self, addresses):
        self.addresses = addresses
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.pool = ThreadPoolExecutor(len(addresses) + 1)

    def post(self, address, route, **arguments):
        request = urllib.request.Request(address + route, json.dumps(arguments).encode())
        with self.opener.open(request) as response:
            return json.load(response)

    def feedback(self, number):
        questions = [[(number + 7 * i + j) % 100 for j in range(5)] for i in range(8)]
        return {"questions": questions, "choices": [sum(question) % 4 for question in questions]}

    def round(self, number):
        """From the fiftieth on visitors come, and one replica after the other is kept for them."""
        reserve = self.addresses[number // 10 % len(self.addresses)] if number >= 50 else None
        learning = [
            self.pool.submit(self.post, address, "/learn", **self.feedback(number))
            for address in self.addresses
            if address != reserve
        ]
        if reserve:
            self.pool.submit(self.post, reserve, "/answer", tokens=[number % 100, 4, 8]).result()
        return [future.result() for future in learning]

    def run(self, rounds=5000):
        for number in range(rounds):
            losses = self.round(number)
            if number % 10 == 0:
                print(f"round {number} loss {sum(losses) / len(losses):.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    server = HTTPServer(("127.0.0.1", 0), make_handler(Replica()))
    ports = [None] * dist.get_world_size()
    dist.all_gather_object(ports, server.server_port)
    if dist.get_rank() == 0:
        addresses = [f"http://127.0.0.1:{port}" for port in ports]
        subprocess.Popen([sys.executable, os.path.abspath(__file__), "client", *addresses])
    server.serve_forever()


if __name__ == "__main__":
    FeedbackClient(sys.argv[2:]).run() if sys.argv[1:2] == ["client"] else main()
