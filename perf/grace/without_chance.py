"""Schemes that draw nothing: equal elections and values, over steps with error feedback.

Each check compares results of Pith with GRACE's for the same gradient plus residual, and returns
what it has found; an AssertionError is a difference that no definition explains."""
import numpy as np
import torch

from both import BLOCK, DENSITY, MOMENTUM, RANK, SCHEMES, VALUE, grace_class, relative, size_of

STEPS = 4


def steps(comm, scheme, gradients, number=STEPS):
    """Of each step: gradient plus residual, and Pith's result."""
    compressor = scheme.pith(gradients)
    residual = np.float32(0)
    for step in range(number):
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


def onebit(comm, gradients):
    """GRACE's means are those of the tensor: each of Pith's blocks is a tensor for it."""
    grace = SCHEMES["onebit"].grace(gradients)
    most = 0
    for total, mine in steps(comm, SCHEMES["onebit"], gradients):
        theirs = np.concatenate([grace(total[at:at + BLOCK])
                                 for at in range(0, total.size, BLOCK)])
        has = theirs != 0
        assert (mine[~has] == 0).all()
        most = max(most, np.abs(mine[has] / theirs[has] - 1).max())
    assert most < 1e-5, most
    return f"same signs, zeros among the positive ones; means of blocks within {most:.0e}"


def signum(comm, gradients):
    """GRACE's momentum begins with the first gradient, not with its tenth part: it gets a gradient
    of zeros before. What Pith keeps is MOMENTUM / (1 - MOMENTUM) times it. Signs are compared where
    momenta are not zero but for rounding."""
    scheme = SCHEMES["signum"]
    grace, compressor = scheme.grace(gradients), scheme.pith(gradients)
    grace(np.zeros_like(gradients.workers[0]))
    most = 0
    for step in range(STEPS):
        x = gradients.workers[step % 2]
        mine, theirs = comm.all_reduce(x, compressor=compressor), grace(x)
        momentum = grace.compressor.momentums["x"].numpy()
        held = compressor.residual() * np.float32((1 - MOMENTUM) / MOMENTUM)
        most = max(most, np.abs(held - momentum).max() / np.abs(momentum).max())
        clear = np.abs(momentum) > 1e-6 * np.abs(x)
        assert (mine == theirs)[clear].all() and (np.abs(mine) == 1).all()
    assert most < 1e-6, most
    return f"same signs, but of zeros; momenta within {most:.0e} of the largest one"


def threshold(comm, gradients):
    """The threshold is below the largest element, which GRACE takes instead if it is less."""
    grace = SCHEMES["threshold"].grace(gradients)
    elected = []
    for total, mine in steps(comm, SCHEMES["threshold"], gradients):
        assert total.max() > VALUE and (mine == grace(total)).all()
        elected.append(np.count_nonzero(mine) / mine.size)
    shares = ", ".join(f"{share:.2%}" for share in elected)
    return f"same elements and values; elected in {STEPS} steps: {shares}"


def nested(few, many, total):
    """Whether the shorter one of two elections by magnitude is part of the longer one, but for
    equal magnitudes."""
    few, many = sorted((few, many), key=np.size)
    others = np.abs(total[np.setdiff1d(few, many)])
    return few.size > 0 and (others <= np.abs(total[many]).min()).all()


def dgc(comm, gradients):
    """GRACE finds a threshold in a sample, so that it elects within 30 % of k: its memory goes on
    with what Pith has elected."""
    scheme = SCHEMES["dgc"]
    elects, compressor = scheme.grace(gradients).compressor, scheme.pith(gradients)
    memory = grace_class("dgc", "DgcMemory", "memory")(MOMENTUM, None, 1)
    torch.manual_seed(0)
    most, ratios = 0, []
    for step in range(STEPS):
        x = gradients.workers[step % 2]
        mine = comm.all_reduce(x, compressor=compressor)
        total = memory.compensate(torch.from_numpy(x.copy()), "x")
        (_, theirs), _ = elects.compress(total, "x")
        elected = np.flatnonzero(mine)
        assert elected.size == int(x.size * DENSITY)
        assert nested(elected, theirs.numpy(), total.numpy()), f"step {step}"
        most = max(most, relative(mine[elected], total.numpy()[elected]))
        memory.update(None, "x", elects, None, (x.shape, torch.from_numpy(mine != 0), x.size))
        most = max(most, relative(compressor.residual(), memory.gradients["x"].numpy()))
        ratios.append(theirs.numel() / elected.size)
    assert most < 1e-6, most
    return ("momentum and residual within "
            f"{most:.0e}; GRACE elects {min(ratios):.2f} to {max(ratios):.2f} k, of Pith's elements"
            " or all of them")


def fp16(comm, gradients):
    """A third of the gradients, so that they have more digits. Pith's blocks have a scale, so that
    what float16 rounds to fewer digits, or to zero, keeps eleven."""
    x = gradients.workers[0] / np.float32(3)
    mine = comm.all_reduce(x, compressor=SCHEMES["fp16"].pith(gradients))
    theirs = SCHEMES["fp16"].grace(gradients)(x)
    normal = np.abs(x) >= 2.0**-14
    assert (mine == theirs)[normal].all() and (np.abs(mine - x) <= np.abs(theirs - x)).all()
    lost = [np.mean((coded == 0) & (x != 0)) for coded in (mine, theirs)]
    errors = [relative(coded, x) for coded in (mine, theirs)]
    return (f"same numbers from 2^-14 on ({normal.mean():.0%}); become zero: {lost[0]:.2%}, with "
            f"GRACE {lost[1]:.2%}; errors {errors[0]:.1e}, {errors[1]:.1e}")


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


CHECKS = {"topk": topk, "threshold": threshold, "dgc": dgc, "sign": sign, "signum": signum,
          "efsign": efsign, "onebit": onebit, "16 bits": bits_16, "fp16": fp16,
          "powersgd": powersgd}
