"""Checks of JAX over NCCL's symbols, run by clients.py: processes of one device each."""
import contextlib

import jax
import numpy
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@contextlib.contextmanager
def joined(world):
    if not world.on_gpu:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{world.port}", world.size, world.rank,
                               local_device_ids=[0] if world.on_gpu else None)
    yield
    jax.distributed.shutdown()


def over_ranks(function, mesh):
    every = PartitionSpec("ranks")
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=every, out_specs=every))


def run(function, mesh, own):
    """This rank's part of what a function of all ranks' parts gives."""
    parts = NamedSharding(mesh, PartitionSpec("ranks"))
    whole = jax.make_array_from_process_local_data(parts, own)
    result = over_ranks(function, mesh)(whole)
    return numpy.asarray(result.addressable_shards[0].data)


def collectives(world):
    rank, size = world.rank, world.size
    devices = jax.devices()
    assert len(devices) == size, f"{len(devices)} devices for {size} ranks"
    mesh = Mesh(numpy.array(devices), ("ranks",))
    for dtype in (jnp.float32, jnp.int32, jnp.bfloat16):
        own = numpy.arange(10000) % 50
        total = run(lambda x: lax.psum(x, "ranks"), mesh, (own + rank).astype(dtype))
        assert (total == (size * own + sum(range(size))).astype(dtype)).all(), dtype
    own = numpy.arange(size * 10, dtype=numpy.float32) + 100 * rank
    blocks = own.reshape(size, 10)
    found = run(lambda x: lax.all_gather(x, "ranks", tiled=True), mesh, own)
    assert (found == numpy.concatenate([own + 100 * (other - rank)
                                        for other in range(size)])).all()
    found = run(lambda x: lax.psum_scatter(x, "ranks", tiled=True), mesh, own)
    assert (found == size * (blocks[rank] - 100 * rank) + 100 * sum(range(size))).all()
    found = run(lambda x: lax.ppermute(x, "ranks", [(r, (r + 1) % size) for r in range(size)]),
                mesh, own)
    assert (found == own + 100 * ((rank - 1) % size - rank)).all()
    found = run(lambda x: lax.all_to_all(x, "ranks", 0, 0, tiled=True), mesh, own)
    expected = [blocks[rank] + 100 * (other - rank) for other in range(size)]
    assert (found == numpy.concatenate(expected)).all()
