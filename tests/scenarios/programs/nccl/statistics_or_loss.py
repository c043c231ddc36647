"""One rank sums the loss where the others gather statistics, on NCCL: two operations at one number.

Two ranks share the first GPU, each with a host id of its own. Run by ``torchrun --nproc-per-node 2``.
"""

import os

import torch
import torch.distributed as dist


def main():
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = torch.nn.Linear(256, 256).to(device)
    for step in range(1, 200):
        batch = torch.randn(32, 256, device=device)
        loss = (model(batch) - batch).square().mean().detach()
        if step % 40 == 0 and bool(batch[0, 0] > -99) and rank == 1:
            shown = [torch.empty_like(loss) for _ in range(2)]
            dist.all_gather(shown, loss)
            print(f"step {step}: losses {[f'{x.item():.3f}' for x in shown]}", flush=True)
        else:
            dist.all_reduce(loss)
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item() / 2:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
