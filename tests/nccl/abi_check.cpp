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

// Macros, before ours take their names. These two are theirs only.
#define THEIR_MINOR (NCCL_MAJOR * 100 + NCCL_MINOR)
constexpr long long their_macros[] = {NCCL_CONFIG_UNDEF_INT, NCCL_SPLIT_NOCOLOR,
                                      NCCL_SHRINK_DEFAULT,   NCCL_SHRINK_ABORT,
                                      NCCL_WIN_DEFAULT,      NCCL_WIN_COLL_SYMMETRIC};
constexpr ncclConfig_t their_config = NCCL_CONFIG_INITIALIZER;
constexpr ncclSimInfo_t their_info = NCCL_SIM_INFO_INITIALIZER;

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

static_assert(their_macros[0] == NCCL_CONFIG_UNDEF_INT && their_macros[1] == NCCL_SPLIT_NOCOLOR);
static_assert(their_macros[2] == NCCL_SHRINK_DEFAULT && their_macros[3] == NCCL_SHRINK_ABORT);
static_assert(their_macros[4] == NCCL_WIN_DEFAULT && their_macros[5] == NCCL_WIN_COLL_SYMMETRIC);
static_assert(their_config.magic == NCCL_API_MAGIC && their_info.magic == NCCL_SIM_INFO_MAGIC);

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

#if THEIR_MINOR >= 229
CALLED_ALIKE(, ncclCommSuspend, )
CALLED_ALIKE(, ncclCommResume, )
CALLED_ALIKE(, ncclCommMemStats, )
CALLED_ALIKE(, ncclCommGrow, )
CALLED_ALIKE(, ncclCommGetUniqueId, )
CALLED_ALIKE(, ncclPutSignal, )
CALLED_ALIKE(, ncclSignal, )
CALLED_ALIKE(, ncclWaitSignal, )
CALLED_ALIKE(, ncclWinGetUserPtr, )
SAME_SIZE(ncclCommMemStat_t);
SAME_VALUE(ncclStatGpuMemSuspend);
SAME_VALUE(ncclStatGpuMemSuspended);
SAME_VALUE(ncclStatGpuMemPersist);
SAME_VALUE(ncclStatGpuMemTotal);
SAME_SIZE(ncclWaitSignalDesc_t);
SAME_FIELD(ncclWaitSignalDesc_t, opCnt);
SAME_FIELD(ncclWaitSignalDesc_t, peer);
SAME_FIELD(ncclWaitSignalDesc_t, sigIdx);
SAME_FIELD(ncclWaitSignalDesc_t, ctx);
#endif

#if THEIR_MINOR >= 229 && __has_include(<nccl_device.h>)
#define CALLED_ALIKE_ALONE(name) \
  static_assert(called_alike<decltype(&::name), ours::name##_function>::value)
CALLED_ALIKE_ALONE(ncclCommQueryProperties);
CALLED_ALIKE_ALONE(ncclGetPeerDevicePointer);
CALLED_ALIKE_ALONE(ncclGetLsaDevicePointer);
CALLED_ALIKE_ALONE(ncclGetMultimemDevicePointer);
CALLED_ALIKE_ALONE(ncclGetLsaMultimemDevicePointer);
SAME_FIELD(ncclCommProperties_t, size);
SAME_FIELD(ncclCommProperties_t, magic);
SAME_FIELD(ncclCommProperties_t, version);
SAME_FIELD(ncclCommProperties_t, rank);
SAME_FIELD(ncclCommProperties_t, nRanks);
SAME_FIELD(ncclCommProperties_t, cudaDev);
SAME_FIELD(ncclCommProperties_t, nvmlDev);
SAME_FIELD(ncclCommProperties_t, deviceApiSupport);
SAME_FIELD(ncclCommProperties_t, multimemSupport);
SAME_FIELD(ncclCommProperties_t, ginType);
SAME_FIELD(ncclCommProperties_t, nLsaTeams);
SAME_FIELD(ncclCommProperties_t, hostRmaSupport);
#endif

#if THEIR_MINOR >= 230
CALLED_ALIKE(, ncclParamBind, )
CALLED_ALIKE(, ncclParamGet, )
CALLED_ALIKE(, ncclParamGetStr, )
CALLED_ALIKE(, ncclParamGetParameter, )
CALLED_ALIKE(, ncclParamGetAllParameterKeys, )
CALLED_ALIKE(, ncclParamDumpAll, )
CALLED_ALIKE(, ncclParamGetI8, )
CALLED_ALIKE(, ncclParamGetI16, )
CALLED_ALIKE(, ncclParamGetI32, )
CALLED_ALIKE(, ncclParamGetI64, )
CALLED_ALIKE(, ncclParamGetU8, )
CALLED_ALIKE(, ncclParamGetU16, )
CALLED_ALIKE(, ncclParamGetU32, )
CALLED_ALIKE(, ncclParamGetU64, )
#if __has_include(<nccl_device.h>)
SAME_SIZE(ncclCommProperties_t);
SAME_FIELD(ncclCommProperties_t, railedGinType);
#endif
#endif
