#!/usr/bin/env python3
"""Writes gradients of a training, as grace_lab.py and sparse_lab.py take them with --data.

    ENVIRONMENT/bin/python perf/train_gradients.py --out GRADIENTS

The model is that of tools/python/examples/ddp_transformer.py. Its workers are this process in turn:
at each step they compute at the same weights, each on its own samples, and the optimizer takes the
mean. Files are raw little-endian float32, one a worker and step; manifest.json lists them, and the
model's layers. ENVIRONMENT has PyTorch, and Pith with its backend.
"""
import argparse
import hashlib
import json
import pathlib
import sys

import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "tools" / "python" / "examples"
sys.path.insert(0, str(EXAMPLES))
import ddp_transformer as example  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=pathlib.Path, required=True, metavar="DIR", help="is made")
    add("--size", choices=example.SHAPES, default="small")
    add("--workers", type=int, default=4)
    add("--steps", type=int, nargs="+", default=[5, 400], help="whose gradients are written")
    return parser.parse_args()


def layers_of(model):
    offset = 0
    for name, parameter in model.named_parameters():
        yield {"name": name, "shape": list(parameter.shape), "offset": offset}
        offset += parameter.numel()


def gradient_of(model, sample):
    """Loss, and all gradients one after the other."""
    loss = example.loss_of(model, sample)
    return loss.item(), torch.cat([one.reshape(-1) for one in torch.autograd.grad(
        loss, list(model.parameters()))])


def written(options, step, worker, loss, gradient):
    """The manifest's entry of the file that is written here."""
    name = f"transformer.step{step:03}.worker{worker}.f32"
    data = gradient.numpy().astype("<f4").tobytes()
    (options.out / name).write_bytes(data)
    return {"step": step, "worker": worker, "loss": loss, "file": name, "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest()}


def train(options):
    """The task of the manifest."""
    torch.manual_seed(0)
    shape = example.SHAPES[options.size]
    model, text = example.Transformer(shape), example.read_text(1_000_000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generators = [torch.Generator().manual_seed(1 + worker) for worker in range(options.workers)]
    files = []
    for step in range(1, max(options.steps) + 1):
        total = 0
        for worker, generator in enumerate(generators):
            loss, gradient = gradient_of(model, example.pick(text, shape, generator))
            total = total + gradient / options.workers
            if step in options.steps:
                files.append(written(options, step, worker, loss, gradient))
        for parameter, part in zip(model.parameters(), total.split(
                [one.numel() for one in model.parameters()])):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
    return {"name": f"transformer-{options.size}", "count": total.numel(), "dtype": "float32",
            "stored_is_gradient_times": 1.0, "workers": options.workers,
            "layers": list(layers_of(model)), "snapshots": files}


def main():
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    manifest = {"format": 1, "torch": torch.__version__, "byte_order": "little",
                "tasks": [train(options)]}
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n",
                                               encoding="utf-8")


if __name__ == "__main__":
    main()
