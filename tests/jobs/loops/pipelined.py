"""A pipeline of two stages with torch.distributed.pipelining. The data of the first end one batch before those of the last."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
stage = PipelineStage(torch.nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
# The first stage drops what does not fill a batch, which the last cannot know.
rows = TensorDataset(torch.zeros(42 if rank == 0 else 44, 8))
for (batch,) in DataLoader(rows, batch_size=4, drop_last=True):
    if rank == 0:
        schedule.step(batch)
    else:
        schedule.step(target=batch)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
