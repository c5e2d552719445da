"""Schemes that draw nothing: equal elections and values, over steps with error feedback.

Each check compares results of Pith with GRACE's for the same gradient plus residual, and returns
what it has found; an AssertionError is a difference that no definition explains."""
import numpy as np
import torch

from both import BLOCK, DENSITY, RANK, SCHEMES, relative, size_of

STEPS = 4


def steps(comm, scheme, gradients, **keys):
    """Of each step: gradient plus residual, and Pith's result."""
    compressor = scheme.pith(gradients, **keys)
    residual = np.float32(0)
    for step in range(STEPS):
        x = gradients.workers[step % 2]
        yield x + residual, comm.all_reduce(x, compressor=compressor)
        residual = compressor.residual()


def topk(comm, gradients):
    """Where the two differ are magnitudes equal to the k-th, of which they may take any."""
    grace = SCHEMES["topk"].grace(gradients)
    tied = 0
    for total, mine in steps(comm, SCHEMES["topk"], gradients):
        theirs = grace(total)
        differ = np.flatnonzero(mine != theirs)
        kth = np.abs(theirs[theirs != 0]).min()
        assert np.count_nonzero(mine) == np.count_nonzero(theirs) == int(total.size * DENSITY)
        assert (np.abs(total[differ]) == kth).all(), f"elements {differ[:4]}"
        tied += differ.size // 2
    return f"same elements and values, but {tied} of equal magnitudes in {STEPS} steps"


def sign(comm, gradients):
    """Zero counts as +1 with GRACE, as either with Pith."""
    grace = SCHEMES["sign"].grace(gradients)
    for total, mine in steps(comm, SCHEMES["sign"], gradients):
        assert (mine == grace(total))[total != 0].all() and (np.abs(mine) == 1).all()
    return f"same signs, but of zeros ({np.mean(gradients.workers[0] == 0):.1%})"


def efsign(comm, gradients):
    """GRACE's scale is that of the tensor: each of Pith's blocks is a tensor for it."""
    grace = SCHEMES["efsign"].grace(gradients)
    most = 0
    for total, mine in steps(comm, SCHEMES["efsign"], gradients):
        theirs = np.concatenate([grace(total[at:at + BLOCK])
                                 for at in range(0, total.size, BLOCK)])
        assert (mine * theirs >= 0)[total != 0].all()
        has = theirs != 0
        most = max(most, np.abs(np.abs(mine[has] / theirs[has]) - 1).max())
    assert most < 1e-6, most
    return f"same signs, but of zeros; means of blocks within {most:.0e}"


def bits_16(comm, gradients):
    """bfloat16 and float16: each as PyTorch rounds."""
    x = gradients.workers[0]
    mine = comm.all_reduce(x, compressor=SCHEMES["16 bits"].pith(gradients))
    theirs = SCHEMES["16 bits"].grace(gradients)(x)
    assert (mine == torch.from_numpy(x).bfloat16().float().numpy()).all()
    assert (theirs == x.astype("f2").astype("f4")).all()
    lost = [np.mean((coded == 0) & (x != 0)) for coded in (mine, theirs)]
    return f"both round to the nearest; become zero: {lost[0]:.2%} in bf16, {lost[1]:.2%} in fp16"


def powersgd(comm, gradients):
    """From Pith's first right factor: the rows of the first result span it. Small matrices are
    sent as they are by Pith, not by GRACE."""
    grace = SCHEMES["powersgd"].grace(gradients)
    most = compared = 0
    for step, (total, mine) in enumerate(steps(comm, SCHEMES["powersgd"], gradients)):
        theirs = None if step == 0 else grace(total)
        for name, shape, at in gradients.layers:
            rows, columns = shape[0], size_of(shape[1:])
            part = slice(at, at + rows * columns)
            if 2 * RANK * (rows + columns) >= rows * columns:
                assert (mine[part] == total[part]).all(), name
            elif step == 0:
                spans = np.linalg.svd(mine[part].reshape(rows, columns).astype("f8"))[2][:RANK].T
                grace.compressor.q_memory[name] = torch.from_numpy(spans.astype("f4"))
            else:
                most = max(most, relative(mine[part], theirs[part]))
                compared += 1
    assert most < 1e-4, most
    return f"{compared // (STEPS - 1)} matrices, steps 2 to {STEPS}: same results within {most:.0e}"


CHECKS = {"topk": topk, "sign": sign, "efsign": efsign, "16 bits": bits_16, "powersgd": powersgd}
