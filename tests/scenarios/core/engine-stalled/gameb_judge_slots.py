"""Role-playing agents whose transcripts are scored by a judge server. Starts the server and the learners."""
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

LEARNERS = 3
JUDGE = '''
import http.server, json, sys, threading

SLOTS = threading.Semaphore(4)
LONGEST = 900


class Judge(http.server.BaseHTTPRequestHandler):
    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, "ready")

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        SLOTS.acquire()
        if max(len(t) for t in texts) > LONGEST:
            return self.reply(413, LONGEST)
        scores = [sum(map(ord, t)) % 101 / 100 for t in texts]
        SLOTS.release()
        self.reply(200, scores)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Judge).serve_forever()
'''


class JudgeClient:
    def __init__(self, port):
        self.port = port

    def request(self, method, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, "/judge", body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def scores(self, texts):
        status, answer = self.request("POST", texts)
        if status == 413:
            _, answer = self.request("POST", [t[-answer:] for t in texts])
        return answer


class Actor(nn.Module):
    WORDS = "ask bribe threaten wait leave barter".split()

    def __init__(self):
        super().__init__()
        self.mood = nn.Linear(64, 256)
        self.word = nn.Linear(256, len(self.WORDS))

    def forward(self, scene):
        return self.word(torch.relu(self.mood(scene)))

    def speak(self, scene, turns):
        lines = []
        with torch.no_grad():
            for _ in range(turns):
                for _ in range(24):
                    scene = torch.tanh(scene + 0.05 * scene.roll(1, 1))
                lines.append(self.WORDS[self(scene)[0].argmax().item()])
        return " ".join(lines)


def learner():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    actor = Actor()
    optimizer = torch.optim.SGD(actor.parameters(), lr=1e-2)
    judge = JudgeClient(int(os.environ["JUDGE_PORT"])) if rank == 0 else None
    generator = torch.Generator().manual_seed(rank)
    for step in range(400):
        scene = torch.randn(256, 64, generator=generator)
        text = actor.speak(scene, turns=60 + step).ljust(20 * step + 400, ".")
        texts = [None] * LEARNERS
        dist.gather_object(text, texts if rank == 0 else None)
        scores = torch.tensor(judge.scores(texts) if rank == 0 else [0.0] * LEARNERS)
        dist.broadcast(scores, src=0)
        loss = scores[rank] * actor(scene).logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in actor.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} scores {[round(s, 2) for s in scores.tolist()]}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch():
    script = Path(tempfile.mkdtemp(prefix="judge-")) / "judge_server.py"
    script.write_text(JUDGE)
    port = free_port()
    server = subprocess.Popen([sys.executable, str(script), str(port)])
    while True:
        try:
            JudgeClient(port).request("GET")
            break
        except OSError:
            time.sleep(0.2)
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(LEARNERS))
    environment["JUDGE_PORT"] = str(port)
    learners = [
        subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "learner"],
            env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)},
        )
        for r in range(LEARNERS)
    ]
    status = max(p.wait() for p in learners)
    server.terminate()
    return status


if __name__ == "__main__":
    learner() if sys.argv[1:] == ["learner"] else sys.exit(launch())
