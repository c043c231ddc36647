"""Ring attention by hand: keys and values go round, each rank attends with its queries to all of them."""

import math
import time

import torch
import torch.distributed as dist


class RingComm:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.next, self.previous = (self.rank + 1) % self.world, (self.rank - 1) % self.world

    def rotate_overlapped(self, block):
        received = torch.empty_like(block)
        work = dist.isend(block, dst=self.next)
        dist.recv(received, src=self.previous)
        work.wait()
        return received

    def rotate(self, block):
        """Without a second buffer in flight, for long sequences."""
        dist.send(block, dst=self.next)
        received = torch.empty_like(block)
        dist.recv(received, src=self.previous)
        return received


class RingAttention(torch.nn.Module):
    def __init__(self, width, comm, long_sequence=16384):
        super().__init__()
        self.qkv, self.comm, self.long, self.scale = torch.nn.Linear(width, 3 * width), comm, long_sequence, 1 / math.sqrt(width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        block, out, weight = torch.stack([k, v]).detach(), 0.0, 0.0
        rotate = self.comm.rotate if len(x) * self.comm.world >= self.long else self.comm.rotate_overlapped
        for hop in range(self.comm.world):
            key, value = block
            probe = torch.exp((q[:64] @ key[:256].T) * self.scale)
            out, weight = out + probe @ value[:256], weight + probe.sum(-1, keepdim=True)
            if hop + 1 < self.comm.world:
                block = rotate(block)
        return out / weight


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    comm = RingComm()
    attention = RingAttention(128, comm)
    optimizer = torch.optim.SGD(attention.parameters(), lr=0.01)
    curriculum = [512] * 6 + [2048] * 6 + [32768] * 20
    for step, tokens in enumerate(curriculum):
        loss = attention(torch.randn(tokens, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in attention.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        time.sleep(0.2)
        if comm.rank == 0:
            print(f"step {step}: {tokens * comm.world} tokens, loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
