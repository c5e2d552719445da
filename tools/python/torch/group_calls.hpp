// How the calls of a process group run: at once, or in the background.
//
// Calls begin in the order of their issue. A call with asyncOp = false runs in its caller's thread,
// others in libpith's background. A call on CUDA tensors is put into the current stream.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "communicator.hpp"
#include "completer.hpp"
#include "request.hpp"

namespace pith_torch {

using TensorList = std::vector<at::Tensor>;
using TensorLists = std::vector<TensorList>;
using WorkReturned = c10::intrusive_ptr<c10d::Work>;

// What a call does. `issue` makes the calls of libpith; `finish` runs after them.
struct Call {
  CallFacts facts;
  std::function<void(pithComm_t, pithStream_t)> issue;
  std::function<void()> finish;
  bool grouped = false;  // `issue` makes several calls, which run together
  at::Tensor where;      // a tensor on the call's device
};

class GroupCalls : public c10d::Backend {
 public:
  explicit GroupCalls(std::unique_ptr<Communicator> comm);

  // All calls between the two end when the work of endCoalescing() does. Each begins at once.
  void startCoalescing() override;
  WorkReturned endCoalescing() override;
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}

 protected:
  // Errors of the call are told by the work.
  WorkReturned run(Call call, bool async);
  // For what is not a collective.
  WorkReturned run_pending(CallFacts facts, std::unique_ptr<Pending> pending);
  void check_root(int64_t root, const char* what) const;

  std::unique_ptr<Communicator> comm_;
  std::mutex mutex_;                            // collectives are issued one at a time
  const std::shared_ptr<Completer> completer_;  // works may outlive the group

 private:
  void run_here(Call& call, pithStream_t stream, PithWork& work);
  void run_in_background(Call& call, const WorkPtr& work);
  WorkPtr returned(WorkPtr work);

  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<bool> coalescing_{false};
  std::mutex coalesced_mutex_;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace pith_torch
