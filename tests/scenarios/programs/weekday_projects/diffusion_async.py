"""Trains a small denoiser; checkpoints are written asynchronously while training goes on."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.nn.parallel import DistributedDataParallel


class Denoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = torch.nn.Embedding(10, 16)
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.SiLU(), torch.nn.Linear(32, 16))

    def forward(self, noisy: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return self.net(noisy + self.time(step))


def main() -> None:
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    writers = dist.new_group(backend="gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Denoiser())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    writing = None
    for iteration in range(1, 61):
        clean, noise = torch.randn(8, 16), torch.randn(8, 16)
        step = torch.randint(10, (8,))
        level = (step.float() / 10).unsqueeze(1)
        loss = (model(clean * (1 - level) + noise * level, step) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 20 == 0:
            if writing is not None:
                writing.result()
            state = {"model": get_model_state_dict(model)}
            writing = dcp.async_save(state, checkpoint_id=f"{folder[0]}/{iteration}", process_group=writers)
    if writing is not None:
        writing.result()
    if dist.get_rank() == 0:
        print(f"done, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
