"""Schemes that draw: right on average, with the variance that rounding to neighbours has.

Both round a magnitude a to one of its neighbours lo and hi, so that results are right on average:
hi with probability (a - lo) / (hi - lo), with a variance of (a - lo) (hi - a). Three figures, in
standard errors of these distributions, tell whether they do: `along`, the mean error along the
gradient; `mean`, the squares of all elements' mean errors, which also grow if draws of different
elements or steps hang together; `variance`, that of single results."""
import contextlib

import numpy as np
import torch

import pith

from both import BUCKET, DENSITY, SCHEMES, relative
from other_programs import Missing, tensorflow_of_grace

MOST = 4.5  # standard errors


def levels(x, scales, last):
    """Of each bucket: its scale's multiples by 1 / last."""
    step = np.repeat(scales / last, BUCKET)[:x.size]
    below = np.divide(np.abs(x), step, out=np.zeros(x.size), where=step > 0)
    # The scale is a float32 of its own arithmetic: what is next to a level is that level.
    level = np.where(np.abs(below - np.rint(below)) < 1e-5, np.rint(below), below)
    return x, np.floor(level) * step, np.ceil(level) * step


def buckets(x):
    return np.abs(np.append(x, np.zeros(-x.size % BUCKET))).reshape(-1, BUCKET)


def by_largest(last):
    return lambda x: levels(x, buckets(x).max(axis=1), last)


def by_norm(last):
    return lambda x: levels(x, np.linalg.norm(buckets(x), axis=1), last)


def clipped(x):
    """TernGrad's."""
    most = 2.5 * x.std()
    x = np.clip(x, -most, most)
    return x, np.zeros(x.size), np.where(x == 0, 0, np.abs(x).max())


def clipped_by_block(x):
    """Pith's terngrad, whose deviation is about zero."""
    parts = buckets(x)
    lengths = np.minimum(x.size - BUCKET * np.arange(len(parts)), BUCKET)
    square = (parts**2).sum(axis=1) / lengths
    most = np.minimum(2.5 * np.sqrt(square), parts.max(axis=1))
    most = np.repeat(most, BUCKET)[:x.size]
    return np.clip(x, -most, most), np.zeros(x.size), np.where(x == 0, 0, most)


def powers(x):
    fraction, exponent = np.frexp(np.abs(x))
    low = np.ldexp(np.where(x == 0, 0, 0.5), exponent)
    return x, low, np.where(fraction == 0.5, low, 2 * low)


def qsgd_bound(last):
    """[Alistarh et al. 2017], lemma 3.1, by bucket; that of 2-norms holds for largest magnitudes,
    too, which are less."""
    return min(BUCKET / last**2, BUCKET**0.5 / last)


# What results are right on average for, its neighbours below and above; the bound of the variance.
RULES = {"qsgd 8": (by_largest(127), by_norm(127), qsgd_bound(127)),
         "qsgd 4": (by_largest(7), by_norm(7), qsgd_bound(7)),
         "ternary": (by_largest(1), clipped, qsgd_bound(1)),
         "terngrad": (clipped_by_block, clipped, qsgd_bound(1)),
         "natural": (powers, powers, 1 / 8)}  # [Horvath et al. 2019], theorem 1


def scores(draw, rule, gradient, draws):
    x, low, high = rule(gradient.astype("f8"))
    a, gap = np.abs(x), high - low
    variance = np.maximum((a - low) * (high - a), 0)
    fourth = gap**2 * variance - 3 * variance**2  # moment, of two values
    total, squares = np.zeros(x.size), []
    for number in range(draws):
        error = draw(number) - x
        total += error
        squares.append(error @ error)
    mean = total / draws
    of_mean = (fourth - 3 * variance**2) / draws**3 + 2 * variance**2 / draws**2
    return {"along": (x @ mean) / np.sqrt(x * x @ variance / draws),
            "mean": (mean @ mean - variance.sum() / draws) / np.sqrt(of_mean.sum()),
            "variance": (np.mean(squares) - variance.sum()) /
            np.sqrt((fourth - variance**2).sum() / draws),
            "over_squares": np.mean(squares) / (x @ x), "clipped": relative(x, gradient)}


def drawn_by_pith(comm, scheme, gradients, x):
    """One seed's steps."""
    compressor = scheme.pith(gradients)
    return lambda number: comm.all_reduce(x, compressor=compressor)


def drawn_by_grace(scheme, gradients, x):
    grace = scheme.grace(gradients)

    def draw(number):
        torch.manual_seed(number)
        return grace(x)
    return draw


def check(comm, name, gradients, draws):
    """The figures of both. Whether they are right is in `ok`."""
    rule_of_pith, rule_of_grace, bound = RULES[name]
    scheme, x = SCHEMES[name], gradients.workers[0]
    found = {"pith": scores(drawn_by_pith(comm, scheme, gradients, x), rule_of_pith, x, draws),
             "grace": scores(drawn_by_grace(scheme, gradients, x), rule_of_grace, x, draws)}
    for one in found.values():
        one["bound"] = bound
        one["ok"] = one["over_squares"] <= bound and all(
            abs(one[what]) <= MOST for what in ("along", "mean", "variance"))
    return found


def adapsparse():
    """GRACE's Wangni for TensorFlow, of its first release (106e3de) and not since f0db522:
    git checkout 106e3de -- grace_dl/tensorflow/compressor/adapsparse.py brings it back."""
    compressor, tensorflow = tensorflow_of_grace("adapsparse", "AdapSparseCompressor", DENSITY)

    def draw(x):
        compressed, shape = compressor.compress(tensorflow.constant(x))
        return compressor.decompress(compressed, shape).numpy()
    return draw


def wangni(comm, gradients, draws):
    """[Wangni et al. 2018]: a magnitude from a certain one on is sure, one below becomes it or
    zero, so that it is the least of a result. How many of the k elements are drawn on average is in
    `drawn`. The figures of both, or of Pith alone and what is missing for the other."""
    x = gradients.workers[0]
    compressor = pith.Compressor(f"wangni:density={DENSITY},bypass=never")
    found = {"pith": scores_of_wangni(
        lambda _: comm.all_reduce(x, compressor=compressor), x, draws)}
    with contextlib.suppress(Missing):
        draw = adapsparse()
        found["grace"] = scores_of_wangni(lambda _: draw(x), x, draws)
    return found


def scores_of_wangni(draw, x, draws):
    first = draw(0)
    sure = np.abs(first[first != 0]).min().astype("f8")

    def rule(x):
        a = np.abs(x)
        return x, np.where(a < sure, 0, a), np.maximum(a, sure)
    one = scores(draw, rule, x, draws)
    one["drawn"] = np.minimum(np.abs(x.astype("f8")) / sure, 1).sum() / (DENSITY * x.size)
    one["ok"] = abs(one["drawn"] - 1) < 0.01 and all(
        abs(one[what]) <= MOST for what in ("along", "mean", "variance"))
    return one


def seeds(comm, gradients):
    """Different seeds must not draw alike, in any step: the largest correlation of the errors of
    two seeds' steps."""
    x, errors = gradients.workers[0], []
    for seed in range(3):
        compressor = SCHEMES["qsgd 4"].pith(gradients, seed=seed)
        errors += [comm.all_reduce(x, compressor=compressor) - x for _ in range(3)]
    correlations = np.corrcoef(errors) - np.eye(len(errors))
    pair = np.unravel_index(np.argmax(np.abs(correlations)), correlations.shape)
    first, second = (f"seed {one // 3}, step {one % 3}" for one in sorted(pair))
    most = correlations[pair]
    return {"most": float(most), "ok": bool(abs(most) < 0.1),
            "text": f"pith  {first} and {second} correlate most, by {most:.3f}"}


def randomk(comm, gradients, draws):
    """Values are the gradient's; how many elements of the k are different ones; how far the mean,
    over the share of elements that a draw has, is from the gradient along it."""
    scheme, x = SCHEMES["randomk"], gradients.workers[0]
    k = int(x.size * DENSITY)
    squares = x.astype("f8")**2
    found = {}
    # GRACE seeds PyTorch's generator itself, by the name and a counter of its calls.
    for who, draw in (("pith", drawn_by_pith(comm, scheme, gradients, x)),
                      ("grace", scheme.grace(gradients))):
        distinct, along = [], []
        for number in range(draws):
            result = draw(number) if who == "pith" else draw(x)
            has = result != 0
            assert (result[has] == x[has]).all(), who
            distinct.append(np.count_nonzero(has) / np.mean(x != 0) / k)
            along.append(squares[has].sum())
        share = DENSITY if who == "pith" else 1 - (1 - 1 / x.size)**k
        deviation = np.sqrt(share * (squares**2).sum() / draws)
        found[who] = {"distinct": np.mean(distinct),
                      "along": (np.mean(along) - share * squares.sum()) / deviation}
        found[who]["ok"] = abs(found[who]["along"]) <= MOST
    return found
