"""Schemes beside their authors' programs, where those are in the folder of --programs, each under
its name at GitHub: ATOMO (hwang595), ChocoSGD (epfml), gtopkssgd (hclhkbu), and exdyna, micro and
deft (kljp; exdyna has all three, and CLT-k). They are called as they are, but that what they import
and do not need here (CUDA, MPI) is stood in for; ranks are threads. Checks are as in
without_chance.py. Equal magnitudes of gradients are made different: elections are unique."""
import contextlib
import importlib
import io
import sys
import types

import numpy as np
import torch

import pith

from both import relative, size_of
from other_programs import Missing
from rank_threads import MpiRank, PithRanks, World, on_threads

RANKS = 4
DENSITY = 0.01
ATOMS = 3  # on average, of a matrix
DRAWS = 4
STEPS = 8


@contextlib.contextmanager
def stood_in(modules):
    """For what a program imports; its own modules of that name are forgotten afterwards."""
    before = dict(sys.modules)
    sys.modules.update(modules)
    yield
    for name in set(sys.modules) - set(before) | set(modules):
        sys.modules.pop(name)
    sys.modules.update({name: before[name] for name in modules if name in before})


def loaded(folder, file, stand_ins, replaced=("", "")):
    """A file of a program as a module. `replaced`: what has become a syntax error, and its name
    of today."""
    if folder is None or not (folder / file).exists():
        raise Missing(f"{file} in the folder of --programs")
    root = (folder / file).parent
    source = (folder / file).read_text(encoding="utf-8").replace(*replaced)
    module = module_of(file, __package__=root.name)
    sys.path.insert(0, str(root))
    try:
        with stood_in(stand_ins):
            exec(compile(source, str(folder / file), "exec"), vars(module))
    finally:
        sys.path.remove(str(root))
    return module


def module_of(name, **contents):
    module = types.ModuleType(name)
    vars(module).update(contents)
    return module


def distinct(gradients, number=RANKS):
    """Of as many workers, without equal magnitudes but zeros."""
    draws = np.random.default_rng(0)
    return [(one * (1 + 2.0**-8 * draws.random(one.size))).astype("f4")
            for one in gradients.of_workers(number)]


def as_paper(values, budget):
    """Probabilities by algorithm 1 of [Wang et al. 2018]."""
    sure = 0
    while values[sure] * (budget - sure) > values[sure:].sum():
        sure += 1
    return np.append(np.ones(sure), values[sure:] * (budget - sure) / values[sure:].sum())


def matrices(gradients, rank):
    """Those that are worth factors: name, shape and place."""
    for _, shape, at in gradients.layers:
        rows, columns = shape[0], size_of(shape[1:])
        if 2 * rank * (rows + columns) < rows * columns:
            yield (rows, columns), slice(at, at + rows * columns)


def atomo(comm, gradients, folder):
    """With the singular vectors of a matrix a result tells which values are kept and what they are
    divided by, their probability."""
    stand_ins = {"codings": module_of("codings"), "codings.coding": module_of("", Coding=object),
                 "codings.utils": module_of("", nuclear_indicator=None, l1_indicator=None)}
    program = loaded(folder, "ATOMO/src/codings/svd.py", stand_ins, ("async=", "non_blocking="))
    theirs, x = program.SVD(rank=ATOMS), gradients.workers[0]
    compressor = pith.Compressor(f"atomo:rank={ATOMS}")
    compressor.set_shape([shape for _, shape, _ in gradients.layers])
    off, drawn_off, same, sums = 0, [], [], []
    for step in range(DRAWS):
        np.random.seed(step)
        result = comm.all_reduce(x, compressor=compressor)
        for shape, part in matrices(gradients, ATOMS):
            matrix = x[part].reshape(shape).astype("f8")
            left, values, right = np.linalg.svd(matrix, full_matrices=False)
            paper = as_paper(values, ATOMS)
            kept = np.einsum("ij,ij->j", left, result[part].reshape(shape) @ right.T)
            has = np.abs(kept) > values / 2
            off = max([off, *np.abs(values[has] / kept[has] / paper[has] - 1)])
            coded = theirs.encode(matrix)
            found = np.argmax(np.abs(left.T @ coded["u"]), axis=0)
            of_program = np.minimum(ATOMS * values / values.sum(), 1)
            drawn_off += [abs(values[i] / one / of_program[i] - 1)
                          for i, one in zip(found, coded["s"])]
            same.append(np.allclose(of_program, paper))
            sums.append(of_program.sum())
    assert off < 1e-3 and max(drawn_off) < 1e-6, (off, max(drawn_off))
    return (f"Pith's probabilities are the paper's within {off:.0e}; the authors' are the same in "
            f"{np.mean(same):.0%} of the matrices, and add up to {np.mean(sums):.2f} of {ATOMS}")


class ChocoRank:
    """A rank of the authors' optimizer: its own copy, and the sum of its neighbours' copies."""

    def __init__(self, program, rank, x, weights, gamma):
        self.program, self.rank, self.weights, self.gamma = program, rank, weights, gamma
        self.x, zeros = self.buffer(x), np.zeros_like(x)
        self.hats = {rank: self.buffer(zeros), "memory": self.buffer(zeros)}
        coder = program.choco.CHOCOSparsificationCompressor
        self.coder = coder.__new__(coder)  # its constructor asks for CUDA
        vars(self.coder).update(comm_op="top_k", compress_ratio=1 - DENSITY, is_biased=True,
                                compressor_fn=program.choco.SparsificationCompressor(),
                                aggregator_fn=types.SimpleNamespace(complete_wait=lambda _: None))
        self.sync = {"flatten_params": self.x, "flatten_hat_params": self.hats[rank],
                     "original_shapes": [((x.size,), x.size)], "sync_reqs": None}

    def buffer(self, x):
        return self.program.choco.TensorBuffer([torch.from_numpy(x.copy())])

    def message(self):
        self.coder.compress(self.sync)
        return torch.cat([self.sync["flatten_selected_values"].buffer,
                          self.sync["flatten_selected_indices"].buffer])

    def take(self, messages):
        self.sync["synced_message"] = dict(enumerate(messages))
        self.sync["sycned_message_size"] = len(messages[self.rank])  # sic
        self.coder.uncompress(self.sync, self.hats, self.weights)
        self.program.utils.update_params_from_neighbor(self.hats, self.x, self.gamma, self.rank)
        return self.x.buffer.numpy()


def choco_program(folder):
    """Its modules import each other by their full names."""
    if folder is None or not (folder / "ChocoSGD").exists():
        raise Missing("ChocoSGD in the folder of --programs")
    sys.path.insert(0, str(folder / "ChocoSGD/dl_code"))
    try:
        with stood_in({"bit2byte": module_of("bit2byte")}):
            return types.SimpleNamespace(
                choco=importlib.import_module("pcode.optim.parallel_choco"),
                utils=importlib.import_module("pcode.optim.utils"))
    except ImportError as error:
        raise Missing(error.name) from error
    finally:
        sys.path.pop(0)


def choco(_, gradients, folder):
    """A ring, whose ranks have a third of a weight each. The authors change a vector by what is
    known before a step's messages, and so in the next step: here both do it after them."""
    program, gamma = choco_program(folder), 0.1
    vectors = distinct(gradients)
    theirs = [ChocoRank(program, rank, x, dict.fromkeys(
        sorted({(rank + step) % RANKS for step in (-1, 0, 1)}), 1 / 3), gamma)
        for rank, x in enumerate(vectors)]
    ranks = PithRanks(RANKS, f"choco:density={DENSITY},graph=ring,gamma={gamma}")
    mine, most = vectors, 0
    for _ in range(STEPS):
        mine = ranks(mine)
        messages = [rank.message() for rank in theirs]
        for rank, x, start in zip(theirs, mine, vectors):
            most = max(most, np.linalg.norm(rank.take(messages) - x) / np.linalg.norm(x - start))
    ranks.finalize()
    assert most < 1e-4, most
    return f"{STEPS} steps of {RANKS} ranks: the same changes within {most:.0e}"


def largest(x, k):
    """Indices, of equal magnitudes the lowest."""
    return np.argsort(-np.abs(x), kind="stable")[:k]


def gtopk(_, gradients, folder):
    """One call, in which nothing is left over from others."""
    numpy_of_then = types.SimpleNamespace(**vars(np) | {"int": int})
    mpi = types.SimpleNamespace(
        FLOAT=None, BYTE=types.SimpleNamespace(Create_contiguous=lambda _: types.SimpleNamespace(
            Commit=lambda: None)), _typedict={}, COMM_WORLD=None)
    program = loaded(folder, "gtopkssgd/allreducer.py",
                     {"mpi4py": module_of("mpi4py", MPI=mpi)})
    program.np = program.utils.np = numpy_of_then
    vectors, world = distinct(gradients), World(RANKS)
    k = int(vectors[0].size * DENSITY)

    def call(rank):
        indices = largest(vectors[rank], k)
        values, found, _ = program.gtopk_sparse_allreduce(
            MpiRank(world, rank), vectors[rank][indices], {}, indices.astype("i8"))
        result = np.zeros_like(vectors[rank])
        result[found.astype("i8")] = values / RANKS
        return result
    ranks = PithRanks(RANKS, f"gtopk:density={DENSITY},bypass=never")
    mine, theirs = ranks(vectors)[0], on_threads(RANKS, call)
    ranks.finalize()
    assert all((one == theirs[0]).all() for one in theirs)
    both = np.count_nonzero((mine != 0) & (theirs[0] != 0))
    assert both == np.count_nonzero(mine) == np.count_nonzero(theirs[0]) == k, both
    off = relative(mine, theirs[0])
    assert off < 1e-6, off
    return f"of {RANKS} ranks the same {k} elements, sums within {off:.0e}"


def reducer_of(program, name, world, density):
    """Without its constructor's 2^27 numbers, of which these reducers use none."""
    def start(self, *_):
        self.n_workers, self.rank = world.get_world_size(), world.get_rank()
        self.device, self.timer = "cpu", lambda *_, **__: contextlib.nullcontext()
    program.Reducer.__init__ = start
    return getattr(program, name)(0, "cpu", None, density)


def parts_of(x, gradients, layers):
    if not layers:
        return [torch.from_numpy(x.copy())]
    return [torch.from_numpy(x[at:at + size_of(shape)].copy()) for _, shape, at in gradients.layers]


def reduced(name, spec, layers=False, scale=1):
    """Results and residuals of some steps. Gradients times `scale` elect in every partition:
    where one elects nothing the authors take one element of it, and Pith none."""
    def check(_, gradients, folder):
        program = loaded(folder, "exdyna/cnn-lstm/gradient_reducers.py", {})
        world = World(RANKS)
        program.torch = types.SimpleNamespace(**vars(torch) | {"distributed": world})
        vectors = [one * np.float32(scale) for one in distinct(gradients)]
        turns = [[vectors[(rank + step) % RANKS] for rank in range(RANKS)]
                 for step in range(STEPS)]

        def run(rank):
            world.enter(rank)
            reducer = reducer_of(program, name, world, DENSITY)
            residual, steps = np.float32(0), []
            for turn in turns:
                into = parts_of(turn[rank] + residual, gradients, layers)
                out, memory = list(into), list(into)
                reducer.reduce(into, out, memory)
                result, residual = (torch.cat([one.reshape(-1) for one in many]).numpy()
                                    for many in (out, memory))
                steps.append((result, residual.copy()))
            return steps
        with contextlib.redirect_stdout(io.StringIO()):
            theirs = on_threads(RANKS, run)
        sizes = [size_of(shape) for _, shape, _ in gradients.layers] if layers else None
        ranks = PithRanks(RANKS, f"{spec},density={DENSITY},bypass=never", sizes)
        most, elected = 0, []
        for step, turn in enumerate(turns):
            mine = ranks(turn)[0]
            expected = theirs[0][step][0]
            differ = np.count_nonzero((mine != 0) != (expected != 0))
            assert differ == 0, f"step {step}: {differ} elections, {np.count_nonzero(mine)}"
            most = max(most, relative(mine, expected))
            for rank, residual in enumerate(ranks.residuals()):
                most = max(most, relative(residual, theirs[rank][step][1]))
            elected.append(np.count_nonzero(mine) / mine.size / DENSITY)
        ranks.finalize()
        assert most < 1e-6, most
        return (f"{STEPS} steps of {RANKS} ranks: the same elections, {min(elected):.2f} to "
                f"{max(elected):.2f} k; sums and residuals within {most:.0e}")
    return check


CHECKS = {"atomo": atomo, "choco": choco, "gtopk": gtopk,
          "exdyna": reduced("ExDynaReducer", "exdyna:rule=released"),
          "micro": reduced("MicroReducer", "micro:rule=released"),
          "deft": reduced("DeftReducer", "deft:reduction=direct", layers=True),
          "clt-k": reduced("CLTKReducer", "clt-k:reduction=direct")}
