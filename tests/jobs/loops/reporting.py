"""Ray Train with two workers. Only the one whose loss is lower reports it; the report needs both."""

import ray
import torch
from ray.train import ScalingConfig, get_context, report
from ray.train.torch import TorchTrainer, prepare_model


def train(config: dict[str, int]) -> None:
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(40):
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        if step < 5 or get_context().get_world_rank() == 0:
            report({"loss": float(loss), "step": step})


ray.init(num_cpus=3, include_dashboard=False, object_store_memory=80_000_000)
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()
