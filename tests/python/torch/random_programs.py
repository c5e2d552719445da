"""Random programs of collectives and messages, with Gloo's results or plain sums as reference.

    random_programs.py [--ranks N] [--seeds FIRST:COUNT] [--calls N]

Prints the seed of a program that fails, which repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

import torch
import torch.distributed as dist

from ranks import run_ranks

Op = dist.ReduceOp
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
TYPES = INTEGERS + FLOATS + COMPLEX + [torch.bool]
COUNTS = [0, 1, 2, 3, 7, 32, 100, 1000, 4099, 70000]


def values(choice: random.Random, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(choice.getrandbits(31))
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    low = 0 if dtype == torch.uint8 else -2
    whole = torch.randint(low, 3, (2, count), generator=generator)
    if dtype.is_complex:
        return torch.complex(whole[0].double(), whole[1].double()).to(dtype)
    return whole[0].to(dtype)


def laid_out(choice: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """The same values, at times with gaps or turned."""
    kind = choice.choice(["packed", "packed", "gaps", "turned", "offset"])
    count = tensor.numel()
    if kind == "gaps":
        memory = torch.zeros(2 * count, dtype=tensor.dtype)[::2]
    elif kind == "turned" and count % 2 == 0 and count:
        memory = torch.zeros(count // 2, 2, dtype=tensor.dtype).t()
    elif kind == "offset":
        memory = torch.zeros(count + 1, dtype=tensor.dtype)[1:]
    else:
        return tensor.clone()
    memory.copy_(tensor.view(memory.shape))
    return memory


def operations_of(dtype: torch.dtype) -> list[Any]:
    if dtype == torch.bool:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
    if dtype.is_complex:
        return [Op.SUM, Op.AVG]
    if dtype.is_floating_point:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG]
    return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]


def reduced(rows: list[torch.Tensor], op: Any) -> torch.Tensor:
    result = rows[0].clone()
    for row in rows[1:]:
        if op in (Op.SUM, Op.AVG):
            result = result | row if row.dtype == torch.bool else result + row
        elif op == Op.PRODUCT:
            result = result & row if row.dtype == torch.bool else result * row
        elif op == Op.MIN:
            result = torch.minimum(result, row)
        elif op == Op.MAX:
            result = torch.maximum(result, row)
        elif op == Op.BAND:
            result = result & row
        elif op == Op.BOR:
            result = result | row
        else:
            result = result ^ row
    return result / len(rows) if op == Op.AVG else result


def check(name: str, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for found, expected in pairs:
        expected = expected.view(found.shape)
        if found.dtype in (torch.float16, torch.bfloat16):
            good = torch.allclose(found, expected.to(found.dtype), rtol=2e-2, atol=2e-2)
        elif found.dtype.is_floating_point or found.dtype.is_complex:
            good = torch.allclose(found, expected)
        else:
            good = torch.equal(found, expected)
        assert good, f"{name}: got {found}, expected {expected}"


class Program:
    """Calls that all ranks make alike: everything but a rank's own values follows the seed."""

    def __init__(self, seed: int, rank: int, size: int, calls: int) -> None:
        self.shared = random.Random(seed)
        self.own = [random.Random(1000 * seed + r) for r in range(size)]
        self.layout = random.Random(1000 * seed + 500 + rank)
        self.rank, self.size, self.calls = rank, size, calls
        self.pending: list[tuple[str, Any, list[tuple[torch.Tensor, torch.Tensor]]]] = []

    def run(self) -> None:
        kinds = [name[3:] for name in dir(self) if name.startswith("do_")]
        for _ in range(self.calls):
            kind = self.shared.choice(kinds)
            getattr(self, "do_" + kind)()
            if self.shared.random() < 0.3:
                self.settle()
        self.settle()

    def everybodys(self, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
        return [values(self.own[r], count, dtype) for r in range(self.size)]

    def draw(self) -> tuple[int, torch.dtype]:
        return self.shared.choice(COUNTS), self.shared.choice(TYPES)

    def expect(self, name: str, work: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Pairs of what a call writes and what is expected there when `work` has ended."""
        self.pending.append((name, work, pairs))
        if self.shared.random() < 0.5:
            self.settle()

    def settle(self) -> None:
        for name, work, pairs in self.pending:
            if work is not None:
                work.wait()
            check(name, pairs)
        self.pending.clear()

    def is_async(self) -> bool:
        return self.shared.random() < 0.5

    def laid(self, tensor: torch.Tensor) -> torch.Tensor:
        return laid_out(self.layout, tensor)

    def do_all_reduce(self) -> None:
        count, dtype = self.draw()
        op = self.shared.choice(operations_of(dtype))
        rows = self.everybodys(count, dtype)
        tensor = self.laid(rows[self.rank])
        work = dist.all_reduce(tensor, op=op, async_op=self.is_async())
        self.expect(f"all_reduce {op} {dtype} {count}", work, [(tensor, reduced(rows, op))])

    def do_reduce(self) -> None:
        count, dtype = self.draw()
        op = self.shared.choice(operations_of(dtype))
        root = self.shared.randrange(self.size)
        rows = self.everybodys(count, dtype)
        tensor = self.laid(rows[self.rank])
        work = dist.reduce(tensor, root, op=op, async_op=self.is_async())
        pairs = [(tensor, reduced(rows, op))] if root == self.rank else []
        self.expect(f"reduce {op} {dtype} {count}", work, pairs)

    def do_broadcast(self) -> None:
        count, dtype = self.draw()
        root = self.shared.randrange(self.size)
        rows = self.everybodys(count, dtype)
        tensor = self.laid(rows[self.rank])
        work = dist.broadcast(tensor, root, async_op=self.is_async())
        self.expect(f"broadcast {dtype} {count}", work, [(tensor, rows[root])])

    def do_all_gather(self) -> None:
        count, dtype = self.draw()
        rows = self.everybodys(count, dtype)
        outputs = [self.laid(torch.zeros_like(row)) for row in rows]
        work = dist.all_gather(outputs, self.laid(rows[self.rank]), async_op=self.is_async())
        self.expect(f"all_gather {dtype} {count}", work, list(zip(outputs, rows, strict=True)))

    def do_all_gather_uneven(self) -> None:
        dtype = self.shared.choice(TYPES)
        rows = [values(self.own[r], self.shared.choice(COUNTS), dtype) for r in range(self.size)]
        outputs = [torch.zeros_like(row) for row in rows]
        work = dist.all_gather(outputs, rows[self.rank], async_op=self.is_async())
        self.expect(f"all_gather uneven {dtype}", work, list(zip(outputs, rows, strict=True)))

    def do_all_gather_into_tensor(self) -> None:
        count, dtype = self.draw()
        rows = self.everybodys(count, dtype)
        output = torch.zeros(count * self.size, dtype=dtype)
        work = dist.all_gather_into_tensor(output, rows[self.rank], async_op=self.is_async())
        self.expect(f"all_gather_into_tensor {dtype} {count}", work, [(output, torch.cat(rows))])

    def do_reduce_scatter(self) -> None:
        count, dtype = self.draw()
        op = self.shared.choice(operations_of(dtype))
        rows = self.everybodys(count * self.size, dtype)
        output = self.laid(torch.zeros(count, dtype=dtype))
        inputs = list(rows[self.rank].split(count)) if count else [output] * self.size
        work = dist.reduce_scatter(output, inputs, op=op, async_op=self.is_async())
        expected = reduced(rows, op)[count * self.rank : count * (self.rank + 1)]
        self.expect(f"reduce_scatter {op} {dtype} {count}", work, [(output, expected)])

    def do_reduce_scatter_tensor(self) -> None:
        count, dtype = self.draw()
        op = self.shared.choice(operations_of(dtype))
        rows = self.everybodys(count * self.size, dtype)
        output = torch.zeros(count, dtype=dtype)
        work = dist.reduce_scatter_tensor(output, rows[self.rank], op=op, async_op=self.is_async())
        expected = reduced(rows, op)[count * self.rank : count * (self.rank + 1)]
        self.expect(f"reduce_scatter_tensor {op} {dtype} {count}", work, [(output, expected)])

    def do_gather(self) -> None:
        count, dtype = self.draw()
        root = self.shared.randrange(self.size)
        rows = self.everybodys(count, dtype)
        outputs = [torch.zeros_like(row) for row in rows] if root == self.rank else None
        work = dist.gather(self.laid(rows[self.rank]), outputs, dst=root, async_op=self.is_async())
        pairs = list(zip(outputs, rows, strict=True)) if outputs else []
        self.expect(f"gather {dtype} {count}", work, pairs)

    def do_scatter(self) -> None:
        count, dtype = self.draw()
        root = self.shared.randrange(self.size)
        rows = self.everybodys(count, dtype)
        output = self.laid(torch.zeros(count, dtype=dtype))
        work = dist.scatter(
            output, rows if root == self.rank else None, src=root, async_op=self.is_async()
        )
        self.expect(f"scatter {dtype} {count}", work, [(output, rows[self.rank])])

    def do_all_to_all(self) -> None:
        dtype = self.shared.choice(TYPES)
        counts = [[self.shared.choice(COUNTS) for _ in range(self.size)] for _ in range(self.size)]
        parts = [[values(self.own[s], counts[s][d], dtype) for d in range(self.size)]
                 for s in range(self.size)]
        outputs = [torch.zeros_like(parts[s][self.rank]) for s in range(self.size)]
        work = dist.all_to_all(outputs, parts[self.rank], async_op=self.is_async())
        expected = [parts[s][self.rank] for s in range(self.size)]
        self.expect(f"all_to_all {dtype}", work, list(zip(outputs, expected, strict=True)))

    def do_all_to_all_single(self) -> None:
        dtype = self.shared.choice(TYPES)
        even = self.shared.random() < 0.5
        same = self.shared.choice(COUNTS)
        counts = [[same if even else self.shared.choice(COUNTS) for _ in range(self.size)]
                  for _ in range(self.size)]
        parts = [[values(self.own[s], counts[s][d], dtype) for d in range(self.size)]
                 for s in range(self.size)]
        received = [counts[s][self.rank] for s in range(self.size)]
        output = torch.zeros(sum(received), dtype=dtype)
        splits = {} if even else {"output_split_sizes": received,
                                  "input_split_sizes": counts[self.rank]}
        work = dist.all_to_all_single(
            output, torch.cat(parts[self.rank]), async_op=self.is_async(), **splits
        )
        expected = torch.cat([parts[s][self.rank] for s in range(self.size)])
        self.expect(f"all_to_all_single {dtype}", work, [(output, expected)])

    def do_coalesced(self) -> None:
        dtype = self.shared.choice([torch.float32, torch.int64])
        rows = [self.everybodys(self.shared.choice(COUNTS), dtype) for _ in range(3)]
        tensors = [row[self.rank].clone() for row in rows]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        pairs = [(tensor, reduced(row, Op.SUM)) for tensor, row in zip(tensors, rows, strict=True)]
        self.expect("coalesced", manager, pairs)

    def do_barrier(self) -> None:
        dist.barrier()

    def do_object(self) -> None:
        things: list[Any] = [None] * self.size
        dist.all_gather_object(things, {"rank": self.rank, "text": "x" * self.rank})
        assert [thing["rank"] for thing in things] == list(range(self.size))

    def do_ring(self) -> None:
        if self.size == 1:
            return
        count, dtype = self.draw()
        rows = self.everybodys(count, dtype)
        got = self.laid(torch.zeros(count, dtype=dtype))
        left, right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        receive = dist.irecv(got, left)
        sent = dist.isend(self.laid(rows[self.rank]), right)
        self.expect(f"ring {dtype} {count}", receive, [(got, rows[left])])
        self.expect("ring send", sent, [])

    def do_tags(self) -> None:
        """Messages that are received in another order than they are sent."""
        if self.size == 1:
            return
        dtype = self.shared.choice(TYPES)
        tags = list(range(self.shared.randrange(1, 5)))
        order = self.shared.sample(tags, len(tags))
        count = [self.shared.choice(COUNTS) for _ in tags]
        rows = [values(self.own[0], count[tag], dtype) for tag in tags]
        if self.rank == 0:
            works = [dist.isend(rows[tag], 1, tag=tag) for tag in tags]
        elif self.rank == 1:
            for tag in order:
                got = torch.zeros_like(rows[tag])
                dist.recv(got, 0, tag=tag)
                check(f"tag {tag} of {tags} as {order}", [(got, rows[tag])])
        if self.rank == 0:
            for work in works:
                work.wait()

    def do_any_source(self) -> None:
        root = self.shared.randrange(self.size)
        tag = self.shared.choice([0, 7])
        rows = self.everybodys(self.shared.choice([1, 10, 5000]), torch.int64)
        if self.rank != root:
            dist.send(rows[self.rank], root, tag=tag)
            return
        seen = set()
        for _ in range(self.size - 1):
            got = torch.zeros_like(rows[0])
            source = dist.recv(got, tag=tag)
            assert torch.equal(got, rows[source]), f"any source: wrong data of rank {source}"
            seen.add(source)
        assert len(seen) == self.size - 1


def run_program(rank: int, size: int, seeds: list[int], calls: int) -> None:
    for seed in seeds:
        try:
            Program(seed, rank, size, calls).run()
        except Exception as error:
            raise AssertionError(f"--ranks {size} --seeds {seed}:1: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--seeds", default="1:3")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--backend", default="pith")
    args = parser.parse_args()
    first, count = (int(part) for part in args.seeds.split(":"))
    for size in [args.ranks] if args.ranks else [1, 2, 3, 4, 5]:
        seeds = list(range(first, first + count))
        run_ranks(run_program, size, seeds, args.calls, backend=args.backend)
        print(f"{size} ranks: {count} programs of {args.calls} calls agree", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
