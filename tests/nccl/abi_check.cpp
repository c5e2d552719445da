// Our words for NCCL's interface against NVIDIA's own header, where that is installed. Compiled and
// never run.
#define NCCL_OS_LINUX  // else later headers leave a function out
#include <nccl.h>
#if __has_include(<nccl_device.h>)
#include <nccl_device.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ours {
#define NCCL_TYPES_ONLY
#undef NCCL_CONFIG_INITIALIZER
#undef NCCL_CONFIG_UNDEF_INT
#undef NCCL_SIM_INFO_INITIALIZER
#undef NCCL_SPLIT_NOCOLOR
#undef NCCL_SHRINK_DEFAULT
#undef NCCL_SHRINK_ABORT
#undef NCCL_WIN_DEFAULT
#undef NCCL_WIN_COLL_SYMMETRIC
#undef NCCL_API_MAGIC
constexpr int their_version = NCCL_VERSION_CODE;
#undef NCCL_VERSION_CODE
#include "nccl/abi.h"
}  // namespace ours

#define SAME_VALUE(name) static_assert(int(::name) == int(ours::name))
SAME_VALUE(ncclSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
SAME_VALUE(ncclInProgress);
SAME_VALUE(ncclInt8);
SAME_VALUE(ncclUint8);
SAME_VALUE(ncclInt32);
SAME_VALUE(ncclUint32);
SAME_VALUE(ncclInt64);
SAME_VALUE(ncclUint64);
SAME_VALUE(ncclFloat16);
SAME_VALUE(ncclFloat32);
SAME_VALUE(ncclFloat64);
SAME_VALUE(ncclBfloat16);
SAME_VALUE(ncclFloat8e4m3);
SAME_VALUE(ncclFloat8e5m2);
SAME_VALUE(ncclNumTypes);
SAME_VALUE(ncclSum);
SAME_VALUE(ncclProd);
SAME_VALUE(ncclMax);
SAME_VALUE(ncclMin);
SAME_VALUE(ncclAvg);
SAME_VALUE(ncclNumOps);
SAME_VALUE(ncclMaxRedOp);
SAME_VALUE(ncclScalarDevice);
SAME_VALUE(ncclScalarHostImmediate);

#define SAME_SIZE(name) \
  static_assert(sizeof(::name) == sizeof(ours::name) && alignof(::name) == alignof(ours::name))
SAME_SIZE(ncclUniqueId);
SAME_SIZE(ncclResult_t);
SAME_SIZE(ncclDataType_t);
SAME_SIZE(ncclRedOp_t);
SAME_SIZE(ncclSimInfo_t);

// A later header's config is ours with more at its end.
static_assert(sizeof(::ncclConfig_t) >= sizeof(ours::ncclConfig_t));
static_assert(ours::their_version > 22809 || sizeof(::ncclConfig_t) == sizeof(ours::ncclConfig_t));

#define SAME_FIELD(type, field)                                           \
  static_assert(offsetof(::type, field) == offsetof(ours::type, field) && \
                sizeof(::type::field) == sizeof(ours::type::field))
SAME_FIELD(ncclConfig_t, size);
SAME_FIELD(ncclConfig_t, magic);
SAME_FIELD(ncclConfig_t, version);
SAME_FIELD(ncclConfig_t, blocking);
SAME_FIELD(ncclConfig_t, cgaClusterSize);
SAME_FIELD(ncclConfig_t, minCTAs);
SAME_FIELD(ncclConfig_t, maxCTAs);
SAME_FIELD(ncclConfig_t, netName);
SAME_FIELD(ncclConfig_t, splitShare);
SAME_FIELD(ncclConfig_t, trafficClass);
SAME_FIELD(ncclConfig_t, commName);
SAME_FIELD(ncclConfig_t, collnetEnable);
SAME_FIELD(ncclConfig_t, CTAPolicy);
SAME_FIELD(ncclConfig_t, shrinkShare);
SAME_FIELD(ncclConfig_t, nvlsCTAs);
SAME_FIELD(ncclConfig_t, nChannelsPerNetPeer);
SAME_FIELD(ncclConfig_t, nvlinkCentricSched);
SAME_FIELD(ncclSimInfo_t, size);
SAME_FIELD(ncclSimInfo_t, magic);
SAME_FIELD(ncclSimInfo_t, version);
SAME_FIELD(ncclSimInfo_t, estimatedTime);

// Two functions are called the same way: results and arguments agree one by one in size and in
// what they are.
template <class A, class B>
constexpr bool passed_alike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> ==
                                  std::is_class_v<B>&& std::is_floating_point_v<A> ==
                                  std::is_floating_point_v<B>;
template <>
constexpr bool passed_alike<void, void> = true;

template <class A, class B>
struct called_alike : std::false_type {};
template <class RA, class RB, class... A, class... B>
requires(sizeof...(A) == sizeof...(B)) struct called_alike<RA (*)(A...), RB (*)(B...)>
    : std::bool_constant<passed_alike<RA, RB> && (passed_alike<A, B> && ...)> {
};

namespace ours {
#define AS_TYPE(result, name, parameters) using name##_function = result(*) parameters;
NCCL_FUNCTIONS(AS_TYPE)
}  // namespace ours

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define CALLED_ALIKE(result, name, parameters)                                         \
  static_assert(called_alike<decltype(&::name), ours::name##_function>::value, #name); \
  static_assert(called_alike<decltype(&::p##name), ours::name##_function>::value, #name);
NCCL_FUNCTIONS_HOST(CALLED_ALIKE)

// Names of the device interface are overloaded with ones for device code, and have no p twins.
#if __has_include(<nccl_device.h>)
SAME_SIZE(ncclTeam_t);
SAME_SIZE(ncclDevResourceRequirements_t);
SAME_SIZE(ncclLLA2AHandle_t);
SAME_SIZE(ncclLsaBarrierHandle_t);
SAME_SIZE(ncclGinBarrierHandle_t);
SAME_FIELD(ncclDevResourceRequirements_t, bufferSize);
SAME_FIELD(ncclDevResourceRequirements_t, bufferAlign);
SAME_FIELD(ncclDevResourceRequirements_t, outBufferHandle);
SAME_FIELD(ncclDevResourceRequirements_t, ginSignalCount);
SAME_FIELD(ncclDevResourceRequirements_t, ginCounterCount);
SAME_FIELD(ncclDevResourceRequirements_t, outGinSignalStart);
SAME_FIELD(ncclDevResourceRequirements_t, outGinCounterStart);
static_assert(called_alike<decltype(&::ncclLLA2ACreateRequirement),
                           ours::ncclLLA2ACreateRequirement_function>::value);
static_assert(called_alike<decltype(&::ncclLsaBarrierCreateRequirement),
                           ours::ncclLsaBarrierCreateRequirement_function>::value);
static_assert(called_alike<decltype(&::ncclGinBarrierCreateRequirement),
                           ours::ncclGinBarrierCreateRequirement_function>::value);
#endif

#if NCCL_VERSION_CODE >= 22900 || defined(NCCL_WIN_STRICT_ORDERING)
static_assert(called_alike<decltype(&::ncclCommSuspend), ours::ncclCommSuspend_function>::value);
static_assert(called_alike<decltype(&::ncclCommResume), ours::ncclCommResume_function>::value);
static_assert(called_alike<decltype(&::ncclCommMemStats), ours::ncclCommMemStats_function>::value);
static_assert(called_alike<decltype(&::ncclCommGrow), ours::ncclCommGrow_function>::value);
static_assert(
    called_alike<decltype(&::ncclCommGetUniqueId), ours::ncclCommGetUniqueId_function>::value);
static_assert(called_alike<decltype(&::ncclPutSignal), ours::ncclPutSignal_function>::value);
static_assert(called_alike<decltype(&::ncclSignal), ours::ncclSignal_function>::value);
static_assert(called_alike<decltype(&::ncclWaitSignal), ours::ncclWaitSignal_function>::value);
static_assert(
    called_alike<decltype(&::ncclWinGetUserPtr), ours::ncclWinGetUserPtr_function>::value);
static_assert(called_alike<decltype(&::ncclParamBind), ours::ncclParamBind_function>::value);
static_assert(called_alike<decltype(&::ncclParamGet), ours::ncclParamGet_function>::value);
static_assert(called_alike<decltype(&::ncclParamGetStr), ours::ncclParamGetStr_function>::value);
static_assert(
    called_alike<decltype(&::ncclParamGetParameter), ours::ncclParamGetParameter_function>::value);
static_assert(called_alike<decltype(&::ncclParamGetAllParameterKeys),
                           ours::ncclParamGetAllParameterKeys_function>::value);
static_assert(called_alike<decltype(&::ncclParamGetI8), ours::ncclParamGetI8_function>::value);
static_assert(called_alike<decltype(&::ncclParamGetU64), ours::ncclParamGetU64_function>::value);
SAME_SIZE(ncclWaitSignalDesc_t);
#endif
