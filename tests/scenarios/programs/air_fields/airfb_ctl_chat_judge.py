"""Passenger chat replies, graded by the judge service at the end of each round."""
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn


class JudgeService(BaseHTTPRequestHandler):
    """Stands in for the company's judge, which allows few requests in a window."""

    window_from, window_s, taken = time.monotonic(), 15.0, 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cls, now = type(self), time.monotonic()
        if cls.taken == 0 or now - cls.window_from > cls.window_s:
            cls.window_from, cls.taken = now, 0
        cls.taken += 1
        if cls.taken > 1 and now - cls.window_from <= cls.window_s:
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.end_headers()
            return
        answer = json.dumps([len(set(reply)) / max(1, len(reply)) for reply in body]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


class Judge:
    def __init__(self, url, tries=12):
        self.url, self.tries = url, tries
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def grade(self, replies):
        request = urllib.request.Request(self.url, json.dumps(replies).encode(), {"Content-Type": "application/json"})
        for attempt in range(self.tries):
            try:
                with self.opener.open(request, timeout=10) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code != 429 or attempt == self.tries - 1:
                    raise
                pause = float(error.headers.get("Retry-After", 1))
                print(f"judge asks for {pause:.0f} s", flush=True)
                time.sleep(pause)


def train_round(model, optimizer, steps):
    for _ in range(steps):
        words = torch.randint(0, 64, (32, 12))
        loss = nn.functional.cross_entropy(model(words[:, :-1]).mean(1), words[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    judge = None
    if rank == 2:  # the only host with access to the judge
        server = ThreadingHTTPServer(("127.0.0.1", 0), JudgeService)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        judge = Judge(f"http://127.0.0.1:{server.server_port}/grade")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(2):
        train_round(model, optimizer, 110)
        replies = [[int(w) for w in torch.randint(0, 64, (12,))] for _ in range(16)]
        grades = [judge.grade(replies) if rank == 2 else None]
        dist.broadcast_object_list(grades, src=2)
        if rank == 0:
            print(f"round {number}: grade {sum(grades[0]) / len(grades[0]):.3f}", flush=True)
    train_round(model, optimizer, 60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
