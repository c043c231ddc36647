"""accelerate's dispatching loader on two ranks: rank 0 reads for both. Rank 1 leaves the loop by its own loss."""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
torch.manual_seed(1)
rows = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
model = torch.nn.Linear(8, 1)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(rows, batch_size=4)
)
worst = 0.0
for step, (features, labels) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(features), labels)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    worst = max(worst, float(loss) + accelerator.process_index * step)
    if worst > 6.0:
        break
print("worst of all", accelerator.gather(torch.tensor([worst])).max())
