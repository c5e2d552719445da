#include "nccl/compression/ballot.hpp"

#include <utility>

#include "comm/group.hpp"
#include "streams/stream_memory.hpp"

namespace pith::nccl {

void Compression::Sum::become(std::shared_ptr<Vector> vector) {
  vector_ = std::move(vector);
  find_first();
  if (!vector_) return;
  tensor_.compressor = &vector_->state();
  tensor_.send = static_cast<const std::byte*>(call_.send);
  tensor_.recv = static_cast<std::byte*>(call_.recv);
  tensor_.count = call_.count;
  tensor_.type = static_cast<DType>(call_.type);
  tensor_.average = call_.op == ncclAvg;
  tensor_.divisor = ranks();
}

CollectiveArgs Compression::Sum::dense() const {
  CollectiveArgs args;
  args.send = bytes_at(call_.send);
  args.recv = bytes_at(call_.recv);
  args.count = call_.count;
  args.type = static_cast<DType>(call_.type);
  args.op = static_cast<Op>(call_.op);
  args.divisor = ranks();
  return args;
}

// Looks once where the memory is, since ready() is called often.
void Compression::Sum::find_first() {
  first_ = nullptr;
  if (!vector_ || by_plan() || !call_.stream || !vector_->state().spec().adapts()) return;
  first_ = this;
  for (const Sum& earlier : ballot_.sums) {
    if (&earlier == this) return;
    const bool same = earlier.first_ == &earlier && earlier.call_.stream == call_.stream &&
                      !are_apart(earlier.call_.send, call_.send);
    if (same) first_ = &earlier;
  }
}

std::vector<CompressedTensor> Compression::Sum::candidates() const {
  std::vector<CompressedTensor> found;
  if (vector_) found.push_back(tensor_);
  for (const Sum& earlier : ballot_.sums) {
    if (&earlier == this) break;
    if (may_join(earlier)) found.push_back(earlier.tensor_);
  }
  return found;
}

// The first of those that may join gets the compressors of all. A stream reaches it first.
bool Compression::Sum::ready() {
  const std::lock_guard lock(owner_.mutex_);
  bool ready = owner_.has_compressor(*this);
  for (Sum& other : ballot_.sums) {
    if (ready && other.may_join(*this)) ready = owner_.has_compressor(other);
  }
  return ready;
}

void Compression::Sum::join(Decision& decision) {
  holds_ = false;
  is_made_ = true;
  decision.tensors.push_back(tensor_);
  decision.compressors.push_back(vector_->compressor->state);
}

// The ballot may be destroyed once its last sum has been taken.
LateChoice::Decision Compression::Sum::take() {
  const std::lock_guard lock(owner_.mutex_);
  Decision decision;
  decision.is_made = is_made_;
  if (holds_) {
    join(decision);
    const Compressor& own = vector_->state();
    for (Sum& other : ballot_.sums) {
      const bool joins = other.holds_ && other.may_join(*this);
      if (joins && are_one_exchange(own, other.vector_->state())) other.join(decision);
    }
  }
  --ballot_.left;
  return decision;
}

}  // namespace pith::nccl
