#include "nccl/compression/ballot.hpp"

#include <utility>

#include "comm/submit.hpp"

namespace pith::nccl {

void Compression::Sum::become(std::shared_ptr<Vector> vector) {
  vector_ = std::move(vector);
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

bool Compression::Sum::ready() {
  const std::lock_guard lock(owner_.mutex_);
  return owner_.has_compressor(*this);
}

// The ballot may be destroyed once its last sum has been taken.
std::shared_ptr<Compressor> Compression::Sum::take() {
  const std::lock_guard lock(owner_.mutex_);
  std::shared_ptr<Compressor> taken;
  if (std::exchange(holds_, false)) taken = vector_->compressor->state;
  --ballot_.left;
  return taken;
}

}  // namespace pith::nccl
