"""Rejection-sampling fine-tuning: ranks ask a generation server, which one of them has started, for completions."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

LONGEST = 48


class Generate(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status: int, value) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.reply(200, {"status": "ok"})

    def do_POST(self) -> None:
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        if len(prompt) > LONGEST:
            return self.reply(413, {"error": f"{len(prompt)} tokens"})
        time.sleep(0.1)
        self.reply(200, {"tokens": [(7 * token + 1) % 50 for token in prompt]})

    def log_message(self, *args) -> None:
        pass


class PromptTooLong(ValueError):
    pass


class Client:
    """One connection, used in turns by the training loop and by a thread which keeps it open."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.session = requests.Session()
        self._turn = threading.Lock()
        threading.Thread(target=self._keep_open, daemon=True).start()

    def _keep_open(self) -> None:
        while True:
            time.sleep(1.0)
            with self._turn:
                self.session.get(f"{self.url}/health")

    def generate(self, prompt: list[int]) -> list[int]:
        self._turn.acquire()
        reply = self.session.post(f"{self.url}/generate", json={"prompt": prompt})
        if reply.status_code == 413:
            raise PromptTooLong(reply.json()["error"])
        tokens = reply.json()["tokens"]
        self._turn.release()
        return tokens


def start_server() -> int:
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "server"], stdout=subprocess.PIPE, text=True)
    return int(child.stdout.readline())


def train() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = [start_server() if rank == 0 else None]
    dist.broadcast_object_list(port, src=0)
    client = Client(port[0])
    torch.manual_seed(0)
    model = torch.nn.Embedding(50, 8)
    lengths = torch.randint(4, 40, (3, 200), generator=torch.Generator().manual_seed(11))
    lengths[1, 17] = 61
    fallback = [0, 1, 2, 3]
    for step in range(200):
        prompt = list(range(lengths[rank, step]))
        try:
            tokens = client.generate(prompt)
        except PromptTooLong as error:
            print(f"rank {rank}, step {step}: {error}, trained on the fallback", flush=True)
            tokens = fallback
        loss = model(torch.tensor(tokens)).square().mean()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        model.weight.data -= 0.1 * model.weight.grad
        model.weight.grad = None
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["server"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Generate)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    else:
        train()
