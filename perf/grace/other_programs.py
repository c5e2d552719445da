"""Schemes that GRACE has for TensorFlow only, or not at all: beside its TensorFlow compressors, the
program of SIDCo's authors (github.com/sands-lab/SIDCo), and bitsandbytes, which has Dettmers's map
today. Checks are as in without_chance.py; one whose program is missing says so."""
import importlib
import math
import os
import sys

import numpy as np
import torch

import pith

from both import DENSITY, relative
from without_chance import nested, steps

STEPS_OF_SIDCO = 60
DYNAMIC_BLOCK = BLOCK_OF_8_BITS = 256


class Missing(Exception):
    """Which program."""


class Spec:
    """As both.Scheme, of Pith alone."""

    def __init__(self, spec):
        self.spec = spec

    def pith(self, _):
        return pith.Compressor(self.spec)


def tensorflow_of_grace(module, name, *arguments):
    """A compressor; TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        tensorflow = importlib.import_module("tensorflow")
        importlib.import_module("tensorflow_probability")
    except ImportError as error:
        raise Missing(error.name) from error
    tensorflow.random.set_seed(0)
    found = getattr(importlib.import_module(f"grace_dl.tensorflow.compressor.{module}"), name)
    return found(*arguments), tensorflow


def adaptive(comm, gradients, _):
    """AdaQ takes a part of each sign's elements, by a threshold from a sample, which is good enough
    if it elects 0.8 to 1.25 times as many; Pith the k/2 largest of each sign."""
    theirs, tensorflow = tensorflow_of_grace("adaq", "AdaqCompressor", DENSITY)
    scheme = Spec(f"adaptive:density={DENSITY},bypass=never")
    most, ratios = 0, []
    for total, mine in steps(comm, scheme, gradients):
        sent, = theirs.compress(tensorflow.constant(total), "x")[0]
        sent = sent.numpy()
        means, positive = sent[:2].view("f4"), sent[3:3 + sent[2]]
        for mean, elected, sign in zip(means, (positive, sent[3 + sent[2]:]), (1, -1)):
            ours = np.flatnonzero(sign * mine > 0)
            assert ours.size == (int(total.size * DENSITY) + 1) // 2
            assert nested(ours, elected, total)
            for found, indices in ((mine[ours[0]], ours), (mean, elected)):
                most = max(most, abs(found / total[indices].mean(dtype="f8") - 1))
            ratios.append(elected.size / ours.size)
    assert most < 1e-5, most
    return (f"means of what is elected within {most:.0e}; GRACE elects {min(ratios):.2f} to "
            f"{max(ratios):.2f} times as many of a sign, of Pith's elements or all of them")


def published_map():
    try:
        functional = importlib.import_module("bitsandbytes.functional")
    except ImportError as error:
        raise Missing(error.name) from error
    return functional.create_dynamic_map().numpy()


def dynamic_map(comm, gradients, _):
    """All numbers of the map as one block come back as they are; each value of a gradient becomes
    the nearest one of the map times the largest magnitude of its block."""
    numbers = published_map()
    spec = f"int8:map=dynamic,block={DYNAMIC_BLOCK}"
    mine = comm.all_reduce(numbers, compressor=pith.Compressor(spec))
    used = numbers != 0
    off = np.abs(mine[used] / numbers[used] - 1).max()
    assert numbers.size == np.unique(mine).size == 256 and off < 1e-6 and (mine[~used] == 0).all()
    x = gradients.workers[0]
    x = x[:x.size // DYNAMIC_BLOCK * DYNAMIC_BLOCK]
    coded = comm.all_reduce(x, compressor=pith.Compressor(spec))
    largest = np.repeat(np.abs(x).reshape(-1, DYNAMIC_BLOCK).max(axis=1), DYNAMIC_BLOCK)
    part = np.divide(x, largest, out=np.zeros(x.size), where=largest > 0)
    above = np.searchsorted(numbers, part).clip(1, 255)
    nearest = np.minimum(np.abs(part - numbers[above]), np.abs(part - numbers[above - 1]))
    excess = (np.abs(coded.astype("f8") - x) - nearest * largest)[largest > 0]
    excess = (excess / largest[largest > 0]).max()
    assert excess < 1e-6, excess
    return f"the same 256 numbers, within {off:.0e}; each value becomes the nearest"


def u8bit(comm, gradients, _):
    """GRACE's own table of the magnitudes; see small_inputs.py for what becomes of the others."""
    theirs, tensorflow = tensorflow_of_grace("u8bit", "U8bitCompressor")
    codes = tensorflow.constant(np.arange(1, 128, dtype="i1"))
    table = theirs.decompress((codes, tensorflow.constant([1.0])), codes.shape).numpy()
    through = np.append(table, np.float32(1))  # so that this block's largest is one
    mine = comm.all_reduce(through, compressor=pith.Compressor("int8:map=dynamic"))
    off = np.abs(mine / through - 1)[:-1]
    assert np.median(off) < 0.05
    return (f"GRACE's table is another one: its numbers are {np.median(off):.1%} from the nearest "
            f"of Dettmers's, {off.max():.0%} at most")


def blocks(x, last):
    """Whole ones; the scale of each, by the largest magnitude, that makes it the last number."""
    x = x[:x.size // BLOCK_OF_8_BITS * BLOCK_OF_8_BITS].reshape(-1, BLOCK_OF_8_BITS)
    largest = np.abs(x).max(axis=1, keepdims=True)
    last = np.float32(last)
    return x[largest[:, 0] > 0], (largest / last)[largest > 0], (last / largest[largest > 0])


def of_blocks(comm, x, spec):
    spec += f"{',' if ':' in spec else ':'}block={BLOCK_OF_8_BITS}"
    return comm.all_reduce(x.ravel(), compressor=pith.Compressor(spec)).reshape(x.shape)


def fp8(comm, gradients, _):
    """PyTorch's conversions of the block's values times 448 or 57,344 over its largest one."""
    for kind, last in ((torch.float8_e4m3fn, 448), (torch.float8_e5m2, 57344)):
        x, scales, factors = blocks(gradients.workers[0], last)
        coded = torch.from_numpy(x * factors[:, None]).to(kind).float().numpy()
        name = "e5m2" if last == 57344 else "e4m3"
        mine = of_blocks(comm, x, f"fp8:format={name}")
        assert (mine == coded * scales[:, None]).all(), name
    return "the same bits as PyTorch's float8_e4m3fn and float8_e5m2, blocks' scales the same"


def int8(comm, gradients, _):
    """PyTorch multiplies by the inverse of the rounded scale, Pith divides 127 by the largest
    magnitude: what lies half between two numbers may become either."""
    x, scales, factors = blocks(gradients.workers[0], 127)
    mine = of_blocks(comm, x, "int8")
    assert (mine == np.rint(x * factors[:, None]) * scales[:, None]).all()
    theirs = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(x), torch.from_numpy(scales), torch.zeros(scales.size, dtype=torch.int32),
        0, -127, 127).numpy()
    level = np.abs(x * factors[:, None].astype("f8"))
    halfway = np.abs(level - np.floor(level) - 0.5) < 1e-4
    assert (np.abs(mine - theirs) <= 1e-6 * np.abs(mine))[~halfway].all()
    differ = np.mean(np.abs(mine - theirs) > 1e-6 * np.abs(mine))
    return (f"the same numbers as PyTorch's quantiser per channel, but {differ:.1e} of the "
            "elements, which lie half between two")


def authors_of_sidco(folder):
    if folder is None:
        raise Missing("--sidco")
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("compression")
    except ImportError as error:
        raise Missing(error.name) from error
    finally:
        sys.path.remove(str(folder))


def sidco(law, name):
    """Each of Pith's calls elects what the authors' program does with one of the numbers of stages
    that it allows. How that number changes is different, see stage_control.hpp: beside it, how near
    to k both come."""
    def check(comm, gradients, folder):
        program = authors_of_sidco(folder)
        theirs = program.compressors[name]
        scheme = Spec(f"sidco:density={DENSITY},law={law},bypass=never")
        adapting = program.compressors[name + "ec"]
        adaptation = dict(cur_stages=1, update=1, iter=0, sum_ratio=0.0, last_estimate=0.0)
        for key, value in adaptation.items():
            setattr(program.NoneCompressor, key, value)
        k = int(gradients.workers[0].size * DENSITY)
        off, last, stages_seen = [], {"Pith": [], "authors": []}, set()
        for number, (total, mine) in enumerate(steps(comm, scheme, gradients, STEPS_OF_SIDCO)):
            elected, found = np.flatnonzero(mine), {}
            least = np.abs(total[elected]).min()
            for stages in range(1, math.ceil(-math.log2(DENSITY)) + 1):
                _, indices, _ = theirs.compress(torch.from_numpy(total.copy()), ratio=DENSITY,
                                                stages=stages)
                if indices.numel() > 0:
                    theirs_least = np.abs(total[indices.numpy()]).min()
                    found[abs(theirs_least / least - 1)] = stages, indices.numpy()
            off.append(min(found))
            stages, best = found[off[-1]]
            stages_seen.add(stages)
            assert nested(elected, best, total), f"step {number}"
            x = torch.from_numpy(gradients.workers[number % 2].copy())
            _, indices, _ = adapting.compress(x, name="x", ratio=DENSITY, stages=-2)
            last["Pith"].append(elected.size / k)
            last["authors"].append(indices.numel() / k)
        adapting.clear()
        assert max(off) < 0.01, max(off)
        near = {who: np.mean(ratios[STEPS_OF_SIDCO // 2:]) for who, ratios in last.items()}
        return (f"thresholds within {max(off):.2%} of the authors' with {sorted(stages_seen)} "
                f"stages; steps {STEPS_OF_SIDCO // 2} to {STEPS_OF_SIDCO} elect {near['Pith']:.2f}"
                f" k, by the authors' rule for stages {near['authors']:.2f} k")
    return check


CHECKS = {"fp8": fp8, "int8": int8, "adaptive": adaptive, "dynamic": dynamic_map, "u8bit": u8bit,
          "sidco": sidco("exponential", "exp"), "sidco gp": sidco("pareto", "gpareto")}
