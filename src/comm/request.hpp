// Calls that were issued together, with all that they use until they have ended.
//
// Requests are used again, with the memory that they hold: in steady state groups allocate nothing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/refilled.hpp"

namespace pith {

// The messages between one communicator's ranks on one stream; they all move at once.
struct MessageBatch {
  std::shared_ptr<Communicator> communicator;
  void* stream = nullptr;  // null: host memory
  std::vector<Message> messages;

  void clear();
};

// Compressed tensors that become one call: of one communicator, with the same spec and step.
struct CompressedBatch {
  std::shared_ptr<Communicator> communicator;
  void* stream = nullptr;  // null: host memory
  std::size_t place = 0;   // of the call among the group's collectives
  std::vector<CompressedTensor> tensors;
  std::vector<std::shared_ptr<Compressor>> compressors;  // of the tensors; claimed

  void clear();
};

}  // namespace pith

// The request of the C API, where it is opaque.
struct pithRequest {
  // An abort by another thread may drop the handles meanwhile; what the calls use stays.
  std::vector<std::shared_ptr<pith::Communicator>> communicators;
  std::optional<pith::CallGroup> group;
  pith::Refilled<pith::MessageBatch> messages;       // what the calls' arguments point to
  pith::Refilled<pith::CompressedBatch> compressed;  // the same
  pith::Refilled<std::optional<pith::BackgroundCall>> calls;
  std::vector<pith::Engine*> engines;
  pithRequest* next = nullptr;  // while nobody uses it
};

namespace pith {

// Precondition: its calls have ended, or were never issued. Any thread.
struct GiveBack {
  void operator()(pithRequest* request) const noexcept;
};
using Request = std::unique_ptr<pithRequest, GiveBack>;

// An empty one; on any thread.
Request take_request();

}  // namespace pith
