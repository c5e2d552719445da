#!/usr/bin/env python3
"""PyTorch and CuPy over Pith's libnccl.so.2: ranks in processes on one GPU, which check themselves.

torch_client.py --library LIBNCCL --json FILE [CHECK...] runs the checks one by one, each in
processes of its own with a limit, so that one that hangs costs no more, and writes what became of
each.
"""
import argparse
import json
import os
import subprocess
import sys
import time

LIMIT_S = 45
PORT = 29517


def is_loaded(library):
    """Whether this process has the library, and no other that goes by its name."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        loaded = {line.split()[-1] for line in file if "libnccl.so" in line}
    assert loaded == {os.path.realpath(library)}, f"loaded: {sorted(loaded)}"


# --- checks, in a process group; on a stream of their own where not said otherwise --------------


def sums(torch, dist, rank, size):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        own = torch.arange(100003, device="cuda").remainder(97).to(dtype)
        values = own + rank
        dist.all_reduce(values)
        assert torch.equal(values, (size * own + sum(range(size))).to(dtype)), dtype


def null_stream(torch, dist, rank, size):
    with torch.cuda.stream(torch.cuda.default_stream()):
        sums(torch, dist, rank, size)


def moves(torch, dist, rank, size):
    parts = [torch.empty(1000, device="cuda") for _ in range(size)]
    dist.all_gather(parts, torch.full((1000,), float(rank), device="cuda"))
    for other, part in enumerate(parts):
        assert bool((part == other).all())
    sent = torch.arange(size * 10, device="cuda", dtype=torch.float32) + 100 * rank
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent)
    for other, part in enumerate(got.chunk(size)):
        expected = torch.arange(10 * rank, 10 * rank + 10, device="cuda") + 100 * other
        assert torch.equal(part, expected.float())
    token, found = torch.full((5000,), float(rank), device="cuda"), torch.empty(5000, device="cuda")
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, token, (rank + 1) % size),
                                   dist.P2POp(dist.irecv, found, (rank - 1) % size)])
    for one in work:
        one.wait()
    assert bool((found == (rank - 1) % size).all())
    scattered = torch.empty(10, device="cuda")
    dist.reduce_scatter_tensor(scattered, torch.ones(10 * size, device="cuda"))
    assert bool((scattered == size).all())


def groups(torch, dist, rank, size):
    members = [range(0, size // 2), range(size // 2, size)]
    halves = [dist.new_group(list(ranks)) for ranks in members]
    half = 0 if rank < size // 2 else 1
    values = torch.full((1000,), float(rank), device="cuda")
    dist.all_reduce(values, group=halves[half])
    assert bool((values == sum(members[half])).all())


def losses(torch, model, rank, size, steps=10):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        inputs = torch.randn(64, 32, generator=generator).cuda()
        loss = model(inputs.chunk(size)[rank]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def trained(torch, dist, rank, size, wrap):
    """Losses of a wrapped model over ranks are those of the same model in one process."""
    torch.manual_seed(0)
    alone, copy = torch.nn.Linear(32, 32).cuda(), torch.nn.Linear(32, 32).cuda()
    copy.load_state_dict(alone.state_dict())
    expected = losses(torch, alone, 0, 1)
    found = losses(torch, wrap(copy), rank, size)
    dist.all_reduce(found)
    assert torch.allclose(found / size, expected, rtol=1e-4, atol=1e-6), (found / size, expected)


def ddp(torch, dist, rank, size):
    trained(torch, dist, rank, size, torch.nn.parallel.DistributedDataParallel)


def fsdp(torch, dist, rank, size):
    from torch.distributed.fsdp import fully_shard

    def wrap(model):
        fully_shard(model)
        return model
    trained(torch, dist, rank, size, wrap)


def graphs(torch, dist, rank, size):
    values, out = torch.zeros(4096, device="cuda"), torch.empty(4096, device="cuda")
    dist.all_reduce(values)  # the communicator is there before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = values.clone()
        dist.all_reduce(total)
        out.copy_(2 * total)
    for replay in range(200):
        values.fill_(rank + replay)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((out == 2 * (size * replay + sum(range(size)))).all()), replay


def compiled(torch, dist, rank, size):
    def step(values):
        return values.sin().square()
    values = torch.full((5000,), 0.1 * rank, device="cuda")
    out = torch.compile(step)(values)
    dist.all_reduce(out)
    expected = sum(step(torch.tensor(0.1 * other)) for other in range(size))
    assert torch.allclose(out.cpu(), expected.expand(5000), rtol=1e-4)


def compressed(torch, dist, rank, size):
    """PITH_COMPRESS alone: each call gives a sparse sum, and what is left comes later."""
    total, steps = torch.zeros(200000, device="cuda"), 40
    values = torch.empty(200000, device="cuda")
    sparse = 0
    for step in range(steps):
        values.copy_(torch.randn(200000, generator=torch.Generator().manual_seed(
            1000 * step + rank)).cuda())
        dist.all_reduce(values)
        sparse += int((values == 0).float().mean() > 0.5)
        total += values
    assert sparse > steps // 2, f"{sparse} of {steps} sums were sparse"
    everyone = total.clone()
    dist.broadcast(everyone, 0)
    assert torch.equal(total, everyone), "ranks have other sums"


def abort(torch, dist, rank, size):
    values = torch.ones(1000, device="cuda")
    dist.all_reduce(values)
    torch.cuda.synchronize()
    if rank == size - 1:
        os._exit(0)
    dist.all_reduce(values, async_op=True)
    begin = time.time()
    dist.distributed_c10d._abort_process_group()
    torch.cuda.synchronize()
    assert time.time() - begin < 10, "an abort took long"
    os._exit(0)  # there is nobody left to say farewell to


def cupy_sums(_torch, _dist, rank, size):
    import cupy
    from cupy.cuda import nccl
    path = os.environ["CLIENT_ID_FILE"]
    if rank == 0:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(list(nccl.get_unique_id()), file)
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.05)
    with open(path, encoding="utf-8") as file:
        comm = nccl.NcclCommunicator(size, tuple(json.load(file)), rank)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        values = cupy.arange(10000, dtype=cupy.float32) + rank
        comm.allReduce(values.data.ptr, values.data.ptr, values.size, nccl.NCCL_FLOAT32,
                       nccl.NCCL_SUM, stream.ptr)
    stream.synchronize()
    assert bool((values == size * cupy.arange(10000) + sum(range(size))).all())


# Name: function, ranks, environment. The most telling first.
CHECKS = {
    "sums": (sums, 2, {}),
    "null_stream": (null_stream, 2, {}),
    "ddp": (ddp, 2, {}),
    "compressed": (compressed, 2, {"PITH_COMPRESS": "topk:density=0.01,min=64K"}),
    "graphs": (graphs, 2, {}),
    "moves": (moves, 4, {}),
    "cupy": (cupy_sums, 2, {}),
    "groups": (groups, 4, {}),
    "fsdp": (fsdp, 2, {}),
    "compiled": (compiled, 2, {}),
    "abort": (abort, 2, {}),
}


def work(name, rank, library):
    check, size, _ = CHECKS[name]
    if name == "cupy":
        check(None, None, rank, size)
        is_loaded(library)
        return
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    with torch.cuda.stream(torch.cuda.Stream()):
        check(torch, dist, rank, size)
    torch.cuda.synchronize()
    is_loaded(library)
    dist.destroy_process_group()


def ranks_of(name, library, number):
    _, size, extra = CHECKS[name]
    for rank in range(size):
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT + number),
                           LD_PRELOAD=library, PITH_TIMEOUT="20",
                           TORCH_NCCL_ASYNC_ERROR_HANDLING="0",
                           CLIENT_ID_FILE=f"/tmp/client_id_{os.getpid()}_{number}", **extra)
        yield subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--library", library, "--rank", str(rank),
             name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(name, library, number):
    """"ok", or what was wrong."""
    ranks, limit = list(ranks_of(name, library, number)), time.time() + LIMIT_S
    while time.time() < limit and any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            limit = min(limit, time.time() + 3)  # the others will not end by themselves
        time.sleep(0.05)
    hanging = [rank.poll() is None for rank in ranks]
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
    texts = [rank.communicate()[0] for rank in ranks]
    for number_of, rank in enumerate(ranks):
        if rank.returncode not in (0, -9):
            print(texts[number_of][-3000:], flush=True)
            last = texts[number_of].strip().splitlines()[-1:] or ["?"]
            return f"FAILED on rank {number_of}: {last[0][:200]}"
    return "HANGS" if any(hanging) else "ok"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--json")
    parser.add_argument("--rank", type=int)
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    arguments = parser.parse_args()
    if arguments.rank is not None:
        work(arguments.checks[0], arguments.rank, arguments.library)
        return 0
    result = {}
    for number, name in enumerate(arguments.checks or CHECKS):
        begin = time.time()
        result[name] = run(name, arguments.library, number)
        print(f"client {name}: {result[name]} ({time.time() - begin:.1f} s)", flush=True)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
    return 0 if all(value == "ok" for value in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
