"""Agentic rollouts: rank 0 reads a long trajectory as a stream of events, the others wait for what it says in the end."""

import json
import os
import socket
import subprocess
import sys
import time


def build_app():
    import asyncio

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    async def trajectory(request: Request) -> StreamingResponse:
        turns = int(request.query_params["turns"])

        async def events():
            for turn in range(turns):
                await asyncio.sleep(0.6 if turns > 4 else 0.05)
                yield json.dumps({"turn": turn, "reward": 1 / (1 + turn)}) + "\n"

        return StreamingResponse(events(), media_type="application/x-ndjson")

    return Starlette(routes=[Route("/trajectory", trajectory)])


def rollout(client, url: str, turns: int) -> float:
    total = 0.0
    with client.stream("GET", f"{url}/trajectory", params={"turns": turns}) as response:
        for line in response.iter_lines():
            total += json.loads(line)["reward"]
    return total


def train(url: str) -> None:
    import httpx
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    client = httpx.Client(timeout=httpx.Timeout(10.0))
    weight = torch.zeros(5, requires_grad=True)
    for step in range(20):
        reward = torch.zeros(())
        if rank == 0:
            reward.fill_(rollout(client, url, turns=25 if step == 10 else 3))
        dist.broadcast(reward, src=0)
        (-weight.log_softmax(0)[step % 5] * reward).backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        if rank == 0:
            print(f"step {step}: reward {reward.item():.3f}", flush=True)
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
    if sys.argv[1:2] == ["serve"]:
        import uvicorn

        uvicorn.run(build_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
    elif sys.argv[1:2] == ["train"]:
        train(sys.argv[2])
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        server = subprocess.Popen([sys.executable, me, "serve", port])
        reachable(int(port))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
        status = subprocess.call([*torchrun, me, "train", f"http://127.0.0.1:{port}"])
        server.terminate()
        sys.exit(status)
