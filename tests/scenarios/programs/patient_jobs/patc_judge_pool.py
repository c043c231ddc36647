"""Answer model for a help desk; rank 1 has the samples of the epoch graded by a judge model over HTTP."""
import concurrent.futures as futures
import json
import os
import subprocess
import sys
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

JUDGE = r"""
import json, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Judge(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        time.sleep(2.4 + len(text) % 5 * 0.2)
        body = json.dumps({"grade": len(text) % 11}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
print(server.server_port, flush=True)
server.serve_forever()
"""


def grade(url, answer):
    request = urllib.request.Request(url, data=json.dumps({"answer": answer}).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)["grade"]


def grade_all(url, answers, workers=3):
    grades = []
    with futures.ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(grade, url, answer): answer for answer in answers}
        for job in futures.as_completed(jobs):
            grades.append(job.result())
    return sum(grades) / len(grades)


def run(model, optimizer, steps):
    for _ in range(steps):
        tokens = torch.randint(0, 100, (24, 10))
        time.sleep(0.035)
        loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    judge = None
    if rank == 1:
        judge = subprocess.Popen([sys.executable, "-c", JUDGE], stdout=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{int(judge.stdout.readline())}/grade"
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.EmbeddingBag(100, 32), nn.Linear(32, 100)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    run(model, optimizer, 70)
    mean = None
    if rank == 1:
        mean = grade_all(url, ["please restart the router " + "x" * n for n in range(14)])
    means = [None] * dist.get_world_size()
    dist.all_gather_object(means, mean)
    run(model, optimizer, 90)
    if rank == 0:
        print("mean grade", means[1])
    if judge is not None:
        judge.terminate()
        judge.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
