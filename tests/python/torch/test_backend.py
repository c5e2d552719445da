"""The process-group backend."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import pith.torch
from ranks import RankFailed, run_ranks
from random_programs import run_program


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_random_programs(size: int) -> None:
    run_ranks(run_program, size, [11, 12], 40, timeout=120)


def test_backend_names() -> None:
    def body(rank: int, size: int) -> None:
        assert dist.get_backend() == "pith"
        assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "pith"

    run_ranks(body, 2)


def test_backend_by_device() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(3) * (rank + 1)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [3, 3, 3]

    run_ranks(body, 2, backend="cpu:pith,cuda:pith")


def test_futures() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(5) * rank
        work = dist.all_reduce(tensor, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        assert doubled.wait().tolist() == [12] * 5
        assert work.is_completed()
        assert work.wait()

    run_ranks(body, 4)


def test_works_that_are_dropped() -> None:
    def body(rank: int, size: int) -> None:
        for _ in range(50):
            dist.all_reduce(torch.ones(1000), async_op=True)
            dist.isend(torch.ones(100000), 1 - rank)
        for _ in range(50):
            dist.recv(torch.ones(100000), 1 - rank)
        dist.barrier()

    run_ranks(body, 2)


def test_receive_before_blocking_send() -> None:
    """A posted receive is served while its rank is in another call."""

    def body(rank: int, size: int) -> None:
        got = torch.zeros(1 << 20)
        receive = dist.irecv(got, 1 - rank)
        dist.send(torch.ones(1 << 20) * rank, 1 - rank)
        receive.wait()
        assert got[7] == 1 - rank
        if rank == 0:
            receive = dist.irecv(got, 1)
        else:
            dist.send(torch.ones(1 << 20) * 5, 0)
        dist.barrier()
        if rank == 0:
            receive.wait()
            assert got[9] == 5

    run_ranks(body, 2)


def test_new_groups_and_threads() -> None:
    """Several groups, each driven by a thread of its own."""

    def body(rank: int, size: int) -> None:
        groups = [dist.new_group(list(range(size))) for _ in range(3)]
        halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        errors: list[str] = []

        def work(number: int, group: Any) -> None:
            for i in range(30):
                tensor = torch.full((100,), float(rank + i + number))
                dist.all_reduce(tensor, group=group)
                expected = float(sum(r + i + number for r in range(size)))
                if tensor[0] != expected:
                    errors.append(f"{tensor[0]} is not {expected}")

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(groups)]
        for thread in threads:
            thread.start()
        tensor = torch.ones(1) * rank
        dist.all_reduce(tensor, group=halves[rank // 2])
        assert tensor[0] == (1 if rank < 2 else 5)
        for thread in threads:
            thread.join()
        assert not errors, errors[0]

    run_ranks(body, 4)


def test_split_group() -> None:
    def body(rank: int, size: int) -> None:
        mine = [0, 2] if rank % 2 == 0 else [1, 3]
        group = dist.group.WORLD.split_group(mine, group_name=f"half{rank % 2}")
        tensor = torch.ones(4) * rank
        group.allreduce([tensor]).wait()
        assert tensor[0] == sum(mine)

    run_ranks(body, 4)


def test_premultiplied_sum() -> None:
    def body(rank: int, size: int) -> None:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            tensor = torch.ones(10, dtype=dtype) * (rank + 1)
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
            assert tensor.tolist() == [1.5] * 10

    run_ranks(body, 2)


def test_complex_numbers() -> None:
    """PyTorch's own functions pass on the parts of complex numbers, the process group takes all."""

    def body(rank: int, size: int) -> None:
        group = dist.group.WORLD
        for dtype in (torch.complex64, torch.complex128):
            mine = torch.tensor([[1 + 2j, 3j], [-1j, 2]], dtype=dtype) * (rank + 1)
            expected = mine / (rank + 1) * (mine / (rank + 1)) * 2
            for tensor in (mine.clone(), mine.t().contiguous().t()):
                options = dist.AllreduceOptions()
                options.reduceOp = dist.ReduceOp.PRODUCT
                group.allreduce([tensor], options).wait()
                assert torch.equal(tensor, expected), tensor
            with_factor = mine.clone()
            factor = torch.tensor(1j, dtype=dtype)
            by_factor = dist.AllreduceOptions()
            by_factor.reduceOp = dist._make_nccl_premul_sum(factor)
            group.allreduce([with_factor], by_factor).wait()
            assert torch.equal(with_factor, mine / (rank + 1) * 3j)
            sparse = torch.sparse_coo_tensor([[rank, 2]], mine[0], (3,))
            dense = sparse.to_dense()
            dist.all_reduce(dense)
            group.allreduce([sparse]).wait()
            assert torch.equal(sparse.to_dense(), dense)
        half = torch.ones(3, dtype=torch.complex32)
        dist.all_reduce(half)
        assert half.dtype == torch.complex32
        assert torch.view_as_real(half).tolist() == [[2, 0]] * 3
        with pytest.raises(ValueError, match="complex factor.*Double"):
            dist.all_reduce(mine.clone(), op=dist._make_nccl_premul_sum(factor))
        with pytest.raises(ValueError, match="MAX.*ComplexFloat"):
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp.MAX
            group.allreduce([mine.to(torch.complex64)], options)

    run_ranks(body, 2)


def test_refusals() -> None:
    def body(rank: int, size: int) -> None:
        with pytest.raises(ValueError, match="BAND.*Float"):
            dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND)
        with pytest.raises(ValueError, match="12 elements, expected 2 times 5"):
            dist.all_gather_into_tensor(torch.ones(12), torch.ones(5))
        with pytest.raises(ValueError, match="AVG.*Bool"):
            dist.all_reduce(torch.ones(3).bool(), op=dist.ReduceOp.AVG)
        dist.barrier()

    run_ranks(body, 2)


def test_wrong_size_of_message() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            dist.send(torch.ones(1000), 1)
            dist.send(torch.ones(2000), 1)
            return
        with pytest.raises(RuntimeError, match="rank 0 sent 4000 bytes of Float.* has 40 bytes"):
            dist.recv(torch.ones(10), 0)
        got = torch.zeros(2000)
        dist.recv(got, 0)
        assert got.sum() == 2000

    run_ranks(body, 2)


def test_ranks_that_disagree() -> None:
    def body(rank: int, size: int) -> None:
        dist.all_reduce(torch.ones(3 + rank))

    with pytest.raises(RankFailed, match="rank 0 .*rank 1"):
        run_ranks(body, 2)


def test_dead_rank_is_named() -> None:
    def body(rank: int, size: int) -> float:
        dist.barrier()
        if rank == 1:
            import os

            os._exit(9)
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            for _ in range(1000):
                dist.all_reduce(torch.ones(1000))
        took = time.monotonic() - begin
        import os

        pipe_result = took
        return pipe_result

    results = run_ranks(body, 3, dying=(1,))
    assert all(took < 2 for took in results if took is not None)


def test_monitored_barrier() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.group.WORLD
        group.monitored_barrier(timedelta(seconds=20))
        if rank == 2:
            return
        with pytest.raises(RuntimeError, match="2 failed to pass|timeout|Timeout|wait"):
            group.monitored_barrier(timedelta(seconds=0.3))

    run_ranks(body, 3)


def test_wait_with_timeout() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            work = dist.all_reduce(torch.ones(3), async_op=True)
            with pytest.raises(dist.DistBackendError, match="all_reduce.*200 ms"):
                work.wait(timedelta(milliseconds=200))
            dist.send(torch.ones(1), 1)
            work.wait()
        else:
            dist.recv(torch.ones(1), 0)
            dist.all_reduce(torch.ones(3))

    run_ranks(body, 2)


def test_registered_memory() -> None:
    def body(rank: int, size: int) -> None:
        tensor = pith.torch.empty(3, 5)
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor)
        assert tensor.shape == (3, 5) and tensor.sum() == 45
        with pith.torch.registered_tensors():
            model = torch.nn.Linear(100, 100)
        dist.all_reduce(model.weight.data)
        grown = torch.ones(10)
        grown.resize_(20)

    run_ranks(body, 2)


def test_a_store_with_the_names_of_an_earlier_start(tmp_path: Path) -> None:
    """As torchrun leaves it: the ranks meet although the others come before rank 0."""

    def body(rank: int, size: int) -> None:
        dist.destroy_process_group()
        for _ in range(2):
            store = dist.FileStore(str(tmp_path / "store"), 100)
            if rank == 0:
                time.sleep(0.5)
            dist.init_process_group("pith", store=store, rank=rank, world_size=size)
            x = torch.ones(1)
            dist.all_reduce(x)
            assert x == size
            dist.destroy_process_group()

    run_ranks(body, 3)


PROGRAM_WITHOUT_AN_END = """
import time
import torch
import torch.distributed as dist
import pith.torch

def slow(done):
    time.sleep(1)
    print("callback ends", flush=True)

dist.init_process_group("pith", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3), async_op=True).get_future().then(slow)
"""


def test_exit_without_destroying_the_group() -> None:
    """The interpreter waits for the callbacks of calls that have begun."""
    command = [sys.executable, "-c", PROGRAM_WITHOUT_AN_END]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "callback ends\n"), done.stderr


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sparse_sums(size: int) -> None:
    """Common, different and no entries, with dense and sparse dimensions."""

    def body(rank: int, size: int) -> None:
        for shape in [(7,), (4, 5), (6, 2, 3)]:
            for sparse_dims in range(1, len(shape) + 1):
                for requires_grad in (False, True):
                    generator = torch.Generator().manual_seed(rank)
                    dense = torch.randn(shape, generator=generator)
                    dense[rank :: size + 1] = 0
                    expected = dense.clone()
                    dist.all_reduce(expected)
                    mine = dense.to_sparse(sparse_dims).requires_grad_(requires_grad)
                    dist.all_reduce(mine)
                    torch.testing.assert_close(mine.detach().to_dense(), expected)
        # Types that libpith adds and types that it only moves; more places than rows can have.
        for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.int16):
            entries = torch.arange(1, 5).to(dtype).reshape(2, 2)
            mine = torch.sparse_coo_tensor([[rank, 5]], entries, (6, 2))
            expected = mine.to_dense()
            dist.all_reduce(expected)
            dist.all_reduce(mine)
            assert torch.equal(mine.to_dense(), expected), dtype
        far = 1 << 40
        mine = torch.sparse_coo_tensor([[far], [rank]], [1.0], (far + 1, size))
        dist.all_reduce(mine)
        assert mine.indices().tolist() == [[far] * size, list(range(size))]
        nothing = torch.sparse_coo_tensor(size=(3, 3))
        dist.all_reduce(nothing)
        assert nothing._nnz() == 0
        with pytest.raises(ValueError, match="only ReduceOp.SUM for sparse"):
            dist.all_reduce(nothing, op=dist.ReduceOp.MAX)

    run_ranks(body, size)
