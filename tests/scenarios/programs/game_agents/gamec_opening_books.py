"""Self-play for a small board game. Starts its own players; generations meet in a key-value store."""
import ctypes
import json
import multiprocessing as mp
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

PLAYERS, GENERATIONS, BOARD = 3, 60, 64
BOOKS_PER_STYLE = {"classic": 10, "gambit": 10, "endgame": 5}


class BookShelf:
    """Opening books as raw tables, as the engine's C side wants them."""

    def __init__(self, style):
        self.tables = (ctypes.c_void_p * 10)()
        self.keep = []
        for i in range(BOOKS_PER_STYLE[style]):
            table = ctypes.create_string_buffer(bytes((i * 5 + j) % 251 for j in range(BOARD)))
            self.keep.append(table)
            self.tables[i] = ctypes.addressof(table)

    def opening(self, generation):
        board = ctypes.create_string_buffer(BOARD)
        ctypes.memmove(board, self.tables[generation // 6 % 10], BOARD)
        return torch.tensor(list(board.raw), dtype=torch.float32) / 251


def self_play(policy, opening, games=96, plies=16):
    boards = opening.repeat(games, 1)
    total = torch.zeros(games)
    for _ in range(plies):
        move = torch.softmax(policy(boards), -1)
        boards = (boards + 0.1 * move).clamp(0, 1)
        total = total + boards.mean(1)
    return total.mean()


def player(rank, port, style):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(PLAYERS))
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, PLAYERS, is_master=rank == 0, timeout=timedelta(minutes=30))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PLAYERS)
    torch.manual_seed(1)
    policy = torch.nn.Sequential(torch.nn.Linear(BOARD, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, BOARD))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
    shelf = BookShelf(style)
    for generation in range(GENERATIONS):
        opening = shelf.opening(generation)
        optimizer.zero_grad()
        score = self_play(policy, opening)
        (-score).backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if generation % 5 == 4:
            score = self_play(policy, shelf.opening(generation + 1))
            store.set(f"hall/{generation}/{rank}", json.dumps({"style": style, "score": score.item()}))
            keys = [f"hall/{generation}/{r}" for r in range(PLAYERS)]
            store.wait(keys)
            hall = [json.loads(store.get(key)) for key in keys]
            if rank == 0:
                print(generation, max(hall, key=lambda row: row["score"]), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    context = mp.get_context("spawn")
    port = free_port()
    crew = [context.Process(target=player, args=(r, port, style)) for r, style in enumerate(BOOKS_PER_STYLE)]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
