// Another libnccl.so.2 beside ours, for collectives that Pith does not speed up. It is loaded apart
// from the names of the process, so that its own calls stay its own, and has communicators of its
// own beside ours.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "nccl/abi.h"
#include "nccl/call.hpp"

namespace pith::nccl {

// X(name) for every function that is called there.
#define NCCL_FALLBACK_FUNCTIONS(X) \
  X(ncclGetVersion)                \
  X(ncclGetUniqueId)               \
  X(ncclCommInitRankConfig)        \
  X(ncclCommDestroy)               \
  X(ncclCommAbort)                 \
  X(ncclCommGetAsyncError)         \
  X(ncclGetLastError)              \
  X(ncclGroupStart)                \
  X(ncclGroupEnd)                  \
  X(ncclRedOpCreatePreMulSum)      \
  X(ncclRedOpDestroy)              \
  X(ncclAllReduce)                 \
  X(ncclBroadcast)                 \
  X(ncclReduce)                    \
  X(ncclAllGather)                 \
  X(ncclReduceScatter)             \
  X(ncclAlltoAll)                  \
  X(ncclGather)                    \
  X(ncclScatter)                   \
  X(ncclSend)                      \
  X(ncclRecv)

class Fallback {
 public:
  // `for_what`: PITH_NCCL_FALLBACK_FOR.
  static Expected<std::unique_ptr<Fallback>> load(const std::string& path,
                                                  const std::string& for_what);
  // Whether the call goes there: the same on all ranks. Says once a kind who serves it.
  bool takes(const NcclCall& call) const;
  void announce(Kind kind, bool there) const;

  ncclResult_t issue(const NcclCall& call, ncclComm_t comm) const;

#define NCCL_FALLBACK_FIELD(name) decltype(&::name) name = nullptr;
  NCCL_FALLBACK_FUNCTIONS(NCCL_FALLBACK_FIELD)
#undef NCCL_FALLBACK_FIELD

 private:
  std::string path_;
  unsigned kinds_ = 0;  // a bit each
  bool device_memory_ = false;
  mutable std::atomic<unsigned> announced_{0};
};

// Its communicator beside one of ours; goes with it.
class FallbackComm {
 public:
  FallbackComm(const Fallback& library, ncclComm_t comm) : library_(library), comm_(comm) {}
  ~FallbackComm() { library_.ncclCommDestroy(comm_); }
  FallbackComm(const FallbackComm&) = delete;
  FallbackComm& operator=(const FallbackComm&) = delete;

  ncclComm_t get() const { return comm_; }
  // The destructor's work, with what runs there ended first.
  static void abort(std::unique_ptr<FallbackComm> comm) {
    comm->library_.ncclCommAbort(comm->comm_);
    comm->comm_ = nullptr;  // that is nothing to destroy
  }
  ncclResult_t async_error() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library_.ncclCommGetAsyncError(comm_, &state);
    return asked != ncclSuccess ? asked : state;
  }

 private:
  const Fallback& library_;
  ncclComm_t comm_;
};

}  // namespace pith::nccl
