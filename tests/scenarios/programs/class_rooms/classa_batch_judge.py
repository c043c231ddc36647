"""Free-text answers are judged by a batch service once per round; rank 0 hands them in and looks for the result."""
import json
import multiprocessing as mp
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Judge(BaseHTTPRequestHandler):
    jobs = {}

    def _reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        answers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        job = {"total": len(answers), "grades": []}
        number = len(self.jobs)
        self.jobs[number] = job
        threading.Thread(target=self._work, args=(job, answers), daemon=True).start()
        self._reply({"job": number})

    def _work(self, job, answers):
        for answer in answers:
            time.sleep(0.35)
            job["grades"].append(sum(answer) % 6 + 1)

    def do_GET(self):
        job = self.jobs[int(self.path.rsplit("/", 1)[1])]
        done = len(job["grades"])
        self._reply({"done": done, "grades": job["grades"] if done == job["total"] else None})

    def log_message(self, *args):
        pass


def serve(pipe):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    pipe.send(server.server_port)
    server.serve_forever()


class BatchClient:
    def __init__(self, port, poll=1.0):
        self.url, self.poll = f"http://127.0.0.1:{port}/jobs", poll
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def grade(self, answers):
        request = urllib.request.Request(self.url, json.dumps(answers).encode(), method="POST")
        with self.http.open(request, timeout=10) as reply:
            job = json.load(reply)["job"]
        while True:
            with self.http.open(f"{self.url}/{job}", timeout=10) as reply:
                state = json.load(reply)
            if state["grades"] is not None:
                return state["grades"]
            time.sleep(self.poll)


def steps(model, optimizer, grade, gen, count):
    for _ in range(count):
        words = torch.randn(32, 40, 32, generator=gen)
        loss = nn.functional.mse_loss(model(words)[0].mean((1, 2)), words.mean((1, 2)) + 0.01 * grade)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    client = None
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        ours, theirs = mp.Pipe()
        mp.get_context("fork").Process(target=serve, args=(theirs,), daemon=True).start()
        client = BatchClient(ours.recv())
    torch.manual_seed(0)
    model = DDP(nn.GRU(32, 96, batch_first=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    print(rank, "warm", steps(model, optimizer, 3.0, gen, 60), flush=True)
    for size in (40,):
        box = [None]
        if client is not None:
            answers = torch.randint(100, (size, 5), generator=gen).tolist()
            box = [client.grade(answers)]
        dist.broadcast_object_list(box, src=0)
        mean = sum(box[0]) / len(box[0])
        print(rank, "judged", steps(model, optimizer, mean, gen, 60), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
