"""Checks of PyTorch over NCCL's symbols, run by clients.py; those that gloo can do, over that too.

On a GPU all of them run on a stream of their own where not said otherwise.
"""
import contextlib
import os
import time

import torch
import torch.distributed as dist


@contextlib.contextmanager
def joined(world):
    if not world.on_gpu:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=world.rank, world_size=world.size)
        yield
        dist.destroy_process_group()
        return
    torch.cuda.set_device(0)
    bound = {"device_id": torch.device("cuda", 0)} if world.bound else {}
    dist.init_process_group("nccl", rank=world.rank, world_size=world.size, **bound)
    with torch.cuda.stream(torch.cuda.Stream()):
        yield
    torch.cuda.synchronize()
    dist.destroy_process_group()


def ensure_all(tensor, value):
    expected = torch.full_like(tensor, value)
    assert torch.equal(tensor, expected), f"{tensor.flatten()[:4].tolist()}..., expected {value}"


# --- collectives --------------------------------------------------------------------------------


def sums(world):
    whole = torch.arange(100003, device=world.device)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32,
                  torch.int64, torch.uint8):
        own = whole.remainder(50).to(dtype)  # sums are exact in all of them
        values = own + world.rank
        dist.all_reduce(values)
        assert torch.equal(values, world.size * own + sum(range(world.size))), dtype
    own = whole.remainder(5).float()
    for op, expected in operations(world, own):
        values = own + world.rank
        dist.all_reduce(values, op=op)
        assert torch.allclose(values, expected, rtol=1e-6), op


def operations(world, own):
    """Of `own` plus each one's rank."""
    product = torch.ones_like(own)
    for rank in range(world.size):
        product *= own + rank
    total = world.size * own + sum(range(world.size))
    yield dist.ReduceOp.MAX, own + world.size - 1
    yield dist.ReduceOp.MIN, own
    yield dist.ReduceOp.PRODUCT, product
    if world.on_gpu:
        yield dist.ReduceOp.AVG, total / world.size
        yield dist._make_nccl_premul_sum(0.25), 0.25 * total


def null_stream(world):
    with torch.cuda.stream(torch.cuda.default_stream()):
        sums(world)


def moves(world):
    gathers(world)
    exchanges(world)
    rooted(world)
    messages(world)
    dist.barrier()


def gathers(world):
    rank, size, device = world.rank, world.size, world.device
    own = torch.full((1000,), float(rank), device=device)
    parts = [torch.empty(1000, device=device) for _ in range(size)]
    dist.all_gather(parts, own)
    whole = torch.empty(1000 * size, device=device)
    dist.all_gather_into_tensor(whole, own)
    for other, part in enumerate(parts + list(whole.chunk(size))):
        ensure_all(part, float(other % size))
    scattered = torch.empty(10, device=device)
    blocks = torch.arange(size, device=device).repeat_interleave(10) + float(rank)
    dist.reduce_scatter_tensor(scattered, blocks)
    ensure_all(scattered, float(size * rank + sum(range(size))))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(size)]


def exchanges(world):
    rank, size, device = world.rank, world.size, world.device
    sent = torch.arange(size * 10, device=device, dtype=torch.float32) + 100 * rank
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent)
    for other, part in enumerate(got.chunk(size)):
        expected = torch.arange(10 * rank, 10 * rank + 10, device=device) + 100 * other
        assert torch.equal(part, expected.float())
    # Blocks of different lengths: rank + other + 1 elements each.
    lengths = [rank + other + 1 for other in range(size)]
    blocks = [torch.full((rank + other + 1,), 100.0 * rank + other, device=device)
              for other in range(size)]
    got = torch.empty(sum(lengths), device=device)
    dist.all_to_all_single(got, torch.cat(blocks), lengths, lengths)
    parts = list(got.split(lengths))
    if world.on_gpu:  # gloo has none of lists
        found = [torch.empty(length, device=device) for length in lengths]
        dist.all_to_all(found, blocks)
        parts += found
    for other, part in enumerate(parts):
        ensure_all(part, 100.0 * (other % size) + rank)


def rooted(world):
    rank, size, device = world.rank, world.size, world.device
    root = size - 1
    values = torch.full((3001,), float(rank), device=device)
    dist.broadcast(values, root)
    ensure_all(values, float(root))
    values.fill_(rank)
    dist.reduce(values, root)
    if rank == root:
        ensure_all(values, float(sum(range(size))))
    own = torch.full((500,), float(rank), device=device)
    parts = [torch.empty(500, device=device) for _ in range(size)]
    dist.gather(own, parts if rank == root else None, root)
    if rank == root:
        for other, part in enumerate(parts):
            ensure_all(part, float(other))
    dist.scatter(own, parts if rank == root else None, root)
    ensure_all(own, float(rank))


def messages(world):
    rank, size = world.rank, world.size
    sent = torch.full((5000,), float(rank), device=world.device)
    found = torch.empty(2, 5000, device=world.device)
    operations = []
    for slot, distance in enumerate((1, size - 1)):  # to both neighbours at once
        operations.append(dist.P2POp(dist.isend, sent, (rank + distance) % size))
        operations.append(dist.P2POp(dist.irecv, found[slot], (rank - distance) % size))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for slot, distance in enumerate((1, size - 1)):
        ensure_all(found[slot], float((rank - distance) % size))


def halves_of(world):
    half = world.size // 2
    members = [list(range(half)), list(range(half, world.size))]
    return members, 0 if world.rank < half else 1


def use_half(world, group, members):
    """Calls of the half and of the whole, in turns."""
    for turn in range(20):
        values = torch.full((1000,), float(world.rank + turn), device=world.device)
        whole = values.clone()
        dist.all_reduce(values, group=group)
        dist.all_reduce(whole)
        ensure_all(values, float(sum(members) + turn * len(members)))
        ensure_all(whole, float(sum(range(world.size)) + turn * world.size))


def groups(world):
    members, half = halves_of(world)
    made = [dist.new_group(ranks) for ranks in members]
    use_half(world, made[half], members[half])


def splits(world):
    """By ncclCommSplit, which is for groups that know their device."""
    members, half = halves_of(world)
    group = dist.split_group(split_ranks=members)
    use_half(world, group, members[half])
    dist.destroy_process_group(group)


def served_by_other(world):
    sums(world)
    gathers(world)
    messages(world)


def abort(world):
    values = torch.ones(1000, device=world.device)
    dist.all_reduce(values)
    torch.cuda.synchronize()
    world.ensure_served()
    if world.rank == world.size - 1:
        os._exit(0)
    dist.all_reduce(values, async_op=True)
    begin = time.time()
    dist.distributed_c10d._abort_process_group()
    torch.cuda.synchronize()
    assert time.time() - begin < 10, "an abort took long"
    os._exit(0)  # there is nobody left to say farewell to


# --- training -----------------------------------------------------------------------------------


def losses(world, model, part, parts, dtype, steps=10):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        inputs = torch.randn(64, 32, generator=generator).to(world.device, dtype)
        loss = model(inputs.chunk(parts)[part]).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def trained(world, wrap, dtype=torch.float32, rtol=1e-4):
    """Losses of a wrapped model over ranks are those of the same model in one process."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                                          torch.nn.Linear(64, 32)).to(world.device, dtype))
    expected = losses(world, models[0], 0, 1, dtype)
    found = losses(world, wrap(models[1]), world.rank, world.size, dtype)
    dist.all_reduce(found)
    assert torch.allclose(found / world.size, expected, rtol=rtol), (found / world.size, expected)


def in_buckets(model):
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)


def ddp(world):
    trained(world, in_buckets)


def ddp_bf16(world):
    trained(world, in_buckets, torch.bfloat16, 0.03)


def fsdp(world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mesh = init_device_mesh(world.device, (world.size,))

    def sharded(**how):
        def wrap(model):
            fully_shard(model[0], mesh=mesh, **how)
            fully_shard(model, mesh=mesh, **how)
            return model
        return wrap
    trained(world, sharded())
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    trained(world, sharded(mp_policy=mixed), rtol=0.03)


def fsdp1(world):
    from torch.distributed.fsdp import FullyShardedDataParallel
    trained(world, lambda model: FullyShardedDataParallel(model, use_orig_params=True))


# --- compression by the environment alone -------------------------------------------------------


def ensure_alike(values):
    everyone = values.clone()
    dist.broadcast(everyone, 0)
    assert torch.equal(values, everyone), "ranks have other sums"


def ddp_compressed(world, dtype=torch.float32, density=0.01, falls_to=0.5):
    """An unmodified DDP learns a matrix from sparse gradients, alike on all ranks."""
    width = 512
    torch.manual_seed(0)
    model = torch.nn.Linear(width, width, bias=False).to(world.device, dtype)
    goal = torch.randn(width, width).to(world.device, dtype) / 16
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=5.0)
    generator = torch.Generator().manual_seed(1 + world.rank)
    found = []
    for _ in range(150):
        inputs = torch.randn(64, width, generator=generator).to(world.device, dtype)
        loss = (wrapped(inputs) - inputs @ goal.T).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    share = (model.weight.grad != 0).float().mean().item()
    assert 0 < share <= 1.001 * world.size * density, f"{share} of the gradient are no zeros"
    ensure_alike(model.weight.grad)
    ensure_alike(model.weight.detach())
    last, first = sum(found[-10:]), sum(found[:10])
    assert last < falls_to * first, f"the loss went from {first / 10} to {last / 10}"


def ddp_compressed_f16(world):
    ddp_compressed(world, torch.float16, 0.001, 0.9)


def residuals(world, dtype, density, half_unit):
    """What is not sent at once comes later: in the end the sums are those of the dense ones."""
    count, dense_steps = 200_000, 20
    last_steps = int(world.size * 1.05 / density)  # of gradients of zero, until nothing is left
    values = torch.empty(count, dtype=dtype, device=world.device)
    expected, total, moved = (torch.zeros(count, dtype=torch.float64, device=world.device)
                              for _ in range(3))
    nonzeros = []
    for step in range(dense_steps + last_steps):
        values.zero_()
        if step < dense_steps:
            for rank in range(world.size):
                generator = torch.Generator().manual_seed(1000 * step + rank)
                gradient = torch.randn(count, generator=generator).to(world.device, dtype)
                expected += gradient
                if rank == world.rank:
                    values.copy_(gradient)
        dist.all_reduce(values)
        nonzeros.append((values != 0).sum())
        total += values
        moved += values.abs()
    most = max(torch.stack(nonzeros[dense_steps:]).tolist())
    assert 0 < most <= world.size * int(count * density), f"{most} elements in one sum"
    ensure_alike(total)
    lost = (total - expected).abs() - half_unit * moved
    assert lost.max().item() < 1e-3, f"{lost.max().item()} were lost"


def residuals_f32(world):
    residuals(world, torch.float32, 0.01, 2.0 ** -22)


def residuals_bf16(world):
    residuals(world, torch.bfloat16, 0.001, 2.0 ** -8)


def residuals_f16(world):
    residuals(world, torch.float16, 0.001, 2.0 ** -11)


# --- captured and compiled ----------------------------------------------------------------------


def graphs(world):
    """A thousand replays, some of them with an eager call between."""
    rank, size = world.rank, world.size
    values, out = (torch.zeros(4096, device=world.device) for _ in range(2))
    dist.all_reduce(values)  # the communicator is there before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = values.clone()
        dist.all_reduce(total)
        out.copy_(2 * total)
        dist.all_reduce(out)
    for replay in range(1000):
        values.fill_(rank + replay)
        graph.replay()
        if replay % 10 == 0:
            eager = values.clone()
            dist.all_reduce(eager)
            ensure_all(eager, float(size * replay + sum(range(size))))
            ensure_all(out, float(2 * size * (size * replay + sum(range(size)))))


def step_of(values):
    out = values.sin()
    dist.all_reduce(out)
    return 2 * out


def run_compiled(world, mode):
    step = torch.compile(step_of, mode=mode, fullgraph=True)
    start = torch.linspace(0, 1, 5000, device=world.device)
    dist.all_reduce(start.clone())  # the communicator is there before a capture
    for turn in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        out = step(start + turn + world.rank).clone()
        expected = sum(2 * (start + turn + rank).sin() for rank in range(world.size))
        assert torch.allclose(out, expected, atol=1e-4), turn


def compiled(world):
    run_compiled(world, None)


def compiled_graphs(world):
    """The compiler's graphs hold the collective, and are not given up for it."""
    from torch._dynamo.utils import counters
    run_compiled(world, "reduce-overhead")
    skipped = counters["inductor"]["cudagraph_skips"]
    assert skipped == 0, f"{skipped} graphs were not captured"
