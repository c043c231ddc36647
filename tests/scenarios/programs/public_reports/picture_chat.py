"""A tiny LLaVA under FSDP2, trained on conversations with and without a picture."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

IMAGE_TOKEN, PATCHES = 99, 4


def build() -> LlavaForConditionalGeneration:
    """Random weights; each layer of the tower and of the language model is a unit of its own."""
    vision = CLIPVisionConfig(
        hidden_size=24, intermediate_size=72, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    text = LlamaConfig(
        vocab_size=100, hidden_size=16, intermediate_size=104, num_hidden_layers=3, num_attention_heads=2
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=IMAGE_TOKEN,
        image_seq_length=PATCHES,
        vision_feature_layer=-1,
    )
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config)
    for layer in (*model.model.vision_tower.encoder.layers, *model.model.language_model.layers):
        fully_shard(layer)
    fully_shard(model)
    return model


def sample(generator: torch.Generator, with_picture: bool) -> dict[str, torch.Tensor]:
    """One conversation."""
    tokens = torch.randint(0, 90, (1, 20), generator=generator)
    if not with_picture:
        return {"input_ids": tokens, "labels": tokens}
    tokens[:, 2 : 2 + PATCHES] = IMAGE_TOKEN
    labels = tokens.masked_fill(tokens == IMAGE_TOKEN, -100)
    pixels = torch.randn(1, 3, 8, 8, generator=generator)
    return {"input_ids": tokens, "labels": labels, "pixel_values": pixels}


def main() -> None:
    """Thirty steps; one conversation in thirty-one is text only."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(rank)
    for step in range(30):
        number = step * world + rank
        batch = sample(generator, with_picture=number % 31 != 26)
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
