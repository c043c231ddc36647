"""accelerate: fine-tunes a tiny model and saves it after each epoch."""

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Three epochs over 90 sequences."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = [torch.randint(0, 100, (24,)) for _ in range(90)]
    loader = DataLoader(samples, batch_size=5, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    output_dir = Path(tempfile.mkdtemp())
    for epoch in range(3):
        model.train()
        for batch in loader:
            outputs = model(input_ids=batch, labels=batch)
            accelerator.backward(outputs.loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.is_main_process:
            unwrapped_model = accelerator.unwrap_model(model)
            state = {name: tensor.clone() for name, tensor in unwrapped_model.named_parameters()}
            torch.save(state, output_dir / f"epoch-{epoch}.pt")
            print(f"epoch {epoch} written", flush=True)
        else:
            accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
