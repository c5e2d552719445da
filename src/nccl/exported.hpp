// Defines an exported NCCL function: the name prefixed with p is strong, and the plain name is a
// weak alias, so that a tool can override it and call ours.
#pragma once

#include "nccl/abi.h"

#define NCCL_EXPORT(result, name, parameters)                                  \
  extern "C" __attribute__((visibility("default"))) result p##name parameters; \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name)))    \
  result name parameters;                                                      \
  result p##name parameters
