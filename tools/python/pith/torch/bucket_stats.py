"""What DDP's compressed gradients tell of themselves."""

from __future__ import annotations

from typing import Any

import torch

from pith.stats import CompressorStats

_WHOLE = {"calls", "count", "selected_local", "selected_union", "leader", "bytes_sent",
          "bytes_received", "nonfinite"}


def stats_of(compressor: Any) -> CompressorStats:
    """Of a GradientCompressor, whose numbers are all floats."""
    fields: dict[str, Any] = {
        name: int(value) if name in _WHOLE else value for name, value in compressor.stats().items()
    }
    fields["bypassed"] = bool(fields["bypassed"])
    return CompressorStats(**fields, algorithm=compressor.algorithm)


def tensor_densities(model: torch.nn.Module) -> dict[str, float]:
    """Which part of each gradient is not zero: after a compressed step, what any rank sent.

    Reads all gradients once, so it is for some steps, not for each.
    """
    return {
        name: float(torch.count_nonzero(parameter.grad)) / max(parameter.grad.numel(), 1)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
