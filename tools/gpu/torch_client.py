#!/usr/bin/env python3
"""PyTorch over whatever libnccl.so.2 is loaded: two ranks on one GPU. torch_client.py --json FILE

Sums of several types, DDP against training in one process, and gathers; each rank checks itself.
"""
import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def check_sums(rank, size):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        values = torch.arange(100003, device="cuda").remainder(97).to(dtype) + rank
        dist.all_reduce(values)
        own = torch.arange(100003, device="cuda").remainder(97).to(dtype)
        expected = size * own + sum(range(size))
        assert torch.equal(values, expected.to(dtype)), dtype


def check_gather(rank, size):
    parts = [torch.empty(1000, device="cuda") for _ in range(size)]
    dist.all_gather(parts, torch.full((1000,), float(rank), device="cuda"))
    for other, part in enumerate(parts):
        assert bool((part == other).all())


def losses(model, rank, size, steps=10):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        inputs = torch.randn(64, 32, generator=generator).cuda()
        share = inputs.chunk(size)[rank]
        loss = model(share).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def check_ddp(rank, size):
    torch.manual_seed(0)
    alone = torch.nn.Linear(32, 32).cuda()
    copy = torch.nn.Linear(32, 32).cuda()
    copy.load_state_dict(alone.state_dict())
    expected = losses(alone, 0, 1)
    found = losses(torch.nn.parallel.DistributedDataParallel(copy), rank, size)
    dist.all_reduce(found)
    assert torch.allclose(found / size, expected, rtol=1e-4, atol=1e-6)


def work(rank, size, file):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", NCCL_HOSTID=f"rank{rank}")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    result = {}
    for name, body in (("sums", check_sums), ("gather", check_gather), ("ddp", check_ddp)):
        body(rank, size)
        torch.cuda.synchronize()
        result[name] = "ok"
    dist.destroy_process_group()
    if rank == 0:
        with open(file, "w", encoding="utf-8") as out:
            json.dump(result, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    file = parser.parse_args().json
    mp.spawn(work, args=(2, file), nprocs=2)


if __name__ == "__main__":
    main()
