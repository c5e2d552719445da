// Another libnccl.so.2 beside ours, for collectives that Pith does not speed up. It is loaded
// outside the global symbol scope, so that its internal calls resolve to itself, and has its own
// communicators.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "collectives/algorithm.hpp"
#include "comm/communicator.hpp"
#include "core/error.hpp"
#include "nccl/abi.h"
#include "nccl/call.hpp"
#include "nccl/estimate.hpp"

namespace pith::nccl {

// X(name) for every function that we call there, and those that came with NCCL 2.28.
#define NCCL_FALLBACK_FUNCTIONS(X) \
  X(ncclGetVersion)                \
  X(ncclGetUniqueId)               \
  X(ncclCommInitRankConfig)        \
  X(ncclCommSplit)                 \
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
  X(ncclSend)                      \
  X(ncclRecv)
#define NCCL_FALLBACK_NEWER_FUNCTIONS(X) \
  X(ncclAlltoAll)                        \
  X(ncclGather)                          \
  X(ncclScatter)

class Fallback {
 public:
  // `for_what`: PITH_NCCL_FALLBACK_FOR; `lines`: PITH_NCCL_FALLBACK_LINES.
  static Expected<std::unique_ptr<Fallback>> load(const std::string& path,
                                                  const std::string& for_what,
                                                  const std::string& lines);
  // Whether the call goes there; the same answer on all ranks. Never for host memory, which the
  // other library cannot read.
  bool takes(const NcclCall& call, const Communicator& communicator) const;
  // Whether calls of this kind may go there at all.
  bool has(Kind kind) const;
  const std::string& path() const { return path_; }
  // Null: not measured.
  const Lines* lines() const { return lines_ ? &*lines_ : nullptr; }
  // Logs which library serves a kind; once for each library.
  void announce(Kind kind, bool there) const;

  // `factor`: of the call's operation if it was created here.
  ncclResult_t issue(const NcclCall& call, const std::optional<Factor>& factor,
                     ncclComm_t comm) const;
  // With the library's own message.
  Error error_of(ncclResult_t result) const;
  // Runs `issue`, which makes the calls, in a group of the library. Returns the first error.
  Error in_group(const std::function<Error()>& issue) const;

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define NCCL_FALLBACK_FIELD(name) decltype(&::name) name = nullptr;
  NCCL_FALLBACK_FUNCTIONS(NCCL_FALLBACK_FIELD)
  NCCL_FALLBACK_NEWER_FUNCTIONS(NCCL_FALLBACK_FIELD)  // null where the kind is not served there
#undef NCCL_FALLBACK_FIELD

 private:
  bool is_worth_it(const NcclCall& call, const Communicator& communicator) const;

  std::string path_;
  std::optional<Lines> lines_;
  bool by_model_ = false;
  unsigned kinds_ = 0;                               // one bit per kind
  mutable std::atomic<unsigned> announced_[2] = {};  // kinds logged, for ours and for the other
};

// The other library's communicator beside one of ours; destroyed with its last user. Threads: any.
class FallbackComm {
 public:
  FallbackComm(const Fallback& library, ncclComm_t comm) : library_(library), comm_(comm) {}
  ~FallbackComm() {
    if (comm_) library_.ncclCommDestroy(comm_);
  }
  FallbackComm(const FallbackComm&) = delete;
  FallbackComm& operator=(const FallbackComm&) = delete;

  // Null after an abort.
  ncclComm_t get() const {
    const std::lock_guard lock(guard_);
    return comm_;
  }
  // Call it within a group of the library. `factor`: as in Fallback::issue().
  Error issue(const NcclCall& call, const std::optional<Factor>& factor = {}) const {
    ncclComm_t const comm = get();
    if (comm) return library_.error_of(library_.issue(call, factor, comm));
    return {Code::invalid_usage, "comm is revoked, expected one that takes calls"};
  }
  // Aborts everything that runs there, other threads' calls too; the communicator is gone
  // afterwards.
  void abort() {
    ncclComm_t const comm = take();
    if (comm) library_.ncclCommAbort(comm);
  }
  ncclResult_t async_error() const {
    const std::lock_guard lock(guard_);
    ncclResult_t state = ncclSuccess;
    if (!comm_) return state;
    const ncclResult_t asked = library_.ncclCommGetAsyncError(comm_, &state);
    return asked != ncclSuccess ? asked : state;
  }

 private:
  ncclComm_t take() {
    const std::lock_guard lock(guard_);
    return std::exchange(comm_, nullptr);
  }

  const Fallback& library_;
  mutable std::mutex guard_;
  ncclComm_t comm_;
};

}  // namespace pith::nccl
