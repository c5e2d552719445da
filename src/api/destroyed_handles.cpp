#include "api/destroyed_handles.hpp"

#include <array>
#include <memory>
#include <mutex>

#include "api/comm_handle.hpp"
#include "api/compressor_handle.hpp"

namespace pith::api {

namespace {

// The handles destroyed last. The memory of older ones is freed and may become another handle.
template <class Handle>
class DestroyedHandles {
 public:
  void keep(std::unique_ptr<Handle>& handle) {
    const std::lock_guard lock(mutex_);
    kept_[next_].swap(handle);
    next_ = (next_ + 1) % kept_.size();
  }

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<Handle>, 1024> kept_;
  std::size_t next_ = 0;
};

// Keeps the handle, and frees the oldest one in exchange.
template <class Handle>
void keep(std::unique_ptr<Handle> handle) noexcept {
  try {
    PerProcess<DestroyedHandles<Handle>>::get().keep(handle);
  } catch (...) {  // no memory for the list: the handle is freed now
  }
}

}  // namespace

void keep_destroyed(pithComm_t comm) noexcept {
  comm->let_go();
  keep(std::unique_ptr<pithComm>(comm));
}

void keep_destroyed(pithCompressor_t compressor) noexcept {
  compressor->state.reset();
  keep(std::unique_ptr<pithCompressor>(compressor));
}

}  // namespace pith::api
