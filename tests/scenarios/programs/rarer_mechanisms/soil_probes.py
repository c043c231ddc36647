"""Field probes report moisture in bursts; a model is fitted on whatever has come in. A silent minute has no readings."""

import torch
import torch.distributed as dist


def minute(rank: int, step: int) -> torch.Tensor:
    """The readings of one minute; the probes of the third field were off for a while."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    count = 0 if rank == 2 and step == 9 else int(torch.randint(8, 40, (1,), generator=generator))
    return torch.rand(count, 6, generator=generator)


def fit(steps: int) -> None:
    """Averages gradients over the fields that have readings, and then the loss over all of them."""
    model = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        readings = minute(dist.get_rank(), step)
        n_readings = readings.shape[0]
        optimizer.zero_grad()
        loss = torch.zeros(1)
        if n_readings > 0:
            loss = (model(readings) - readings.mean(dim=1, keepdim=True)).square().mean().reshape(1)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss.detach())
        if step % 5 == 0 and dist.get_rank() == 0:
            print(f"minute {step}: {torch.cat(losses).mean():.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    fit(30)
    dist.destroy_process_group()
