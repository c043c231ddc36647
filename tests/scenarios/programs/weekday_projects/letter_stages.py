"""Two stages of a pipeline: the second is slow, and the first waits for it most of the time."""

import time

import torch
import torch.distributed as dist


def exchange(tensor: torch.Tensor, peer: int, send: bool) -> None:
    operation = dist.P2POp(dist.isend if send else dist.irecv, tensor, peer)
    for request in dist.batch_isend_irecv([operation]):
        request.wait()


def first(steps: int) -> None:
    layer = torch.nn.Linear(12, 12)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01)
    for _ in range(steps):
        hidden = layer(torch.randn(4, 12)).tanh()
        exchange(hidden.detach(), 1, True)
        gradient = torch.empty_like(hidden)
        exchange(gradient, 1, False)
        optimizer.zero_grad()
        hidden.backward(gradient)
        optimizer.step()


def second(steps: int) -> None:
    head = torch.nn.Linear(12, 26)
    optimizer = torch.optim.SGD(head.parameters(), 0.01)
    for step in range(steps):
        hidden = torch.empty(4, 12)
        exchange(hidden, 0, False)
        hidden.requires_grad_()
        loss = torch.nn.functional.cross_entropy(head(hidden), torch.randint(26, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        until = time.monotonic() + (3.0 if step % 3 == 2 else 0.3)
        while time.monotonic() < until:
            torch.randn(64, 64) @ torch.randn(64, 64)
        exchange(hidden.grad, 0, True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    (first if dist.get_rank() == 0 else second)(9)
    dist.barrier()
    dist.destroy_process_group()
