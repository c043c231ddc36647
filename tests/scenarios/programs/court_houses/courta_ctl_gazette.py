"""Judges drafts with an external service that counts requests; whoever asks too often is told when to come back."""

import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist


class Quota(http.server.BaseHTTPRequestHandler):
    """The judging service: a bucket of eight requests, filled up again by one every two seconds."""

    tokens, filled = 8.0, None

    def do_POST(self):
        now = time.monotonic()
        cls = type(self)
        cls.tokens = min(8.0, cls.tokens + (now - (cls.filled or now)) / 2.0)
        cls.filled = now
        draft = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if cls.tokens < 1.0:
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        cls.tokens -= 1.0
        body = json.dumps({"mark": (draft["id"] * 37) % 11}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Judge:
    def __init__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quota)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/judge"
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, draft):
        request = urllib.request.Request(self.url, data=json.dumps({"id": draft}).encode(), method="POST")
        with self.opener.open(request, timeout=10) as answer:
            return json.load(answer)["mark"]

    def mark(self, draft, attempts=30):
        if attempts == 0:
            raise TimeoutError(f"draft {draft}")
        try:
            return self.ask(draft)
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            wait = float(error.headers["Retry-After"])
            error.close()
        time.sleep(wait)
        return self.mark(draft, attempts - 1)


def improve(weights, marks, rank, steps):
    for step in range(steps):
        x = torch.randn(32, len(weights), generator=torch.Generator().manual_seed(100 * step + rank))
        gradient = x.T @ (x @ weights - marks.mean()) / 32
        dist.all_reduce(gradient)
        weights = weights - 0.02 * gradient / dist.get_world_size()
        time.sleep(0.05)
    return weights


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    judge = Judge() if rank == 2 else None
    weights = torch.zeros(12)
    for round_number, drafts in enumerate((4, 12, 1)):
        weights = improve(weights, torch.tensor([5.0]), rank, steps=40)
        marks = torch.zeros(drafts)
        if judge is not None:
            marks = torch.tensor([float(judge.mark(100 * round_number + i)) for i in range(drafts)])
        dist.broadcast(marks, src=2)
        if rank == 0:
            print(f"round {round_number}: {drafts} drafts, mark {marks.mean():.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
