// The part of the CUDA driver API that Pith uses: types, constants, and a table of function
// pointers filled by dlopen. The library thus builds without a toolkit and loads without a driver.
//
// Types and argument lists follow the ABI of CUDA 12 and 13; tests/cuda_stub/abi_check.cpp compares
// them with cuda.h where that header is installed. Enumerations are plain integers here.
// Symbols carry the suffix (_v2, _v3) that the driver exports, not cuda.h's macro name.
// Threads: a filled Driver is read-only and may be shared. libcuda is never unloaded.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace pith::cuda {

// Names follow cuda.h; its functions are listed in X macros.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)
// NOLINTBEGIN(bugprone-forward-declaration-namespace)

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUuserObject = struct CUuserObject_st*;
using CUgraphEdgeData = struct CUgraphEdgeData_st;  // opaque, never read
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUmemGenericAllocationHandle = unsigned long long;
using CUmemAllocationHandleType = int;
using CUmemAllocationGranularity_flags = int;
using CUmemAccess_flags = int;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;
using CUhostFn = void (*)(void*);
using CUdevice_attribute = int;
using CUfunction_attribute = int;
using CUpointer_attribute = int;
using CUstreamCaptureMode = int;
using CUstreamCaptureStatus = int;
using CUjit_option = int;
using CUlibraryOption = int;
// The handles below name device memory to another process; the driver takes them by value.
struct CUuuid {
  unsigned char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};
// Location of and access to physical memory (cuMemCreate, cuMemMap).
struct CUmemLocation {
  int type;
  int id;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};
struct CUmemAllocationProp {
  int type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

// Results.
inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kErrorInvalidValue = 1;
inline constexpr CUresult kErrorOutOfMemory = 2;
inline constexpr CUresult kErrorNotInitialized = 3;
inline constexpr CUresult kErrorDeinitialized = 4;
inline constexpr CUresult kErrorNoDevice = 100;
inline constexpr CUresult kErrorInvalidDevice = 101;
inline constexpr CUresult kErrorInvalidContext = 201;
inline constexpr CUresult kErrorMapFailed = 205;
inline constexpr CUresult kErrorAlreadyMapped = 208;
inline constexpr CUresult kErrorPeerAccessUnsupported = 217;
inline constexpr CUresult kErrorInvalidHandle = 400;
inline constexpr CUresult kErrorIllegalState = 401;
inline constexpr CUresult kErrorNotFound = 500;
inline constexpr CUresult kErrorNotReady = 600;
inline constexpr CUresult kErrorPeerAccessAlreadyEnabled = 704;
inline constexpr CUresult kErrorHostMemoryAlreadyRegistered = 712;
inline constexpr CUresult kErrorHostMemoryNotRegistered = 713;
inline constexpr CUresult kErrorLaunchFailed = 719;
inline constexpr CUresult kErrorNotPermitted = 800;
inline constexpr CUresult kErrorNotSupported = 801;
inline constexpr CUresult kErrorCaptureUnsupported = 900;
inline constexpr CUresult kErrorCaptureInvalidated = 901;
inline constexpr CUresult kErrorCaptureMerge = 902;
inline constexpr CUresult kErrorCaptureUnmatched = 903;
inline constexpr CUresult kErrorCaptureUnjoined = 904;
inline constexpr CUresult kErrorCaptureIsolation = 905;
inline constexpr CUresult kErrorCaptureImplicit = 906;
inline constexpr CUresult kErrorCapturedEvent = 907;
inline constexpr CUresult kErrorCaptureWrongThread = 908;

// Streams, events and capture.
inline constexpr std::uintptr_t kStreamLegacy = 1;     // cast to CUstream
inline constexpr std::uintptr_t kStreamPerThread = 2;  // cast to CUstream
inline constexpr unsigned kStreamDefault = 0;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventRecordExternal = 1;
inline constexpr unsigned kEventWaitExternal = 1;
inline constexpr CUstreamCaptureMode kCaptureGlobal = 0;
inline constexpr CUstreamCaptureMode kCaptureThreadLocal = 1;
inline constexpr CUstreamCaptureMode kCaptureRelaxed = 2;
inline constexpr CUstreamCaptureStatus kCaptureNone = 0;
inline constexpr CUstreamCaptureStatus kCaptureActive = 1;
inline constexpr CUstreamCaptureStatus kCaptureInvalidated = 2;
inline constexpr unsigned kUserObjectNoDestructorSync = 1;
inline constexpr unsigned kGraphUserObjectMove = 1;

// Stream memory operations.
inline constexpr unsigned kWaitValueGeq = 0;  // signed difference, so counters may wrap
inline constexpr unsigned kWaitValueEq = 1;
inline constexpr unsigned kWaitValueAnd = 2;
inline constexpr unsigned kWaitValueNor = 3;
inline constexpr unsigned kWaitValueFlush = 1u << 30;
inline constexpr unsigned kWriteValueDefault = 0;
inline constexpr unsigned kWriteValueNoMemoryBarrier = 1;

// Memory.
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr CUpointer_attribute kPointerContext = 1;
inline constexpr CUpointer_attribute kPointerMemoryType = 2;
inline constexpr CUpointer_attribute kPointerDevicePointer = 3;
inline constexpr CUpointer_attribute kPointerHostPointer = 4;
inline constexpr CUpointer_attribute kPointerSyncMemops = 6;
inline constexpr CUpointer_attribute kPointerBufferId = 7;
inline constexpr CUpointer_attribute kPointerIsManaged = 8;
inline constexpr CUpointer_attribute kPointerDeviceOrdinal = 9;
inline constexpr CUpointer_attribute kPointerLegacyIpcCapable = 10;
inline constexpr CUpointer_attribute kPointerRangeStart = 11;
inline constexpr CUpointer_attribute kPointerRangeSize = 12;
inline constexpr CUpointer_attribute kPointerMapped = 13;
inline constexpr CUpointer_attribute kPointerHandleTypes = 14;
inline constexpr CUpointer_attribute kPointerPool = 17;
inline constexpr CUpointer_attribute kPointerMemoryBlockId = 20;
inline constexpr int kMemoryPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr CUmemAllocationHandleType kHandleNone = 0;
inline constexpr CUmemAllocationHandleType kHandleDescriptor = 1;
inline constexpr CUmemAllocationGranularity_flags kGranularityMinimum = 0;
inline constexpr CUmemAccess_flags kAccessNone = 0;
inline constexpr CUmemAccess_flags kAccessReadWrite = 3;

// Devices.
inline constexpr CUfunction_attribute kFunctionMostDynamicShared = 8;
inline constexpr CUdevice_attribute kDeviceMaxThreadsPerBlock = 1;
inline constexpr CUdevice_attribute kDeviceWarpSize = 10;
inline constexpr CUdevice_attribute kDeviceMultiprocessorCount = 16;
inline constexpr CUdevice_attribute kDeviceCanMapHostMemory = 19;
inline constexpr CUdevice_attribute kDeviceUnifiedAddressing = 41;
inline constexpr CUdevice_attribute kDeviceComputeMajor = 75;
inline constexpr CUdevice_attribute kDeviceComputeMinor = 76;
inline constexpr CUdevice_attribute kDeviceHostPointerForRegistered = 91;
inline constexpr CUdevice_attribute kDeviceFlushRemoteWrites = 98;
inline constexpr CUdevice_attribute kDeviceMapsMemory = 102;
inline constexpr CUdevice_attribute kDeviceExportsDescriptors = 103;
inline constexpr CUdevice_attribute kDeviceNetworkReachesMapped = 110;
// GPUDirect RDMA: availability, ways to flush writes, and who sees writes in order without a flush.
inline constexpr CUdevice_attribute kDeviceReachedByNetwork = 116;
inline constexpr CUdevice_attribute kDeviceNetworkFlushes = 117;
inline constexpr CUdevice_attribute kDeviceNetworkOrder = 118;
inline constexpr CUdevice_attribute kDevice64BitStreamMemOps = 122;
inline constexpr CUdevice_attribute kDeviceWaitValueNor = 123;
inline constexpr CUdevice_attribute kDeviceExportsDmaBufs = 124;
inline constexpr int kNetworkFlushByHost = 1;
inline constexpr int kRangeAsDmaBuf = 1;
inline constexpr int kNetworkWritesOfContext = 0;
inline constexpr int kNetworkWritesToOwner = 100;

// X(field, symbol, arguments): every function returns CUresult. All of these are required.
#define PITH_CUDA_REQUIRED(X)                                                                     \
  X(init, cuInit, (unsigned flags))                                                               \
  X(driver_version, cuDriverGetVersion, (int* version))                                           \
  X(error_name, cuGetErrorName, (CUresult error, const char** name))                              \
  X(error_string, cuGetErrorString, (CUresult error, const char** text))                          \
  X(device_count, cuDeviceGetCount, (int* count))                                                 \
  X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                    \
  X(device_attribute, cuDeviceGetAttribute,                                                       \
    (int* value, CUdevice_attribute attribute, CUdevice device))                                  \
  X(device_name, cuDeviceGetName, (char* name, int length, CUdevice device))                      \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))         \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                         \
  X(primary_ctx_state, cuDevicePrimaryCtxGetState,                                                \
    (CUdevice device, unsigned* flags, int* active))                                              \
  X(ctx_get_current, cuCtxGetCurrent, (CUcontext * context))                                      \
  X(ctx_set_current, cuCtxSetCurrent, (CUcontext context))                                        \
  X(ctx_push, cuCtxPushCurrent_v2, (CUcontext context))                                           \
  X(ctx_pop, cuCtxPopCurrent_v2, (CUcontext * context))                                           \
  X(ctx_get_device, cuCtxGetDevice, (CUdevice * device))                                          \
  X(ctx_synchronize, cuCtxSynchronize, ())                                                        \
  X(ctx_priority_range, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                 \
  X(mem_get_info, cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))                     \
  X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * address, std::size_t bytes))                         \
  X(mem_free, cuMemFree_v2, (CUdeviceptr address))                                                \
  X(mem_address_range, cuMemGetAddressRange_v2,                                                   \
    (CUdeviceptr * base, std::size_t * bytes, CUdeviceptr address))                               \
  X(host_alloc, cuMemHostAlloc, (void** memory, std::size_t bytes, unsigned flags))               \
  X(host_free, cuMemFreeHost, (void* memory))                                                     \
  X(host_register, cuMemHostRegister_v2, (void* memory, std::size_t bytes, unsigned flags))       \
  X(host_unregister, cuMemHostUnregister, (void* memory))                                         \
  X(host_device_pointer, cuMemHostGetDevicePointer_v2,                                            \
    (CUdeviceptr * address, void* memory, unsigned flags))                                        \
  X(pointer_attribute, cuPointerGetAttribute,                                                     \
    (void* value, CUpointer_attribute attribute, CUdeviceptr address))                            \
  X(pointer_attributes, cuPointerGetAttributes,                                                   \
    (unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address))        \
  X(memcpy_async, cuMemcpyAsync,                                                                  \
    (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                       \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2,                                                      \
    (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))                       \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2,                                                      \
    (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))                             \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2,                                                      \
    (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                       \
  X(memset_async, cuMemsetD8Async,                                                                \
    (CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream))                    \
  X(stream_create, cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority)) \
  X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                        \
  X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                   \
  X(stream_query, cuStreamQuery, (CUstream stream))                                               \
  X(stream_get_ctx, cuStreamGetCtx, (CUstream stream, CUcontext * context))                       \
  X(stream_get_priority, cuStreamGetPriority, (CUstream stream, int* priority))                   \
  X(stream_wait_event, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))       \
  X(write_value32, cuStreamWriteValue32_v2,                                                       \
    (CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned flags))                  \
  X(write_value64, cuStreamWriteValue64_v2,                                                       \
    (CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags))                  \
  X(wait_value32, cuStreamWaitValue32_v2,                                                         \
    (CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned flags))                  \
  X(wait_value64, cuStreamWaitValue64_v2,                                                         \
    (CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags))                  \
  X(launch_host_func, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* argument))     \
  X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                               \
  X(event_record, cuEventRecord, (CUevent event, CUstream stream))                                \
  X(event_record_flags, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags)) \
  X(event_query, cuEventQuery, (CUevent event))                                                   \
  X(event_synchronize, cuEventSynchronize, (CUevent event))                                       \
  X(event_destroy, cuEventDestroy_v2, (CUevent event))                                            \
  X(event_elapsed_time, cuEventElapsedTime, (float* ms, CUevent start, CUevent end))              \
  X(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))          \
  X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                          \
  X(capture_status, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))       \
  X(capture_exchange_mode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))       \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                               \
    (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                                \
  X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                             \
  X(graph_nodes, cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, std::size_t * count))      \
  X(graph_destroy, cuGraphDestroy, (CUgraph graph))                                               \
  X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec exec))                                   \
  X(library_load, cuLibraryLoadData,                                                              \
    (CUlibrary * library, const void* code, CUjit_option* jit, void** jit_values,                 \
     unsigned jit_count, CUlibraryOption* options, void** values, unsigned count))                \
  X(library_kernel, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name)) \
  X(kernel_function, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))               \
  X(function_set_attribute, cuFuncSetAttribute,                                                   \
    (CUfunction function, CUfunction_attribute attribute, int value))                             \
  X(launch_kernel, cuLaunchKernel,                                                                \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params,   \
     void** extra))

// Optional, may be null: capture info changed its arguments in CUDA 12.3 (use _v3, else _v2); user
// objects and flushes came with 11.3, MIG-aware uuids with 11.4, cuCtxGetId with 12.0, cuFuncLoad
// with 12.4. Not every platform has IPC, cuMemMap or pools. stub_launch, which runs a host
// function, exists only in the stub driver.
#define PITH_CUDA_OPTIONAL(X)                                                                      \
  X(capture_info_v2, cuStreamGetCaptureInfo_v2,                                                    \
    (CUstream stream, CUstreamCaptureStatus * status, std::uint64_t * id, CUgraph * graph,         \
     const CUgraphNode** dependencies, std::size_t* count))                                        \
  X(capture_info_v3, cuStreamGetCaptureInfo_v3,                                                    \
    (CUstream stream, CUstreamCaptureStatus * status, std::uint64_t * id, CUgraph * graph,         \
     const CUgraphNode** dependencies, const CUgraphEdgeData** edges, std::size_t* count))         \
  X(user_object_create, cuUserObjectCreate,                                                        \
    (CUuserObject * object, void* data, CUhostFn destroy, unsigned references, unsigned flags))    \
  X(user_object_release, cuUserObjectRelease, (CUuserObject object, unsigned count))               \
  X(graph_retain_user_object, cuGraphRetainUserObject,                                             \
    (CUgraph graph, CUuserObject object, unsigned count, unsigned flags))                          \
  X(ctx_get_id, cuCtxGetId, (CUcontext context, unsigned long long* id))                           \
  X(device_get_uuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                         \
  X(function_load, cuFuncLoad, (CUfunction function))                                              \
  X(flush_network_writes, cuFlushGPUDirectRDMAWrites, (int target, int scope))                     \
  X(range_handle, cuMemGetHandleForAddressRange,                                                   \
    (void* handle, CUdeviceptr address, std::size_t bytes, int type, unsigned long long flags))    \
  X(ipc_get_handle, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address))             \
  X(ipc_open_handle, cuIpcOpenMemHandle_v2,                                                        \
    (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags))                                \
  X(ipc_close_handle, cuIpcCloseMemHandle, (CUdeviceptr address))                                  \
  X(device_can_access_peer, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))     \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))               \
  X(mem_create, cuMemCreate,                                                                       \
    (CUmemGenericAllocationHandle * handle, std::size_t bytes, const CUmemAllocationProp* prop,    \
     unsigned long long flags))                                                                    \
  X(mem_release, cuMemRelease, (CUmemGenericAllocationHandle handle))                              \
  X(mem_reserve, cuMemAddressReserve,                                                              \
    (CUdeviceptr * address, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,          \
     unsigned long long flags))                                                                    \
  X(mem_unreserve, cuMemAddressFree, (CUdeviceptr address, std::size_t bytes))                     \
  X(mem_map, cuMemMap,                                                                             \
    (CUdeviceptr address, std::size_t bytes, std::size_t offset,                                   \
     CUmemGenericAllocationHandle handle, unsigned long long flags))                               \
  X(mem_unmap, cuMemUnmap, (CUdeviceptr address, std::size_t bytes))                               \
  X(mem_set_access, cuMemSetAccess,                                                                \
    (CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count))    \
  X(mem_get_access, cuMemGetAccess,                                                                \
    (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address))               \
  X(mem_retain, cuMemRetainAllocationHandle,                                                       \
    (CUmemGenericAllocationHandle * handle, void* address))                                        \
  X(mem_export, cuMemExportToShareableHandle,                                                      \
    (void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,         \
     unsigned long long flags))                                                                    \
  X(mem_import, cuMemImportFromShareableHandle,                                                    \
    (CUmemGenericAllocationHandle * handle, void* shareable, CUmemAllocationHandleType type))      \
  X(mem_granularity, cuMemGetAllocationGranularity,                                                \
    (std::size_t * bytes, const CUmemAllocationProp* prop,                                         \
     CUmemAllocationGranularity_flags option))                                                     \
  X(mem_alloc_async, cuMemAllocAsync, (CUdeviceptr * address, std::size_t bytes, CUstream stream)) \
  X(mem_free_async, cuMemFreeAsync, (CUdeviceptr address, CUstream stream))                        \
  X(default_pool, cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device))               \
  X(pool_set_access, cuMemPoolSetAccess,                                                           \
    (CUmemoryPool pool, const CUmemAccessDesc* access, std::size_t count))                         \
  X(pool_get_access, cuMemPoolGetAccess,                                                           \
    (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation * location))                      \
  X(stub_launch, pithStubLaunch,                                                                   \
    (CUstream stream, void (*function)(void*), const void* args, std::size_t bytes))

struct Driver {
#define PITH_CUDA_FIELD(field, symbol, arguments) CUresult(*field) arguments = nullptr;
  PITH_CUDA_REQUIRED(PITH_CUDA_FIELD)
  PITH_CUDA_OPTIONAL(PITH_CUDA_FIELD)
#undef PITH_CUDA_FIELD

  // "CUDA_ERROR_NAME (text)"; never fails.
  std::string describe(CUresult result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (error_name == nullptr || error_name(result, &name) != kSuccess || name == nullptr) {
      return "CUDA error " + std::to_string(result);
    }
    if (error_string(result, &text) != kSuccess || text == nullptr) return name;
    return std::string(name) + " (" + text + ")";
  }
};

// Fills `driver` from the named library. On failure returns false, sets `why` and leaves all
// pointers null. Calls no function of the driver, not even cuInit.
inline bool load_driver(Driver& driver, std::string& why, const char* file = "libcuda.so.1") {
  driver = Driver{};
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    why = error != nullptr ? error : "dlopen failed";
    return false;
  }
  Driver found;
  const char* missing = nullptr;
#define PITH_CUDA_FIND(field, symbol, arguments) \
  found.field = reinterpret_cast<decltype(found.field)>(dlsym(library, #symbol));
#define PITH_CUDA_NEED(field, symbol, arguments) \
  PITH_CUDA_FIND(field, symbol, arguments)       \
  if (found.field == nullptr) missing = #symbol;
  PITH_CUDA_REQUIRED(PITH_CUDA_NEED)
  PITH_CUDA_OPTIONAL(PITH_CUDA_FIND)
#undef PITH_CUDA_NEED
#undef PITH_CUDA_FIND
  if (missing != nullptr) {
    why = std::string(file) + " lacks " + missing;
    dlclose(library);
    return false;
  }
  driver = found;
  return true;
}

// NOLINTEND(bugprone-forward-declaration-namespace)
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace pith::cuda
