#include "streams/stream_call.hpp"

#include "streams/stream_execution.hpp"

namespace pith {

StreamCall::StreamCall(StreamExecution& o) : owner(o) {
  Entry::args = &args;
  started = [](cuda::StreamEntry& self) {
    auto& reached = static_cast<StreamCall&>(self);
    reached.owner.reach(reached);
  };
  gone = [](cuda::StreamEntry& self) {
    auto& forgotten = static_cast<StreamCall&>(self);
    forgotten.owner.forget(forgotten);
  };
}

void StreamCall::keep(const CollectiveArgs& given) {
  compressed = false;
  args = given;
  if (given.uneven.used()) std::get<CollectiveArgs>(args).uneven = copied_to(blocks, given.uneven);
}

void StreamCall::keep(const CompressedArgs& given) {
  compressed = true;
  tensors.assign(given.tensors.begin(), given.tensors.end());
  args = CompressedArgs{tensors, given.tuning};
}

void StreamCall::keep(const PairArgs& given) {
  compressed = false;
  messages.assign(given.messages.begin(), given.messages.end());
  args = PairArgs{messages, given.chunk_bytes};
}

StreamCall& StreamCallPool::take(StreamExecution& owner) {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) {
    all_.push_back(std::make_unique<StreamCall>(owner));
    spare_.push_back(all_.back().get());
  }
  StreamCall& call = *spare_.back();
  spare_.pop_back();
  call.messages.clear();
  call.tensors.clear();
  return call;
}

void StreamCallPool::give_back(StreamCall& call) {
  const std::lock_guard lock(mutex_);
  spare_.push_back(&call);
}

}  // namespace pith
