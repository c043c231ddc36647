"""accelerate: ``save_state`` is called on the main process. With numbered checkpoints it waits for everyone inside."""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Two epochs of twelve steps, the state saved every fifth step."""
    torch.set_num_threads(1)
    project = ProjectConfiguration(tempfile.gettempdir(), automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    inputs = torch.randn(12 * 4 * accelerator.num_processes, 16)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    step = 0
    for epoch in range(2):
        for batch, target in loader:
            loss = (model(batch) - target).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            accelerator.print(f"epoch {epoch} step {step}: loss {loss.item():.3f}", flush=True)
            if step % 5 == 0 and accelerator.is_main_process:
                accelerator.save_state()
    accelerator.end_training()


if __name__ == "__main__":
    main()
