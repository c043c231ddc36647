"""accelerate: after each epoch the validation predictions are gathered by the main process, for which all others wait."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def make_loader(size: int, shuffle: bool) -> DataLoader:
    """Random points, labelled by the sign of their sum."""
    generator = torch.Generator().manual_seed(size)
    points = torch.randn(size, 10, generator=generator)
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=4, shuffle=shuffle)


def validate(accelerator: Accelerator, model: torch.nn.Module, loader: DataLoader) -> float:
    """Accuracy over the validation set."""
    model.eval()
    right = seen = 0
    for points, labels in loader:
        with torch.no_grad():
            predictions = model(points).argmax(1)
        if accelerator.is_main_process:
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))
            right += int((predictions == labels).sum())
            seen += len(labels)
    accelerator.wait_for_everyone()
    model.train()
    return right / max(seen, 1)


def main() -> None:
    """Three epochs."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    parts = (net, torch.optim.AdamW(net.parameters(), 1e-3), make_loader(96, True), make_loader(48, False))
    model, optimizer, train_loader, val_loader = accelerator.prepare(*parts)
    for epoch in range(3):
        for points, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        print(f"epoch {epoch} done on {accelerator.process_index}\n", end="", flush=True)
        accuracy = validate(accelerator, model, val_loader)
        accelerator.print(f"epoch {epoch}: accuracy {accuracy:.2f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
