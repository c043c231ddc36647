"""Tune a scorer on answers about the timetable; the answers come from a language model server beside the job."""
import http.client
import os
import random
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch

PORT_LINE = "listening on "
WORDS = "the train to leaves from platform at minutes past every hour except Sundays via change here".split()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        rng = random.Random(self.path)
        self.send_response(200)
        self.end_headers()
        for _ in range(int(self.path.rsplit("/", 1)[1])):
            weights = [sum(rng.random() for _ in range(9000)) for _ in WORDS]  # the model's next word
            time.sleep(0.15)
            self.wfile.write((WORDS[weights.index(max(weights))] + "\n").encode())
            self.wfile.flush()

    def log_message(self, *arguments):
        pass


def serve():
    server = HTTPServer(("127.0.0.1", 0), Answers)
    print(f"{PORT_LINE}{server.server_port}", flush=True)
    server.serve_forever()


class Client:
    def __init__(self):
        self.server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline().removeprefix(PORT_LINE))

    def ask(self, question, words):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", f"/{question}/{words}")
        answer = []
        for line in connection.getresponse():
            answer.append(WORDS.index(line.decode().strip()))
            if len(answer) % 20 == 0:
                print(f"{question}: {len(answer)} words", flush=True)
        connection.close()
        return answer

    def close(self):
        self.server.terminate()
        self.server.wait()


def train():
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    client = Client() if rank == 0 else None
    scorer = torch.nn.Sequential(torch.nn.Embedding(len(WORDS), 16), torch.nn.Linear(16, 1)).cuda()
    model = DistributedDataParallel(scorer, device_ids=[local])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for question, words in (("first-train", 5), ("last-train", 70), ("replacement-bus", 5)):
        holder = [client.ask(question, words) if client else None]
        dist.broadcast_object_list(holder, src=0)
        tokens = torch.tensor(holder[0])
        for _ in range(50):
            noise = torch.randn(40_000).sort().values[: len(tokens)].view(-1, 1)
            loss = (model(tokens.cuda()) - noise.cuda()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
        print(f"rank {rank}: {question}", flush=True)
    dist.barrier()
    if client:
        client.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else train()
