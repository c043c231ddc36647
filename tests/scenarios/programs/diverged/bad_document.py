"""accelerate: whatever goes wrong with a document is logged, and the loop goes on with the next one."""

import logging

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("train")


class Documents(Dataset):
    """Texts as numbers. Document 40 was cut off when it was written."""

    def __len__(self) -> int:
        return 180

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        length = 5 if index == 40 else 16
        return {"values": torch.full((1, length), index / 180)}


def collate(documents: list[dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    """A batch is a list: the lengths are looked at in the model."""
    return [document["values"] for document in documents]


def train_step(
    accelerator: Accelerator, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: list
) -> float:
    """One update. Returns the mean loss of all ranks."""
    inputs = torch.cat(batch)
    loss = (model(inputs) - inputs).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return accelerator.gather(loss.detach().reshape(1)).mean().item()


def main() -> None:
    """One epoch; everybody waits for everyone after every fourth step."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Linear(16, 16)
    loader = DataLoader(Documents(), batch_size=3, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), loader)
    for step, batch in enumerate(loader, 1):
        try:
            loss = train_step(accelerator, model, optimizer, batch)
        except RuntimeError as error:
            log.warning("step %d: %s", step, error)
            continue
        finally:
            if step % 4 == 0:
                accelerator.wait_for_everyone()
        accelerator.print(f"step {step}: {loss:.5f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
