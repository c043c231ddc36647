"""accelerate, own evaluation: labels are a class and a list of boxes, as many as there are things in the pictures."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader


def pictures(count: int) -> list[dict]:
    """Most have one thing in them."""
    return [{"x": torch.randn(16), "label": n % 4, "things": 2 if n == 13 else 1} for n in range(count)]


def collate(items: list[dict]) -> dict:
    """Boxes of all pictures in one list."""
    boxes = [torch.tensor([0.0, 0.0, 1.0, 1.0]) / (k + 1) for item in items for k in range(item["things"])]
    labels = {"label": torch.tensor([item["label"] for item in items]), "boxes": boxes}
    return {"x": torch.stack([item["x"] for item in items]), "labels": labels}


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    """Accuracy over all processes."""
    right = seen = 0
    for batch in loader:
        with torch.no_grad():
            answers = model(batch["x"]).argmax(1)
        answers, labels = accelerator.gather_for_metrics((answers, batch["labels"]))
        right += int((answers == labels["label"]).sum())
        seen += len(answers)
    return right / seen


def main() -> None:
    """Three epochs."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    net = nn.Linear(16, 4)
    model, optimizer, loader, dev = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        DataLoader(pictures(64), batch_size=4, collate_fn=collate),
        DataLoader(pictures(32), batch_size=2, collate_fn=collate),
    )
    for epoch in range(3):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(batch["x"]), batch["labels"]["label"]))
            optimizer.step()
        accuracy = evaluate(accelerator, model, dev)
        accelerator.print(f"epoch {epoch}: {accuracy:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
