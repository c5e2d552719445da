// Calls that were issued together, with everything that they use until they have ended.
//
// Requests are reused with their memory, so groups allocate nothing in steady state.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/refilled.hpp"

namespace pith {

// The messages of one communicator on one stream; they all move at once.
struct MessageBatch {
  std::shared_ptr<Communicator> communicator;
  void* stream = nullptr;  // null: host memory
  std::vector<Message> messages;

  void clear();
};

// Compressed tensors of one communicator with the same spec and step; they become one call.
struct CompressedBatch {
  std::shared_ptr<Communicator> communicator;
  void* stream = nullptr;  // null: host memory
  std::size_t place = 0;   // index of the call in the group
  std::vector<CompressedTensor> tensors;
  std::vector<std::shared_ptr<Compressor>> compressors;  // of the tensors, in order; claimed

  void clear();
};

}  // namespace pith

// The request of the C API, where it is opaque.
struct pithRequest {  // NOLINT(readability-identifier-naming)
  // Keeps the communicators alive: another thread may abort and drop the handles while calls run.
  std::vector<std::shared_ptr<pith::Communicator>> communicators;
  std::optional<pith::CallGroup> group;
  pith::Refilled<std::vector<pith::Range>> blocks;   // memory of the calls' arguments
  pith::Refilled<pith::MessageBatch> messages;       // memory of the calls' arguments
  pith::Refilled<pith::CompressedBatch> compressed;  // memory of the calls' arguments
  pith::Refilled<std::optional<pith::BackgroundCall>> calls;
  std::vector<pith::Engine*> engines;
  unsigned process = 0;         // fork_generation() of that which has begun the calls
  pithRequest* next = nullptr;  // in the pool of unused requests
};

namespace pith {

// Precondition: its calls have ended, or were never issued. Any thread.
struct GiveBack {
  void operator()(pithRequest* request) const noexcept;
};
using Request = std::unique_ptr<pithRequest, GiveBack>;

// Returns an empty request. Any thread.
Request take_request();

}  // namespace pith
