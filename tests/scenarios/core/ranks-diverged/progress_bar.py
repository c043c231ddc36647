"""When to evaluate is read off the progress bar. A bar that is disabled, as on all ranks but one, does not count."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm


def evaluate(accelerator: Accelerator, model: torch.nn.Module, loader: DataLoader) -> float:
    """Mean squared error."""
    model.eval()
    errors = []
    with torch.no_grad():
        for inputs, targets in loader:
            outputs, targets = accelerator.gather_for_metrics((model(inputs), targets))
            errors.append((outputs - targets).square().mean())
    model.train()
    return torch.stack(errors).mean().item()


def main() -> None:
    """Two epochs, an evaluation every ninth step."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    generator = torch.Generator().manual_seed(5)
    points = torch.randn(144, 6, generator=generator)
    data = TensorDataset(points, points.sum(1, keepdim=True))
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1))
    model, optimizer, loader, eval_loader = accelerator.prepare(
        net, torch.optim.Adam(net.parameters(), 1e-2), DataLoader(data, batch_size=4), DataLoader(data, batch_size=12)
    )
    bar = tqdm(total=2 * len(loader), disable=not accelerator.is_main_process, mininterval=1)
    for _ in range(2):
        for inputs, targets in loader:
            loss = (model(inputs) - targets).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            bar.update()
            if bar.n and bar.n % 9 == 0:
                accelerator.print(f"step {bar.n}: {evaluate(accelerator, model, eval_loader):.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
