"""Tells CMake where the PyTorch of this interpreter is, and how to build for it."""

import os
import sysconfig

import torch

print(
    os.path.dirname(torch.__file__),
    torch.__version__,
    sysconfig.get_path("include"),
    sysconfig.get_config_var("EXT_SUFFIX"),
    int(torch.compiled_with_cxx11_abi()),
    sep=";",
)
