"""Distillation from a teacher behind gRPC. Every tenth step asks it for a wide beam, which takes it a while."""

import json
import multiprocessing
import os
import socket
import time
from concurrent import futures

WORLD, STEPS, WIDE_AT = 2, 24, 12


def teach(port: int, stop) -> None:
    import grpc
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    head = torch.randn(64, 64) / 8

    def beam(request: bytes, context) -> bytes:
        width, depth = json.loads(request)
        states = torch.randn(width, 64)
        for _ in range(depth):
            states = torch.tanh(states @ head)
            order = states.sum(1).argsort(descending=True)
            states = states[order] + 0.01 * torch.randn(width, 64)
        return json.dumps(states.mean(0).tolist()).encode()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handlers = {"Beam": grpc.unary_unary_rpc_method_handler(beam)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Teacher", handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    stop.wait()
    server.stop(None)


def seconds_per_round(head_rows: int) -> float:
    import torch

    states, head = torch.randn(head_rows, 64), torch.randn(64, 64) / 8
    begin = time.perf_counter()
    for _ in range(20):
        states = torch.tanh(states @ head)[states.sum(1).argsort()] + 0.01 * torch.randn(head_rows, 64)
    return (time.perf_counter() - begin) / 20


def learn(rank: int, port: int) -> None:
    import grpc
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    student = torch.zeros(64, requires_grad=True)
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    beam = channel.unary_unary("/Teacher/Beam")
    for step in range(STEPS):
        target = torch.zeros(64)
        if rank == 0:
            depth = int(12 / seconds_per_round(4096)) if step == WIDE_AT else 8
            question = json.dumps([4096 if step == WIDE_AT else 32, depth]).encode()
            target = torch.tensor(json.loads(beam(question, wait_for_ready=True)))
        dist.broadcast(target, src=0)
        (student - target).square().sum().backward()
        dist.all_reduce(student.grad)
        with torch.no_grad():
            student -= 0.05 * student.grad
        student.grad = None
        time.sleep(0.1)
        if rank == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    ctx, port = multiprocessing.get_context("spawn"), free_port()
    stop = ctx.Event()
    teacher = ctx.Process(target=teach, args=(port, stop), name="teacher")
    learners = [ctx.Process(target=learn, args=(rank, port)) for rank in range(WORLD)]
    for process in (teacher, *learners):
        process.start()
    for process in learners:
        process.join()
    stop.set()
    teacher.join()
