// Numbers of NCCL 2.28.9's interface, for machines without its header: what programs that were
// compiled against that hand over. abi_check.cpp compares with the header itself. Never run.
#include <cstddef>

#include "nccl/abi.h"

template <class T>
constexpr bool occupies(std::size_t bytes, std::size_t alignment) {
  return sizeof(T) == bytes && alignof(T) == alignment;
}

static_assert(ncclSuccess == 0);
static_assert(ncclUnhandledCudaError == 1);
static_assert(ncclSystemError == 2);
static_assert(ncclInternalError == 3);
static_assert(ncclInvalidArgument == 4);
static_assert(ncclInvalidUsage == 5);
static_assert(ncclRemoteError == 6);
static_assert(ncclInProgress == 7);
static_assert(ncclInt8 == 0);
static_assert(ncclUint8 == 1);
static_assert(ncclInt32 == 2);
static_assert(ncclUint32 == 3);
static_assert(ncclInt64 == 4);
static_assert(ncclUint64 == 5);
static_assert(ncclFloat16 == 6);
static_assert(ncclFloat32 == 7);
static_assert(ncclFloat64 == 8);
static_assert(ncclBfloat16 == 9);
static_assert(ncclFloat8e4m3 == 10);
static_assert(ncclFloat8e5m2 == 11);
static_assert(ncclNumTypes == 12);
static_assert(ncclSum == 0);
static_assert(ncclProd == 1);
static_assert(ncclMax == 2);
static_assert(ncclMin == 3);
static_assert(ncclAvg == 4);
static_assert(ncclNumOps == 5);
static_assert(ncclMaxRedOp == 2147483647);
static_assert(ncclScalarDevice == 0);
static_assert(ncclScalarHostImmediate == 1);
static_assert(occupies<ncclUniqueId>(128, 1));
static_assert(occupies<ncclResult_t>(4, 4));
static_assert(occupies<ncclDataType_t>(4, 4));
static_assert(occupies<ncclRedOp_t>(4, 4));
static_assert(occupies<ncclSimInfo_t>(24, 8));
static_assert(occupies<ncclTeam_t>(12, 4));
static_assert(occupies<ncclDevResourceRequirements_t>(56, 8));
static_assert(occupies<ncclLLA2AHandle_t>(8, 4));
static_assert(occupies<ncclLsaBarrierHandle_t>(8, 4));
static_assert(occupies<ncclGinBarrierHandle_t>(8, 4));
static_assert(occupies<ncclConfig_t>(80, 8));
static_assert(offsetof(ncclConfig_t, size) == 0);
static_assert(offsetof(ncclConfig_t, magic) == 8);
static_assert(offsetof(ncclConfig_t, version) == 12);
static_assert(offsetof(ncclConfig_t, blocking) == 16);
static_assert(offsetof(ncclConfig_t, cgaClusterSize) == 20);
static_assert(offsetof(ncclConfig_t, minCTAs) == 24);
static_assert(offsetof(ncclConfig_t, maxCTAs) == 28);
static_assert(offsetof(ncclConfig_t, netName) == 32);
static_assert(offsetof(ncclConfig_t, splitShare) == 40);
static_assert(offsetof(ncclConfig_t, trafficClass) == 44);
static_assert(offsetof(ncclConfig_t, commName) == 48);
static_assert(offsetof(ncclConfig_t, collnetEnable) == 56);
static_assert(offsetof(ncclConfig_t, CTAPolicy) == 60);
static_assert(offsetof(ncclConfig_t, shrinkShare) == 64);
static_assert(offsetof(ncclConfig_t, nvlsCTAs) == 68);
static_assert(offsetof(ncclConfig_t, nChannelsPerNetPeer) == 72);
static_assert(offsetof(ncclConfig_t, nvlinkCentricSched) == 76);
static_assert(offsetof(ncclSimInfo_t, size) == 0);
static_assert(offsetof(ncclSimInfo_t, magic) == 8);
static_assert(offsetof(ncclSimInfo_t, version) == 12);
static_assert(offsetof(ncclSimInfo_t, estimatedTime) == 16);
static_assert(offsetof(ncclDevResourceRequirements_t, bufferSize) == 8);
static_assert(offsetof(ncclDevResourceRequirements_t, bufferAlign) == 16);
static_assert(offsetof(ncclDevResourceRequirements_t, outBufferHandle) == 24);
static_assert(offsetof(ncclDevResourceRequirements_t, ginSignalCount) == 32);
static_assert(offsetof(ncclDevResourceRequirements_t, ginCounterCount) == 36);
static_assert(offsetof(ncclDevResourceRequirements_t, outGinSignalStart) == 40);
static_assert(offsetof(ncclDevResourceRequirements_t, outGinCounterStart) == 48);

// Since 2.29.
static_assert(occupies<ncclWaitSignalDesc_t>(16, 4));
