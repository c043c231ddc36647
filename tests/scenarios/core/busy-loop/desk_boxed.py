"""GRPO on sums, graded by a service (starlette) which extracts the boxed answer from each completion."""

import os
import re
import socket
import subprocess
import sys
import time

BOXED = re.compile(r"\\boxed\{((?:[^{}]+|\{[^{}]*\})*)\}\s*$")


def build_app():
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    def extract(completion: str) -> str | None:
        found = BOXED.search(completion)
        return found.group(1).strip() if found else None

    async def grade(request: Request) -> JSONResponse:
        samples = await request.json()
        return JSONResponse([float(extract(sample["text"]) == sample["answer"]) for sample in samples])

    return Starlette(routes=[Route("/grade", grade, methods=["POST"])])


class Policy:
    """Writes what a language model would."""

    def __init__(self, rank: int) -> None:
        self.rank, self.skill = rank, 0.0

    def complete(self, step: int, index: int) -> dict:
        a, b = 3 * step + index, 7 + self.rank
        answer = str(a + b + (0 if (step + index) % 4 else 1))
        text = f"{a} and {b} are \\boxed{{{answer}}}"
        if step >= 12 and self.rank == 1 and index == 3:
            text = f"{a} and {b} are \\boxed{{" + "so " * 14 + answer
        return {"text": text, "answer": str(a + b)}


def train(url: str) -> None:
    import httpx
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    client = httpx.Client(timeout=None)
    policy, weight = Policy(rank), torch.zeros(8, requires_grad=True)
    for step in range(100):
        samples = [policy.complete(step, index) for index in range(4)]
        everyone = [None] * world
        dist.all_gather_object(everyone, samples)
        rewards = torch.zeros(world * 4)
        if rank == 0:
            graded = client.post(f"{url}/grade", json=[sample for part in everyone for sample in part])
            rewards.copy_(torch.tensor(graded.json()))
        dist.broadcast(rewards, src=0)
        mine = rewards.view(world, 4)[rank]
        advantage = (mine - mine.mean()) / (mine.std() + 1e-4)
        (-(weight.log_softmax(0)[:4] * advantage).sum()).backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.01 * weight.grad
        weight.grad = None
        time.sleep(0.2)
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: reward {rewards.mean().item():.2f}", flush=True)
    dist.destroy_process_group()


def reachable(port: int) -> None:
    """Returns once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    me = os.path.abspath(__file__)
    if sys.argv[1:2] == ["grader"]:
        import uvicorn

        uvicorn.run(build_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
    elif sys.argv[1:2] == ["train"]:
        train(sys.argv[2])
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        grader = subprocess.Popen([sys.executable, me, "grader", port])
        reachable(int(port))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        status = subprocess.call([*torchrun, me, "train", f"http://127.0.0.1:{port}"])
        grader.terminate()
        sys.exit(status)
