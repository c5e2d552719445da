// Driver API functions that only the probes use, in addition to cuda/driver_api.hpp. Looked up by
// name: a driver, or a stub, may lack any of them. facts_abi_check.cpp compares this with cuda.h.
#pragma once

#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

// Names follow cuda.h; functions are listed in an X macro.

using CUgraphConditionalHandle = unsigned long long;

struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  cuda::CUmemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUDA_CONDITIONAL_NODE_PARAMS {
  CUgraphConditionalHandle handle;
  int type;
  unsigned size;
  cuda::CUgraph* phGraph_out;
  cuda::CUcontext ctx;
};
// The parameters of all kinds of nodes; only those of a conditional node are declared.
struct CUgraphNodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_CONDITIONAL_NODE_PARAMS conditional;
  };
  long long reserved2;
};

inline constexpr int kHandleFabric = 8;
inline constexpr int kRangeDmaBuf = 1;
inline constexpr int kGranularityRecommended = 1;
inline constexpr int kNodeConditional = 13;
inline constexpr int kConditionalIf = 0;
inline constexpr int kLimitStackSize = 0;
inline constexpr int kFunctionLocalBytes = 3;
inline constexpr cuda::CUdevice_attribute kDeviceComputeMode = 20;
inline constexpr int kComputeModeExclusiveProcess = 3;

// X(symbol, arguments)
#define PITH_FACTS_FUNCTIONS(X)                                                             \
  X(cuMemGetHandleForAddressRange,                                                          \
    (void*, cuda::CUdeviceptr, std::size_t, int, unsigned long long))                       \
  X(cuMemAllocFromPoolAsync,                                                                \
    (cuda::CUdeviceptr*, std::size_t, cuda::CUmemoryPool, cuda::CUstream))                  \
  X(cuMemPoolCreate, (cuda::CUmemoryPool*, const CUmemPoolProps*))                          \
  X(cuGraphConditionalHandleCreate,                                                         \
    (CUgraphConditionalHandle*, cuda::CUgraph, cuda::CUcontext, unsigned, unsigned))        \
  X(cuGraphCreate, (cuda::CUgraph*, unsigned))                                              \
  X(cuGraphAddNode_v2, (cuda::CUgraphNode*, cuda::CUgraph, const cuda::CUgraphNode*,        \
                        const cuda::CUgraphEdgeData*, std::size_t, CUgraphNodeParams*))     \
  X(cuStreamBeginCaptureToGraph,                                                            \
    (cuda::CUstream, cuda::CUgraph, const cuda::CUgraphNode*, const cuda::CUgraphEdgeData*, \
     std::size_t, cuda::CUstreamCaptureMode))                                               \
  X(cuCtxSetLimit, (int, std::size_t))                                                      \
  X(cuFuncIsLoaded, (int*, cuda::CUfunction))                                               \
  X(cuFuncGetAttribute, (int*, cuda::CUfunction_attribute, cuda::CUfunction))

// Null if the driver lacks the function.
struct Extra {
#define PITH_FACTS_FIELD(name, arguments) \
  cuda::CUresult(*name) arguments = reinterpret_cast<cuda::CUresult(*) arguments>(symbol(#name));
  PITH_FACTS_FUNCTIONS(PITH_FACTS_FIELD)
#undef PITH_FACTS_FIELD
};

// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace pith::facts
