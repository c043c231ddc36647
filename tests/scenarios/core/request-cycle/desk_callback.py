"""Distillation with a judge in a service of its own: `python desk_callback.py` starts the judge, and torchrun with two trainers."""

import json
import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import requests

STEPS, NEW_TERMS_AT = 80, 12


class JsonHandler(BaseHTTPRequestHandler):
    def answer(self, value) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:
        pass


def judge(port: int) -> None:
    glossaries: dict[str, list[str]] = {}

    class Judge(JsonHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/register":
                glossaries[request["glossary"]] = request["terms"]
                return self.answer("registered")
            name = request["glossary"]
            if name not in glossaries:
                glossaries[name] = requests.get(f"{request['reply_to']}/glossaries/{name}").json()
            known = set(glossaries[name])
            self.answer([sum(word in known for word in text.split()) for text in request["texts"]])

    ThreadingHTTPServer(("127.0.0.1", port), Judge).serve_forever()


class Glossary:
    """A trainer's terms. Others may read them over HTTP; the training loop looks for such readers between two steps."""

    def __init__(self, rank: int) -> None:
        self.rank, self.version, self.terms = rank, 1, ["loss", "step"]
        terms = self

        class Reader(JsonHandler):
            def do_GET(self) -> None:
                self.answer(terms.terms)

        self.readers = HTTPServer(("127.0.0.1", 0), Reader)
        self.readers.timeout = 0
        self.url = f"http://127.0.0.1:{self.readers.server_address[1]}"

    @property
    def name(self) -> str:
        return f"terms-{self.rank}-v{self.version}"

    def extend(self, term: str) -> None:
        self.terms, self.version = [*self.terms, term], self.version + 1


def train(judge_url: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, glossary = dist.get_rank(), Glossary(dist.get_rank())
    requests.post(f"{judge_url}/register", json={"glossary": glossary.name, "terms": glossary.terms})
    weight = torch.zeros(6, requires_grad=True)
    for step in range(STEPS):
        glossary.readers.handle_request()
        if rank == 1 and step == NEW_TERMS_AT:
            glossary.extend("momentum")
        texts = [f"the loss of step {step} with momentum {i}" for i in range(6)]
        question = {"glossary": glossary.name, "reply_to": glossary.url, "texts": texts}
        marks = torch.tensor(requests.post(f"{judge_url}/judge", json=question).json(), dtype=torch.float)
        (weight - marks).square().mean().backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        time.sleep(0.2)
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {weight.mean().item():.3f}", flush=True)
    dist.destroy_process_group()


def reachable(port: int) -> None:
    """Returns once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)


def main() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = subprocess.Popen([sys.executable, os.path.abspath(__file__), "judge", str(port)])
    reachable(port)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    try:
        return subprocess.call([*torchrun, os.path.abspath(__file__), "train", f"http://127.0.0.1:{port}"])
    finally:
        service.terminate()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["judge", port]:
            judge(int(port))
        case ["train", url]:
            train(url)
        case _:
            sys.exit(main())
