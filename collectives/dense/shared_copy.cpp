#include "collectives/dense/shared_copy.hpp"

#include <algorithm>

#include "collectives/patterns.hpp"
#include "core/copy.hpp"

namespace pith {

namespace {

constexpr std::size_t most_bytes = std::size_t{4} << 20;

// Two ranks' messages are written as often, while they are read.
bool saves_copies(const Call& call, Bytes memory, const Tuning& tuning) {
  if (!call.views() || call.size() < 3 || memory.kind != MemoryKind::host) return false;
  const auto lanes = static_cast<std::size_t>(std::max(1, tuning.lanes));
  const std::size_t on_the_way = lanes * tuning.chunk_bytes;
  if (tuning.copies || memory.size < on_the_way || memory.size > most_bytes) return false;
  const int next = wrap(call.rank() + 1, call.size());
  return call.expose(next, memory).reach != MemoryHandle::Reach::load_store;
}

}  // namespace

SharedCopy::SharedCopy(const Call& call, Bytes memory, const Tuning& tuning)
    : call_(call), bytes_(memory) {
  if (!memory.data || !saves_copies(call, memory, tuning)) return;
  copy_ = call.comm().rooms.take(memory.size);
  if (!copy_) return;
  bytes_.data = copy_;
  copy_bytes(copy_, memory.data, memory.size);
}

SharedCopy::~SharedCopy() {
  if (copy_ && !call_.comm().revoked) call_.comm().rooms.give_back(copy_);
}

}  // namespace pith
