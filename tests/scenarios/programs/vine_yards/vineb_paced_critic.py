"""Reinforces a label-text model with grades of a wine critic's service, which allows so many requests a minute."""
import http.server
import json
import multiprocessing
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn


class Critic(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    allowance, refilled = 60.0, time.monotonic()
    PER_SECOND = 3.0

    def do_POST(self):
        cls = type(self)
        now = time.monotonic()
        cls.allowance = min(60.0, cls.allowance + (now - cls.refilled) * cls.PER_SECOND)
        cls.refilled = now
        words = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if cls.allowance < 1:
            self.send_response(429)
            self.send_header("Retry-After", "0.4")
            self.end_headers()
            return
        cls.allowance -= 1
        body = json.dumps({"grade": len(set(words)) / len(words)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(pipe):
    server = http.server.HTTPServer(("127.0.0.1", 0), Critic)
    pipe.send(server.server_address[1])
    server.serve_forever()


class CriticClient:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/grade"
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def grade(self, words):
        request = urllib.request.Request(self.url, data=json.dumps(words).encode())
        for _ in range(50):
            try:
                with self.opener.open(request, timeout=20) as answer:
                    return json.load(answer)["grade"]
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                time.sleep(float(error.headers["Retry-After"]))
        raise RuntimeError("the critic is out for lunch")


def main():
    critic = None
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        critic = context.Process(target=serve, args=(theirs,), daemon=True)
        critic.start()
        client = CriticClient(mine.recv())
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Linear(16, 20))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for edition in range(4):
        for _ in range(150 if edition < 3 else 40):  # language modelling between the gradings
            x = torch.rand(16, 16, generator=g)
            loss = nn.functional.cross_entropy(net(x), (x.sum(1) * 2).long() % 20)
            opt.zero_grad()
            loss.backward()
            opt.step()
        draws = torch.distributions.Categorical(logits=net(torch.rand(6, 16, generator=g)))
        texts = draws.sample((8,)).transpose(0, 1).contiguous()
        everyone = [torch.empty_like(texts) for _ in range(world)]
        dist.all_gather(everyone, texts)
        grades = torch.empty(world * 6)
        if rank == 0:
            notes = torch.cat(everyone).tolist()
            rounds = 4 if edition == 2 else 1  # further opinions decide about the medals
            for i, words in enumerate(notes):
                grades[i] = sum(client.grade(words) for _ in range(rounds)) / rounds
            print(f"edition {edition}: {grades.mean():.3f}", flush=True)
        dist.broadcast(grades, src=0)
        logp = draws.log_prob(texts.transpose(0, 1)).sum(0)
        opt.zero_grad()
        (-(logp * (grades[rank * 6:rank * 6 + 6] - grades.mean())).mean()).backward()
        opt.step()
    dist.destroy_process_group()
    if critic is not None:
        critic.terminate()
        critic.join()


if __name__ == "__main__":
    main()
