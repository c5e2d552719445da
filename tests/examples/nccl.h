/* In place of NVIDIA's header, so that the example compiles where that is not installed. */
#pragma once

#include "nccl/abi.h"
