// Compares driver_extra.hpp with the toolkit's cuda.h at compile time, if it is installed. Ours is
// included first, since cuda.h renames functions by macros.
#include "tools/gpu/driver_extra.hpp"

#include <cuda.h>

namespace {

namespace ours = pith::facts;

// The sizes of pointers are intended.

#define SAME(type, member)                                                  \
  static_assert(offsetof(ours::type, member) == offsetof(::type, member) && \
                    sizeof(ours::type::member) == sizeof(::type::member),   \
                #type " " #member)
#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(::type), #type)

SAME_SIZE(CUgraphConditionalHandle);
SAME_SIZE(CUmemPoolProps);
SAME(CUmemPoolProps, handleTypes);
SAME(CUmemPoolProps, location);
SAME(CUmemPoolProps, maxSize);
#if CUDA_VERSION >= 13000
SAME_SIZE(CUgraphNodeParams);
SAME(CUgraphNodeParams, type);
SAME(CUgraphNodeParams, conditional.handle);
SAME(CUgraphNodeParams, conditional.type);
SAME(CUgraphNodeParams, conditional.size);
SAME(CUgraphNodeParams, conditional.phGraph_out);
SAME(CUgraphNodeParams, conditional.ctx);
#endif

static_assert(ours::kHandleFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(ours::kRangeDmaBuf == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(ours::kGranularityRecommended == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
static_assert(ours::kNodeConditional == CU_GRAPH_NODE_TYPE_CONDITIONAL);
static_assert(ours::kConditionalIf == CU_GRAPH_COND_TYPE_IF);
static_assert(ours::kLimitStackSize == CU_LIMIT_STACK_SIZE);
static_assert(ours::kFunctionLocalBytes == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
static_assert(ours::kDeviceComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
static_assert(ours::kComputeModeExclusiveProcess == CU_COMPUTEMODE_EXCLUSIVE_PROCESS);

// Arguments may have other types, but their number and sizes must match.
template <class... A, class... B>
constexpr bool same_count(CUresult (*)(A...), int (*)(B...)) {
  return sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...);
}
#define SAME_ARGUMENTS(name)                                                   \
  static_assert(same_count(static_cast<decltype(&::name)>(nullptr),            \
                           static_cast<decltype(ours::Extra::name)>(nullptr)), \
                #name)

SAME_ARGUMENTS(cuMemGetHandleForAddressRange);
SAME_ARGUMENTS(cuMemAllocFromPoolAsync);
SAME_ARGUMENTS(cuMemPoolCreate);
SAME_ARGUMENTS(cuGraphConditionalHandleCreate);
SAME_ARGUMENTS(cuGraphCreate);
SAME_ARGUMENTS(cuStreamBeginCaptureToGraph);
SAME_ARGUMENTS(cuCtxSetLimit);
SAME_ARGUMENTS(cuFuncIsLoaded);
SAME_ARGUMENTS(cuFuncGetAttribute);
#if CUDA_VERSION >= 13000
static_assert(same_count(static_cast<decltype(&::cuGraphAddNode)>(nullptr),
                         static_cast<decltype(ours::Extra::cuGraphAddNode_v2)>(nullptr)));
#endif

// NOLINTEND(bugprone-sizeof-expression)

}  // namespace
