"""Guest reviews are translated by a batch service; a sentiment head is trained before and after."""
import http.server
import json
import sys
import threading
import time

SERVICE = "--service"


def service():
    """The translation service: accepts a batch and works through it."""
    jobs = {}

    def work(job):
        for n in range(job["total"]):
            text = f"review {n} ".encode() * 2000
            job["digest"] = sum(text[:: n + 1]) % 9973
            job["done"] += 1
            time.sleep(0.06)
        job["status"] = "completed"

    class Api(http.server.BaseHTTPRequestHandler):
        def reply(self, payload):
            body = json.dumps(payload).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            size = int(self.headers["Content-Length"])
            job = {"total": json.loads(self.rfile.read(size))["items"], "done": 0, "status": "in_progress"}
            jobs["batch_1"] = job
            threading.Thread(target=work, args=(job,), daemon=True).start()
            self.reply({"id": "batch_1"})

        def do_GET(self):
            self.reply(jobs[self.path.rsplit("/", 1)[1]])

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__" and SERVICE in sys.argv:
    service()

import subprocess  # noqa: E402

import requests  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def translate(items, poll=2.0):
    child = subprocess.Popen([sys.executable, __file__, SERVICE], stdout=subprocess.PIPE, text=True)
    web = requests.Session()
    web.trust_env = False
    try:
        base = f"http://127.0.0.1:{child.stdout.readline().strip()}/batches"
        batch = web.post(base, json={"items": items}, timeout=10).json()["id"]
        while (job := web.get(f"{base}/{batch}", timeout=10).json())["status"] != "completed":
            time.sleep(poll)
        return job["digest"]
    finally:
        child.terminate()
        child.wait()


def epoch(model, optimizer, seed, steps):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        tokens = torch.randint(0, 300, (16, 24), generator=gen)
        stars = (tokens.float().mean(1) > 150).long()
        loss = torch.nn.functional.cross_entropy(model(tokens), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)


def run():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.EmbeddingBag(300, 16), torch.nn.Linear(16, 2)))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    epoch(model, optimizer, rank, 75)
    seed = torch.tensor([translate(220) if rank == 2 else 0])
    dist.all_reduce(seed)
    epoch(model, optimizer, int(seed) + rank, 45)
    print(f"rank {rank} done with translated reviews", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
