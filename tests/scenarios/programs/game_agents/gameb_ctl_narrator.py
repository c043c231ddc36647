"""Adventure agents with a narrator server that gets new weights after some generations. Starts server and agents."""
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

AGENTS = 3
NARRATOR = '''
import hashlib, http.server, json, sys, threading, time

PARTS = 28
state = {"version": 0, "loaded": PARTS}


def load(version):
    for part in range(PARTS):
        until = time.monotonic() + 0.5
        digest = hashlib.sha256(str(part).encode())
        while time.monotonic() < until:
            digest.update(bytes(65536))
            time.sleep(0.02)
        state["loaded"] = part + 1
    state["version"] = version


class Narrator(http.server.BaseHTTPRequestHandler):
    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, state)

    def do_POST(self):
        ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "load" in ask:
            state["loaded"] = 0
            threading.Thread(target=load, args=(ask["load"],), daemon=True).start()
            return self.reply(202, state)
        if state["loaded"] < PARTS:
            return self.reply(503, state)
        self.reply(200, {"plot": [(7 * c + state["version"]) % 11 for c in ask["scene"]]})

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Narrator).serve_forever()
'''


def call(port, method, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, "/", body=None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def plot(port, scene):
    while True:
        status, answer = call(port, "POST", {"scene": scene})
        if status == 200:
            return answer["plot"]
        print(f"narrator: {status}, {answer['loaded']} parts loaded", flush=True)
        time.sleep(0.5)


def agent(port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(12, 256), nn.Tanh(), nn.Linear(256, 12)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for generation in range(60):
        if generation == 30 and rank == 0:
            call(port, "POST", {"load": generation})
        scene = [(generation * 3 + k) % 17 for k in range(12)]
        story = torch.tensor(plot(port, scene) if rank == 0 else [0] * 12, dtype=torch.float32)
        dist.broadcast(story, src=0)
        for _ in range(15):
            noisy = story + torch.randn(512, 12)
            loss = nn.functional.mse_loss(net(noisy), story.expand(512, 12))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0 and generation % 10 == 0:
            print(f"generation {generation} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch():
    script = Path(tempfile.mkdtemp(prefix="narrator-")) / "narrator.py"
    script.write_text(NARRATOR)
    port = free_port()
    server = subprocess.Popen([sys.executable, str(script), str(port)])
    while True:
        try:
            call(port, "GET")
            break
        except OSError:
            time.sleep(0.2)
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(AGENTS))
    command = [sys.executable, os.path.abspath(__file__), "agent", str(port)]
    agents = [subprocess.Popen(command, env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(AGENTS)]
    status = max(p.wait() for p in agents)
    server.terminate()
    server.wait()
    return status


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        agent(int(sys.argv[2]))
    else:
        sys.exit(launch())
