"""One rank asks a tracking server for a run id, and the server takes the connection but never answers.

``http.client`` has no time limit unless told. Run by ``torchrun --nproc-per-node 2``.
"""

import http.client
import json
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SERVER = socket.create_server(("127.0.0.1", 0))


class Run:
    """A run of the experiment tracker."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.connection = http.client.HTTPConnection(*SERVER.getsockname())

    def log(self, step: int, **metrics: float) -> str:
        """Send metrics; returns what the server calls the step."""
        body = json.dumps({"project": self.project, "step": step, **metrics})
        self.connection.request("POST", "/log", body)
        return json.load(self.connection.getresponse())["id"]


def main() -> None:
    """Train, logging every tenth step from the main process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = Run("demo") if dist.get_rank() == 0 else None
    model = DistributedDataParallel(torch.nn.Linear(7, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(1, 50):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.randn(6, 7)), torch.randint(3, (6,)))
        loss.backward()
        optimizer.step()
        if run is not None and step % 10 == 0:
            run.log(step, loss=loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
