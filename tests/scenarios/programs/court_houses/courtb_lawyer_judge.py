"""Reward-weighted tuning of answers to clients; a judge model behind HTTP marks them, and thinks about long ones."""
import http.server
import json
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn


class Judge(http.server.BaseHTTPRequestHandler):
    """Marks answers between 0 and 1. The reasoning mode reads an answer several times."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        marks = []
        for answer in request["answers"]:
            time.sleep(0.35 if request["reasoning"] else 0.001)
            marks.append(1.0 / (1.0 + abs(sum(answer))))
        body = json.dumps({"marks": marks}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Bench:
    """Client of the judge that is started beside this process."""

    def __init__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Judge)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.web = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/marks"

    def marks(self, answers, reasoning):
        data = json.dumps({"answers": answers.round(decimals=3).tolist(), "reasoning": reasoning}).encode()
        request = urllib.request.Request(self.url, data=data, headers={"Content-Type": "application/json"})
        with self.web.open(request, timeout=120) as reply:
            return torch.tensor(json.load(reply)["marks"])

    def close(self):
        self.server.shutdown()


class Adviser(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, question):
        return torch.distributions.Normal(self.mean(question), 0.3)


def tune(rounds=120, answers=36):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(40)
    adviser = Adviser()
    optimizer = torch.optim.Adam(adviser.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(60 + rank)
    bench = Bench()
    for number in range(rounds):
        policy = adviser(torch.randn(answers, 10, generator=gen))
        drafts = policy.sample()
        # opinions on appeals need the judge's reasoning mode; the appeals office is process 1
        marks = bench.marks(drafts, reasoning=(rank == 1 and number == 70))
        loss = -(policy.log_prob(drafts).sum(-1) * (marks - marks.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in adviser.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if number % 10 == 0 and rank == 0:
            print(f"round {number} marks {marks.mean().item():.3f}", flush=True)
    bench.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tune()
    dist.barrier()
    dist.destroy_process_group()
