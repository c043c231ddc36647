"""Language model for maintenance manuals. Terms that are not in the local glossary are asked from the works' terminology service."""
import http.server
import json
import multiprocessing
import os
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, CONTEXT = 500, 24


class Terminology(http.server.BaseHTTPRequestHandler):
    """Stand-in for the service: looks a term up in its catalogues, and asks clients to come back when it is busy."""

    served = 0

    def do_GET(self):
        type(self).served += 1
        if self.served % 6 == 0:
            return self.reply(429, "Retry-After", "2", b"")
        time.sleep(0.4)
        self.reply(200, "Content-Type", "application/json", json.dumps({"term": self.path[1:], "class": hash(self.path) % 40}).encode())

    def reply(self, status, header, value, body):
        self.send_response(status)
        self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def serve(port):
    server = http.server.HTTPServer(("127.0.0.1", 0), Terminology)
    port.send(server.server_address[1])
    server.serve_forever()


class TermClient:
    def __init__(self):
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)
        self.service = context.Process(target=serve, args=(send,), name="terminology", daemon=True)
        self.service.start()
        self.address = f"http://127.0.0.1:{receive.recv()}"
        self.answers = {}

    def ask(self, term, attempts=8):
        for attempt in range(attempts):
            try:
                with urllib.request.urlopen(f"{self.address}/{term}", timeout=20) as reply:
                    self.answers[term] = json.load(reply)["class"]
                    return self.answers[term]
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers.get("Retry-After", 1)))
        raise RuntimeError(f"no answer for {term}")


class ManualModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.tokens = nn.Linear(VOCABULARY, width, bias=False)
        self.mix = nn.Linear(CONTEXT * width, 128)
        self.next = nn.Linear(128, VOCABULARY)

    def forward(self, onehot):
        return self.next(torch.tanh(self.mix(self.tokens(onehot).flatten(1))))


def chapter(model, optimizer, number, pages, rank):
    generator = torch.Generator().manual_seed(100 * number + rank)
    for _ in range(pages):
        words = torch.randint(VOCABULARY, (12, CONTEXT + 1), generator=generator)
        onehot = nn.functional.one_hot(words[:, :-1], VOCABULARY).float()
        loss = nn.functional.cross_entropy(model(onehot.cuda()), words[:, -1].cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    return sorted({int(w) for w in words.flatten() if w > VOCABULARY - 3 * (number + 1)})


def main():
    torch.backends.cudnn.enabled = False
    local, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    client = TermClient() if rank == 2 else None
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DDP(ManualModel().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(3):
        unknown = chapter(model, optimizer, number, 200, rank)
        if client and number == 1:
            for term in [f"part-{w}" for w in unknown] + [f"assembly-{i}" for i in range(18)]:
                client.ask(term)
            print(f"chapter {number}: {len(client.answers)} terms looked up", flush=True)
        known = torch.tensor([len(client.answers) if client else 0], device="cuda")
        dist.all_reduce(known)
        if rank == 0:
            print(f"chapter {number} done, {known.item()} terms in the glossary", flush=True)
    if client:
        client.service.terminate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
