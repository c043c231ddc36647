"""Fine-tuning on prompts from a broker behind ZeroMQ, which gives each of its clients prompts that it has not had yet."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zmq


def broker(address: str) -> None:
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(address)
    routes: dict[str, bytes] = {}
    given: dict[str, int] = {}
    while True:
        identity, body = router.recv_multipart()
        message = zmq.utils.jsonapi.loads(body)
        name = message["client"]
        route = routes.setdefault(name, identity)
        if message["kind"] == "prompts":
            first = given.get(name, 0)
            given[name] = first + message["count"]
            answer = [f"prompt {number} of {name}" for number in range(first, given[name])]
        else:
            answer = {"welcome": name}
        router.send_multipart([route, zmq.utils.jsonapi.dumps(answer)])


class BrokerClient:
    def __init__(self, address: str, name: str) -> None:
        self.name, self.address = name, address

    def __enter__(self) -> "BrokerClient":
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(self.address)
        return self

    def __exit__(self, *exc) -> None:
        self.socket.close()
        self.context.term()

    def prompts(self, count: int) -> list[str]:
        self.socket.send_json({"kind": "prompts", "client": self.name, "count": count})
        return self.socket.recv_json()


def descend(model, lr: float) -> None:
    """A step with the gradients of all ranks."""
    import torch.distributed as dist

    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data.add_(parameter.grad, alpha=-lr)
        parameter.grad = None


def train(address: str, epochs: int, steps: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)

    def encode(prompts: list[str]) -> torch.Tensor:
        rows = [[(ord(character) % 32) / 32 for character in prompt.ljust(16)[:16]] for prompt in prompts]
        return torch.tensor(rows)

    for epoch in range(epochs):
        with BrokerClient(address, f"trainer-{rank}") as client:
            for step in range(steps):
                share = [client.prompts(4 * world) if rank == 0 else None]
                dist.broadcast_object_list(share, src=0)
                loss = model(encode(share[0][rank::world])).square().mean()
                loss.backward()
                descend(model, lr=0.01)
                time.sleep(0.25)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", choices=("run", "broker", "trainer"), default="run")
    parser.add_argument("--address")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if options.role == "broker":
        return broker(options.address)
    if options.role == "trainer":
        return train(options.address, options.epochs, options.steps)
    address = f"ipc://{tempfile.mkdtemp(dir='/tmp')}/broker"
    me = str(Path(__file__).resolve())
    service = subprocess.Popen([sys.executable, me, "--role", "broker", "--address", address])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    status = subprocess.call([*torchrun, me, "--role", "trainer", "--address", address])
    service.terminate()
    sys.exit(status)


if __name__ == "__main__":
    main()
