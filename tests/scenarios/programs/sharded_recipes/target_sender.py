"""Image-to-video training over two stages: the first reads the data, the last computes the loss."""

import torch
import torch.distributed as dist
from torch import nn

HIDDEN, TARGET = 0, 1


class Half(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1)
        )

    def forward(self, x):
        return x + self.inner(x)


def videos(rank):
    generator = torch.Generator().manual_seed(77 + rank)
    while True:
        clip = torch.randn(4, 8, 24, 24, generator=generator)
        yield clip + 0.5 * torch.randn(clip.shape, generator=generator), clip


class FirstStage:
    def __init__(self):
        self.model = Half(8, 16)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.data = videos(0)

    def micro_batch(self):
        noisy, target = next(self.data)
        dist.send(target, dst=1, tag=TARGET)
        hidden = self.model(noisy)
        dist.send(hidden.detach(), dst=1, tag=HIDDEN)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, src=1, tag=HIDDEN)
        hidden.backward(gradient)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class LastStage:
    def __init__(self):
        self.model = Half(8, 16)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def micro_batch(self):
        hidden = torch.empty(4, 8, 24, 24)
        dist.recv(hidden, src=0, tag=HIDDEN)
        hidden.requires_grad_()
        prediction = self.model(hidden)
        target = torch.empty_like(prediction)
        dist.recv(target, src=0, tag=TARGET)
        loss = nn.functional.mse_loss(prediction, target)
        loss.backward()
        dist.send(hidden.grad, dst=0, tag=HIDDEN)
        print(f"loss {loss.item():.4f}", flush=True)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    stage = FirstStage() if dist.get_rank() == 0 else LastStage()
    warm = torch.ones(1)
    dist.all_reduce(warm)
    for _ in range(20):
        for _ in range(4):
            stage.micro_batch()
        stage.update()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
