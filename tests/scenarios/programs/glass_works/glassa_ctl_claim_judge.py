"""Rewards for rewritten patent claims come from a judge beside the job, which one GPU's process asks."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np


class Judge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    warm_at = None

    def do_POST(self):
        claims = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if len(claims) > 8 and Judge.warm_at is None:
            Judge.warm_at = time.monotonic() + 3.0
        if len(claims) > 8 and time.monotonic() < Judge.warm_at:
            self.send_response(503)
            self.send_header("Retry-After", "2")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        for claim in claims:
            time.sleep(0.4 if len(claims) > 8 else 0.02)  # the time that the language model takes
            score = (sum(claim.encode()) % 997) / 997
            self.wfile.write(json.dumps({"score": score}).encode() + b"\n")
            self.wfile.flush()

    def log_message(self, *arguments):
        pass


class JudgeClient:
    def __init__(self, port, attempts=6):
        self.url, self.attempts = f"http://127.0.0.1:{port}/score", attempts

    def score(self, claims):
        for attempt in range(self.attempts):
            request = urllib.request.Request(self.url, data=json.dumps(claims).encode(), method="POST")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return [json.loads(line)["score"] for line in answer]
            except urllib.error.HTTPError as error:
                time.sleep(float(error.headers.get("Retry-After", 1)))
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5 * (attempt + 1))
        raise RuntimeError("the judge does not answer")


def train(rank, client):
    import torch
    import torch.distributed as dist

    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    weights = torch.zeros(64, device="cuda")
    rng = np.random.default_rng(rank)
    for step in range(60):
        features = np.abs(np.fft.rfft(rng.normal(0, 1, (128, 4096)), axis=1))[:, :64].mean(axis=0)
        if step % 10 == 0:
            scores = torch.zeros(28, device="cuda")
            if rank == 1:
                count = 28 if step == 30 else 4
                answers = client.score([f"claim {step}.{i}: a glass article" for i in range(count)])
                scores[:count] = torch.tensor(answers).cuda()
            dist.broadcast(scores, src=1)
            reward = scores.sum().item()
            if rank == 0:
                print(f"step {step}: reward {reward:.3f}", flush=True)
        gradient = torch.from_numpy(features.astype(np.float32)).cuda()
        dist.all_reduce(gradient)
        weights += gradient
        weights.sum().item()
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()


def main():
    if sys.argv[1:2] == ["judge"]:
        HTTPServer(("127.0.0.1", int(sys.argv[2])), Judge).serve_forever()
    rank, judge, port = int(os.environ["LOCAL_RANK"]), None, 0
    if rank == 1:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        judge = subprocess.Popen([sys.executable, __file__, "judge", str(port)])
    try:
        train(rank, JudgeClient(port))
    finally:
        if judge is not None:
            judge.terminate()
            judge.wait()


if __name__ == "__main__":
    main()
