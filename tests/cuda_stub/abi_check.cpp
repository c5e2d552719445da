// Compares cuda/driver_api.hpp with the toolkit's cuda.h; compiled only where that is installed.
// Ours is included first: cuda.h renames functions by macro. Everything happens at compile time.
#include "cuda/driver_api.hpp"

#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace {

namespace ours = pith::cuda;

// How an argument is passed: all pointers alike, integers and enumerations by their size alone.
struct Passing {
  enum class Kind { pointer, number, aggregate } kind;
  std::size_t bytes = 0;
  std::size_t alignment = 0;
  bool operator==(const Passing&) const = default;
};

template <class T>
constexpr Passing passing_of() {
  if constexpr (std::is_pointer_v<T>) {
    return {Passing::Kind::pointer};
  } else if constexpr (std::is_class_v<T>) {
    return {Passing::Kind::aggregate, sizeof(T), alignof(T)};
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    return {Passing::Kind::number, sizeof(T)};
  }
}

template <class A, class B>
struct SameAbi : std::false_type {};

template <class RA, class... A, class RB, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameAbi<RA (*)(A...), RB (*)(B...)>
    : std::bool_constant<passing_of<RA>() == passing_of<RB>() &&
                         ((passing_of<A>() == passing_of<B>()) && ...)> {
};

#define CHECK_FUNCTION(field, symbol, arguments) \
  static_assert(SameAbi<decltype(ours::Driver::field), decltype(&::symbol)>::value, #symbol);
PITH_CUDA_REQUIRED(CHECK_FUNCTION)
static_assert(
    SameAbi<decltype(ours::Driver::capture_info_v3), decltype(&::cuStreamGetCaptureInfo)>::value ||
    CUDA_VERSION < 13000);

#define CHECK_OPTIONAL(field, symbol) \
  static_assert(SameAbi<decltype(ours::Driver::field), decltype(&::symbol)>::value, #symbol)
CHECK_OPTIONAL(ctx_get_id, cuCtxGetId);
CHECK_OPTIONAL(device_get_uuid, cuDeviceGetUuid);
CHECK_OPTIONAL(user_object_create, cuUserObjectCreate);
CHECK_OPTIONAL(user_object_release, cuUserObjectRelease);
CHECK_OPTIONAL(graph_retain_user_object, cuGraphRetainUserObject);
CHECK_OPTIONAL(ipc_get_handle, cuIpcGetMemHandle);
CHECK_OPTIONAL(ipc_open_handle, cuIpcOpenMemHandle_v2);
CHECK_OPTIONAL(ipc_close_handle, cuIpcCloseMemHandle);
CHECK_OPTIONAL(device_can_access_peer, cuDeviceCanAccessPeer);
CHECK_OPTIONAL(ctx_enable_peer_access, cuCtxEnablePeerAccess);
CHECK_OPTIONAL(mem_create, cuMemCreate);
CHECK_OPTIONAL(mem_release, cuMemRelease);
CHECK_OPTIONAL(mem_reserve, cuMemAddressReserve);
CHECK_OPTIONAL(mem_unreserve, cuMemAddressFree);
CHECK_OPTIONAL(mem_map, cuMemMap);
CHECK_OPTIONAL(mem_unmap, cuMemUnmap);
CHECK_OPTIONAL(mem_set_access, cuMemSetAccess);
CHECK_OPTIONAL(mem_get_access, cuMemGetAccess);
CHECK_OPTIONAL(mem_retain, cuMemRetainAllocationHandle);
CHECK_OPTIONAL(mem_export, cuMemExportToShareableHandle);
CHECK_OPTIONAL(mem_import, cuMemImportFromShareableHandle);
CHECK_OPTIONAL(mem_granularity, cuMemGetAllocationGranularity);
CHECK_OPTIONAL(mem_alloc_async, cuMemAllocAsync);
CHECK_OPTIONAL(mem_free_async, cuMemFreeAsync);
CHECK_OPTIONAL(default_pool, cuDeviceGetDefaultMemPool);
CHECK_OPTIONAL(pool_set_access, cuMemPoolSetAccess);
CHECK_OPTIONAL(pool_get_access, cuMemPoolGetAccess);

static_assert(sizeof(ours::CUmemLocation) == sizeof(::CUmemLocation));
static_assert(sizeof(ours::CUmemAccessDesc) == sizeof(::CUmemAccessDesc));
static_assert(sizeof(ours::CUmemAllocationProp) == sizeof(::CUmemAllocationProp));
static_assert(offsetof(ours::CUmemAccessDesc, flags) == offsetof(::CUmemAccessDesc, flags));
#define CHECK_PROP(member)                                                                    \
  static_assert(                                                                              \
      offsetof(ours::CUmemAllocationProp, member) == offsetof(::CUmemAllocationProp, member), \
      #member)
CHECK_PROP(requestedHandleTypes);
CHECK_PROP(location);
CHECK_PROP(win32HandleMetaData);
CHECK_PROP(allocFlags.gpuDirectRDMACapable);
CHECK_PROP(allocFlags.usage);

#define CHECK_VALUE(mine, theirs) \
  static_assert(static_cast<long long>(ours::mine) == static_cast<long long>(theirs), #theirs)
CHECK_VALUE(kSuccess, CUDA_SUCCESS);
CHECK_VALUE(kErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
CHECK_VALUE(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CHECK_VALUE(kErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
CHECK_VALUE(kErrorNoDevice, CUDA_ERROR_NO_DEVICE);
CHECK_VALUE(kErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
CHECK_VALUE(kErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
CHECK_VALUE(kErrorMapFailed, CUDA_ERROR_MAP_FAILED);
CHECK_VALUE(kErrorPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
CHECK_VALUE(kErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
CHECK_VALUE(kErrorInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
CHECK_VALUE(kErrorIllegalState, CUDA_ERROR_ILLEGAL_STATE);
CHECK_VALUE(kErrorNotFound, CUDA_ERROR_NOT_FOUND);
CHECK_VALUE(kErrorNotReady, CUDA_ERROR_NOT_READY);
CHECK_VALUE(kErrorHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
CHECK_VALUE(kErrorHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
CHECK_VALUE(kErrorLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
CHECK_VALUE(kErrorNotPermitted, CUDA_ERROR_NOT_PERMITTED);
CHECK_VALUE(kErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED);
CHECK_VALUE(kErrorCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
CHECK_VALUE(kErrorCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
CHECK_VALUE(kErrorCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
CHECK_VALUE(kErrorCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
CHECK_VALUE(kErrorCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
CHECK_VALUE(kErrorCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
CHECK_VALUE(kErrorCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
CHECK_VALUE(kErrorCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
CHECK_VALUE(kErrorCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
CHECK_VALUE(kStreamDefault, CU_STREAM_DEFAULT);
CHECK_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
CHECK_VALUE(kEventDefault, CU_EVENT_DEFAULT);
CHECK_VALUE(kEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
CHECK_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
CHECK_VALUE(kEventRecordExternal, CU_EVENT_RECORD_EXTERNAL);
CHECK_VALUE(kEventWaitExternal, CU_EVENT_WAIT_EXTERNAL);
CHECK_VALUE(kCaptureGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
CHECK_VALUE(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
CHECK_VALUE(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
CHECK_VALUE(kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
CHECK_VALUE(kCaptureActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
CHECK_VALUE(kCaptureInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
CHECK_VALUE(kUserObjectNoDestructorSync, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
CHECK_VALUE(kGraphUserObjectMove, CU_GRAPH_USER_OBJECT_MOVE);
CHECK_VALUE(kWaitValueGeq, CU_STREAM_WAIT_VALUE_GEQ);
CHECK_VALUE(kWaitValueEq, CU_STREAM_WAIT_VALUE_EQ);
CHECK_VALUE(kWaitValueAnd, CU_STREAM_WAIT_VALUE_AND);
CHECK_VALUE(kWaitValueNor, CU_STREAM_WAIT_VALUE_NOR);
CHECK_VALUE(kWaitValueFlush, CU_STREAM_WAIT_VALUE_FLUSH);
CHECK_VALUE(kWriteValueDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
CHECK_VALUE(kWriteValueNoMemoryBarrier, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
CHECK_VALUE(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
CHECK_VALUE(kHostAllocDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
CHECK_VALUE(kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
CHECK_VALUE(kHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
CHECK_VALUE(kMemoryTypeHost, CU_MEMORYTYPE_HOST);
CHECK_VALUE(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
CHECK_VALUE(kIpcLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
CHECK_VALUE(kPointerContext, CU_POINTER_ATTRIBUTE_CONTEXT);
CHECK_VALUE(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
CHECK_VALUE(kPointerDevicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
CHECK_VALUE(kPointerHostPointer, CU_POINTER_ATTRIBUTE_HOST_POINTER);
CHECK_VALUE(kPointerSyncMemops, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
CHECK_VALUE(kPointerBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID);
CHECK_VALUE(kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
CHECK_VALUE(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
CHECK_VALUE(kPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
CHECK_VALUE(kPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
CHECK_VALUE(kPointerMapped, CU_POINTER_ATTRIBUTE_MAPPED);
CHECK_VALUE(kErrorAlreadyMapped, CUDA_ERROR_ALREADY_MAPPED);
CHECK_VALUE(kPointerLegacyIpcCapable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
CHECK_VALUE(kPointerHandleTypes, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
CHECK_VALUE(kPointerPool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
CHECK_VALUE(kPointerMemoryBlockId, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
CHECK_VALUE(kMemoryPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
CHECK_VALUE(kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
CHECK_VALUE(kHandleNone, CU_MEM_HANDLE_TYPE_NONE);
CHECK_VALUE(kHandleDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
CHECK_VALUE(kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
CHECK_VALUE(kAccessNone, CU_MEM_ACCESS_FLAGS_PROT_NONE);
CHECK_VALUE(kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
CHECK_VALUE(kDeviceMapsMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
CHECK_VALUE(kDeviceExportsDescriptors,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
CHECK_VALUE(kDeviceNetworkReachesMapped,
            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
CHECK_VALUE(kFunctionMostDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
CHECK_VALUE(kDeviceMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
CHECK_VALUE(kDeviceWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
CHECK_VALUE(kDeviceMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
CHECK_VALUE(kDeviceCanMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
CHECK_VALUE(kDeviceUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
CHECK_VALUE(kDeviceComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
CHECK_VALUE(kDeviceComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
CHECK_VALUE(kDeviceHostPointerForRegistered,
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
CHECK_VALUE(kDeviceFlushRemoteWrites, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
CHECK_VALUE(kDevice64BitStreamMemOps, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
CHECK_VALUE(kDeviceWaitValueNor, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR);
CHECK_VALUE(kDeviceReachedByNetwork, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
CHECK_VALUE(kDeviceNetworkFlushes, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
CHECK_VALUE(kDeviceNetworkOrder, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
CHECK_VALUE(kDeviceExportsDmaBufs, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
CHECK_VALUE(kRangeAsDmaBuf, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
CHECK_VALUE(kNetworkFlushByHost, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
CHECK_VALUE(kNetworkWritesOfContext, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
CHECK_VALUE(kNetworkWritesToOwner, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);

static_assert(sizeof(ours::CUdeviceptr) == sizeof(::CUdeviceptr));
static_assert(sizeof(ours::CUdevice) == sizeof(::CUdevice));
static_assert(sizeof(ours::CUuuid) == sizeof(::CUuuid));
static_assert(sizeof(ours::CUresult) == sizeof(::CUresult));
static_assert(sizeof(ours::CUstreamCaptureMode) == sizeof(::CUstreamCaptureMode));
static_assert(sizeof(ours::CUpointer_attribute) == sizeof(::CUpointer_attribute));

}  // namespace
