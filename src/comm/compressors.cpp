// The compressors of a communicator: which ones have called, and what returns to them.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "collectives/compressed.hpp"
#include "collectives/compressed_check.hpp"
#include "comm/communicator.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

// A failed call holds its compressor until no peer touches its memory any more.
constexpr std::uint64_t release_ns = 2'000'000'000;

bool wait_for(Compressor& compressor) {
  const Patience patience(monotonic_ns() + release_ns);
  while (!compressor.claim()) {
    if (patience.over()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace

void Communicator::bind(const std::shared_ptr<Compressor>& compressor) {
  const std::weak_ptr<void>& last = compressor->binding;
  if (last.lock().get() == static_cast<void*>(this)) return;
  // One that was loaded goes on with its first communicator.
  const std::weak_ptr<void> none;
  const bool was_bound = last.owner_before(none) || none.owner_before(last);
  // Most of those that are gone have been destroyed; where none has, the room grows.
  if (compressors_.size() == compressors_.capacity()) {
    std::erase_if(compressors_, [](const auto& known) { return known.expired(); });
  }
  compressors_.push_back(compressor);
  if (was_bound) compressor->forget_delivered();
  compressor->binding = shared_from_this();
}

Error Communicator::check(std::span<const CompressedTensor> tensors) const {
  for (const CompressedTensor& tensor : tensors) {
    if (Error error = tensor.compressor->check_move_to(nullptr)) return error;
  }
  return check_compressed_call(context_, tensors);
}

void Communicator::absorb(std::span<CompressedTensor> tensors) {
  engine_->own();
  absorb_gradients(compute_, 0, tensors);
  engine_->disown();
}

// After a shrink: the survivors have agreed on the last call that all of them completed.
void Communicator::return_to_compressors(std::uint64_t completed) {
  if (is_revoked_.load(std::memory_order_acquire)) drain();
  for (const std::weak_ptr<Compressor>& known : compressors_) {
    const std::shared_ptr<Compressor> compressor = known.lock();
    if (!compressor || !wait_for(*compressor)) continue;
    if (compressor->binding.lock().get() == static_cast<void*>(this)) {
      engine_->own();
      const Error error = without_throwing([&]() -> Error {
        compressor->return_after(compute_, call_number(completed));
        return {};
      });
      engine_->disown();
      if (error) {
        log(LogLevel::warn, fmt::format("rank {}: what a compressor had sent and others did not "
                                        "receive is lost: {}",
                                        rank(), error.message()));
      }
      compressor->binding.reset();
    }
    compressor->release();
  }
  compressors_.clear();
  shrunk_.store(true, std::memory_order_release);
}

}  // namespace pith
