// How a function of NCCL is defined: the name with a p in front is the strong one, and the plain
// name a weak alias of it, so that a tool can put its own in front and call ours.
#pragma once

#include "nccl/abi.h"

#define NCCL_EXPORT(result, name, parameters)                                  \
  extern "C" __attribute__((visibility("default"))) result p##name parameters; \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name)))    \
  result name parameters;                                                      \
  result p##name parameters
