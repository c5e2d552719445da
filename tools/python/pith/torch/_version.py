"""Refuses a PyTorch for which the module was not built."""

from __future__ import annotations

import torch

try:
    from pith.torch import _built_for
except ImportError as error:
    raise ImportError("this package pith was built without its part for PyTorch") from error


def check_version() -> None:
    """PyTorch's C++ interface differs between versions, and a wrong one fails in obscure ways."""
    built, found = _built_for.torch_version, torch.__version__
    if built.split("+")[0] != found.split("+")[0]:
        raise ImportError(
            f"this pith.torch was built for PyTorch {built}, but PyTorch {found} is installed"
        )
