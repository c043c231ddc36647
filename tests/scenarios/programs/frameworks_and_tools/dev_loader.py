"""accelerate: the training loader is prepared, the one for the development set is cut by hand."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


def share(data: TensorDataset, accelerator: Accelerator) -> DataLoader:
    """Every n-th sample is for this process."""
    mine = range(accelerator.process_index, len(data), accelerator.num_processes)
    return DataLoader(Subset(data, mine), batch_size=4)


def main() -> None:
    """Four epochs."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    train = TensorDataset(torch.randn(96, 7), torch.randint(0, 3, (96,)))
    dev = TensorDataset(torch.randn(50, 7), torch.randint(0, 3, (50,)))
    net = nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 3))
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.Adam(net.parameters(), lr=1e-3), DataLoader(train, batch_size=4, shuffle=True)
    )
    dev_loader = share(dev, accelerator)
    for epoch in range(4):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
        model.eval()
        right = torch.zeros(())
        for x, y in dev_loader:
            with torch.no_grad():
                answers = model(x).argmax(1)
            # the last batch may be short
            answers, truth = accelerator.pad_across_processes((answers, y), pad_index=-1)
            answers, truth = accelerator.gather((answers, truth))
            right += ((answers == truth) & (truth >= 0)).sum()
        accelerator.print(f"epoch {epoch}: {right.item() / len(dev):.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
