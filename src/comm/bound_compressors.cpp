#include "comm/bound_compressors.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "collectives/compressed_check.hpp"
#include "comm/communicator.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

// A failed call holds its compressor until no peer touches the compressor's memory any more.
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

void BoundCompressors::bind(const std::shared_ptr<Compressor>& compressor) {
  const std::weak_ptr<void>& last = compressor->binding;
  if (last.lock().get() == static_cast<void*>(&owner_)) return;
  // A compressor that was just loaded has no binding yet and continues with its first communicator.
  const std::weak_ptr<void> none;
  const bool was_bound = last.owner_before(none) || none.owner_before(last);
  // Expired entries are erased before the list would grow.
  if (compressors_.size() == compressors_.capacity()) {
    std::erase_if(compressors_, [](const auto& known) { return known.expired(); });
  }
  compressors_.push_back(compressor);
  if (was_bound) compressor->forget_delivered();
  compressor->binding = owner_.shared_from_this();
}

Error BoundCompressors::check(std::span<const CompressedTensor> tensors) const {
  for (const CompressedTensor& tensor : tensors) {
    if (Error error = tensor.compressor->check_move_to(nullptr)) return error;
  }
  return check_compressed_call(links_.context(), tensors);
}

void BoundCompressors::absorb(std::span<CompressedTensor> tensors) {
  links_.engine().own();
  absorb_gradients(links_.compute(), 0, tensors);
  links_.engine().disown();
}

void BoundCompressors::give_back(std::uint64_t completed) {
  for (const std::weak_ptr<Compressor>& known : compressors_) {
    const std::shared_ptr<Compressor> compressor = known.lock();
    if (!compressor || !wait_for(*compressor)) continue;
    if (compressor->binding.lock().get() == static_cast<void*>(&owner_)) {
      links_.engine().own();
      const Error error = without_throwing([&]() -> Error {
        compressor->return_after(links_.compute(), call_number(completed));
        return {};
      });
      links_.engine().disown();
      if (error) {
        log(LogLevel::warn, fmt::format("rank {}: what a compressor had sent and others did not "
                                        "receive is lost: {}",
                                        links_.rank(), error.message()));
      }
      compressor->binding.reset();
      compressor->bypass_control = {};  // fewer ranks have other times
      compressor->gossip.forget();      // and other neighbours
    }
    compressor->release();
  }
  compressors_.clear();
  shrunk_.store(true, std::memory_order_release);
}

}  // namespace pith
