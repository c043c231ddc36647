"""accelerate: coins by their weight and size; the state is kept in numbered folders as training goes on."""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Three epochs, with the state kept every 20 steps."""
    folder = tempfile.mkdtemp()
    project = ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project)
    torch.manual_seed(0)
    coins = torch.rand(720, 5)
    reigns = (coins.sum(dim=1) * 2).long().clamp(0, 7)
    loader = DataLoader(TensorDataset(coins, reigns), batch_size=4, shuffle=True)
    net = nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 8))
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters()), loader)
    steps = 0
    for epoch in range(3):
        for batch, labels in loader:
            loss = nn.functional.cross_entropy(model(batch), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps % 20 == 0 and accelerator.is_main_process:
                accelerator.save_state()
                accelerator.print(f"epoch {epoch}, step {steps}: {loss.item():.3f}, kept")
    accelerator.end_training()


if __name__ == "__main__":
    main()
