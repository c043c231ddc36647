"""torchmetrics: accuracy is computed by rank 0, to be logged, and computing it synchronizes its state between the ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchmetrics.classification import MulticlassAccuracy


def main() -> None:
    """Ten epochs of fifteen steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 3))
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    accuracy = MulticlassAccuracy(num_classes=3)
    for epoch in range(10):
        for _ in range(15):
            inputs, labels = torch.randn(16, 8), torch.randint(3, (16,))
            logits = model(inputs)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy.update(logits, labels)
        if rank == 0 and epoch > 0:
            print(f"epoch {epoch}: accuracy {accuracy.compute():.3f}\n", end="", flush=True)
        accuracy.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
