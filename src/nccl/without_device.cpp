// NCCL's device interface, one-sided communication, and additions of 2.29 and 2.30: answered as
// NCCL does for ranks that cannot access each other's memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "api/check.hpp"
#include "nccl/call.hpp"
#include "nccl/errors.hpp"
#include "nccl/exported.hpp"
#include "nccl/extension.hpp"

namespace pith::nccl {

namespace {

Error check_comm(const char* function, ncclComm_t comm) {
  return api::check_handle(function, ours(comm));
}

ncclResult_t unsupported(const char* function, ncclComm_t comm,
                         const char* what = "one-sided or device communication") {
  return guarded([&]() -> Error {
    if (Error error = check_comm(function, comm)) return error;
    return {Code::invalid_usage, fmt::format("{}: Pith has no {}", function, what)};
  });
}

// Rank 0 of 1 if there is no communicator.
ncclTeam_t world(ncclComm_t comm) {
  ncclTeam_t team{1, 0, 1};
  if (comm) {
    pithCommCount(ours(comm), &team.nRanks);
    pithCommUserRank(ours(comm), &team.rank);
  }
  return team;
}

// A rank can access only its own memory.
ncclResult_t own_pointer(const char* function, ncclWindow_t window, std::size_t offset, bool own,
                         void** pointer) {
  return guarded([&]() -> Error {
    Error error = api::check_pointer(function, "window", window);
    if (!error) error = api::check_pointer(function, "pointer", pointer);
    if (error) return error;
    *pointer = own ? static_cast<std::byte*>(window->buffer) + offset : nullptr;
    return {};
  });
}

Error describe(ncclComm_t comm, ncclCommProperties_t* out) {
  constexpr const char* function = "ncclCommQueryProperties";
  Error error = check_comm(function, comm);
  if (!error) error = api::check_pointer(function, "out", out);
  if (error) return error;
  if (out->magic != NCCL_API_MAGIC || out->size < offsetof(ncclCommProperties_t, rank)) {
    return {Code::invalid_argument,
            fmt::format("{}: out is not one that began with NCCL_COMM_PROPERTIES_INITIALIZER",
                        function)};
  }
  ncclCommProperties_t all;
  std::memset(&all, 0, sizeof all);
  all.size = out->size;
  all.magic = out->magic;
  all.version = out->version;
  const ncclTeam_t team = world(comm);
  all.rank = team.rank;
  all.nRanks = team.nRanks;
  const std::shared_ptr<Extension> extension = find_extension(ours(comm));
  all.cudaDev = all.nvmlDev = extension ? extension->device : 0;
  all.nLsaTeams = team.nRanks;
  std::memcpy(out, &all, std::min(out->size, sizeof all));
  return {};
}

// There are no parameters; pith-info lists the settings.
ncclResult_t no_parameter(const char* function) {
  return guarded([&] {
    return Error(
        Code::invalid_argument,
        fmt::format("{}: no parameters are known; pith-info --settings lists Pith's", function));
  });
}

}  // namespace

}  // namespace pith::nccl

using namespace pith::nccl;

NCCL_EXPORT(ncclResult_t, ncclDevCommCreate,
            (ncclComm_t comm, const ncclDevCommRequirements_t*, ncclDevComm_t*)) {
  return unsupported("ncclDevCommCreate", comm);
}
NCCL_EXPORT(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t*)) {
  return unsupported("ncclDevCommDestroy", comm);
}

NCCL_EXPORT(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) { return world(comm); }
NCCL_EXPORT(ncclTeam_t, ncclTeamLsa, (ncclComm_t)) { return {1, 0, 1}; }
NCCL_EXPORT(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) { return world(comm); }
NCCL_EXPORT(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return world(comm).rank + (rank - team.rank) * team.stride;
}
// A rank is alone in its LSA team, as number 0.
NCCL_EXPORT(int, ncclTeamRankToLsa, (ncclComm_t, ncclTeam_t team, int rank)) {
  return (rank - team.rank) * team.stride;
}

NCCL_EXPORT(ncclResult_t, ncclGetPeerDevicePointer,
            (ncclWindow_t window, size_t offset, int peer, void** pointer)) {
  int rank = -1;
  if (window) pithCommUserRank(window->comm, &rank);
  return own_pointer("ncclGetPeerDevicePointer", window, offset, peer == rank, pointer);
}
NCCL_EXPORT(ncclResult_t, ncclGetLsaDevicePointer,
            (ncclWindow_t window, size_t offset, int rank, void** pointer)) {
  return own_pointer("ncclGetLsaDevicePointer", window, offset, rank == 0, pointer);
}
NCCL_EXPORT(ncclResult_t, ncclGetMultimemDevicePointer,
            (ncclWindow_t window, size_t offset, ncclMultimemHandle_t, void** pointer)) {
  return own_pointer("ncclGetMultimemDevicePointer", window, offset, false, pointer);
}
NCCL_EXPORT(ncclResult_t, ncclGetLsaMultimemDevicePointer,
            (ncclWindow_t window, size_t offset, void** pointer)) {
  return own_pointer("ncclGetLsaMultimemDevicePointer", window, offset, false, pointer);
}
// NULL for NULL: symmetric windows do not exist.
NCCL_EXPORT(ncclResult_t, ncclWinGetUserPtr,
            (ncclComm_t comm, ncclWindow_t window, void** pointer)) {
  constexpr const char* function = "ncclWinGetUserPtr";
  return guarded([&]() -> pith::Error {
    if (auto error = check_comm(function, comm)) return error;
    if (auto error = pith::api::check_pointer(function, "pointer", pointer)) return error;
    *pointer = window ? window->buffer : nullptr;
    return {};
  });
}

NCCL_EXPORT(ncclResult_t, ncclPutSignal,
            (const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned int,
             ncclComm_t comm, cudaStream_t)) {
  return unsupported("ncclPutSignal", comm);
}
NCCL_EXPORT(ncclResult_t, ncclSignal,
            (int, int, int, unsigned int, ncclComm_t comm, cudaStream_t)) {
  return unsupported("ncclSignal", comm);
}
NCCL_EXPORT(ncclResult_t, ncclWaitSignal,
            (int, ncclWaitSignalDesc_t*, ncclComm_t comm, cudaStream_t)) {
  return unsupported("ncclWaitSignal", comm);
}

// Device memory serves all communicators of the process and is never freed.
NCCL_EXPORT(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int)) {
  return unsupported("ncclCommSuspend", comm, "memory that it could give back");
}
NCCL_EXPORT(ncclResult_t, ncclCommResume, (ncclComm_t comm)) {
  return unsupported("ncclCommResume", comm, "communicators that are suspended");
}
NCCL_EXPORT(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t, uint64_t*)) {
  return unsupported("ncclCommMemStats", comm, "count of a communicator's memory");
}
NCCL_EXPORT(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* out)) {
  return guarded([&] { return describe(comm, out); });
}

NCCL_EXPORT(ncclResult_t, ncclParamBind, (ncclParamHandle_t*, const char*)) {
  return no_parameter("ncclParamBind");
}
NCCL_EXPORT(ncclResult_t, ncclParamGet, (ncclParamHandle_t, void*, int, int*)) {
  return no_parameter("ncclParamGet");
}
NCCL_EXPORT(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t, const char**)) {
  return no_parameter("ncclParamGetStr");
}
NCCL_EXPORT(ncclResult_t, ncclParamGetParameter, (const char*, const char**, int*)) {
  return no_parameter("ncclParamGetParameter");
}
NCCL_EXPORT(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* size)) {
  static const char* nothing[] = {nullptr};
  if (!table || !size) return no_parameter("ncclParamGetAllParameterKeys");
  *table = nothing;
  *size = 0;
  return ncclSuccess;
}
NCCL_EXPORT(void, ncclParamDumpAll, (void)) {}

#define NCCL_NO_NUMBER(name, pointer) \
  NCCL_EXPORT(ncclResult_t, name, (ncclParamHandle_t, pointer)) { return no_parameter(#name); }
NCCL_NO_NUMBER(ncclParamGetI8, int8_t*)
NCCL_NO_NUMBER(ncclParamGetI16, int16_t*)
NCCL_NO_NUMBER(ncclParamGetI32, int32_t*)
NCCL_NO_NUMBER(ncclParamGetI64, int64_t*)
NCCL_NO_NUMBER(ncclParamGetU8, uint8_t*)
NCCL_NO_NUMBER(ncclParamGetU16, uint16_t*)
NCCL_NO_NUMBER(ncclParamGetU32, uint32_t*)
NCCL_NO_NUMBER(ncclParamGetU64, uint64_t*)
#undef NCCL_NO_NUMBER
