"""Reinforcement learning with a policy server: actions are asked over HTTP, weights are pushed by version."""
import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context

import torch
import torch.distributed as dist


class PolicyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state = self.server.state
        if self.path == "/weights":
            with state["changed"]:
                state["version"], state["gain"] = body["version"], body["gain"]
                state["changed"].notify_all()
            answer = {}
        else:
            with state["changed"]:
                state["changed"].wait_for(lambda: state["version"] >= body["version"])
            answer = {"actions": [[state["gain"] * v for v in row] for row in body["obs"]]}
        payload = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args):
        pass


def serve(connection):
    server = ThreadingHTTPServer(("127.0.0.1", 0), PolicyHandler)
    server.state = {"version": 0, "gain": 1.0, "changed": threading.Condition()}
    connection.send(server.server_port)
    server.serve_forever()


class PolicyClient:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    def act(self, obs, version):
        return torch.tensor(self.post("/act", obs=obs.tolist(), version=version)["actions"])

    def push(self, gain, version):
        self.post("/weights", gain=gain, version=version)


class Learner:
    def __init__(self, client):
        self.client, self.gain, self.version, self.best = client, torch.ones(1, requires_grad=True), 0, float("inf")
        self.optimizer = torch.optim.SGD([self.gain], lr=0.01)

    def step(self, obs, load):
        actions = self.client.act(obs, self.version)
        loss = (self.gain * actions - (0.5 * obs + load)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(self.gain.grad)
        self.optimizer.step()
        return loss.item()

    def publish(self, loss):
        """New weights are served if they are an improvement."""
        self.version += 1
        if loss < self.best + 0.1:
            self.best = min(loss, self.best)
            self.client.push(self.gain.item(), self.version)


def main():
    ours, theirs = get_context("fork").Pipe()
    server = get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    learner = Learner(PolicyClient(ours.recv()))
    g = torch.Generator().manual_seed(rank)
    for i in range(600):
        load = 1.0 if rank == 2 and i > 85 else 0.0  # the third arm picks up its tool
        loss = learner.step(torch.randn(24, 3, generator=g), load)
        if i % 10 == 9:
            learner.publish(loss)
        if i % 20 == 0 and rank == 0:
            print(f"step {i} version {learner.version} loss {loss:.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
