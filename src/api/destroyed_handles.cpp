#include "api/destroyed_handles.hpp"

#include <array>
#include <memory>
#include <mutex>

#include "api/group.hpp"

namespace pith::api {

namespace {

// The last ones. An older one's memory may be another handle's, as it would be without all this.
class DestroyedHandles {
 public:
  void keep(pithComm_t comm) {
    std::unique_ptr<pithComm> oldest(comm);
    const std::lock_guard lock(mutex_);
    kept_[next_].swap(oldest);
    next_ = (next_ + 1) % kept_.size();
  }

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<pithComm>, 1024> kept_;
  std::size_t next_ = 0;
};

}  // namespace

void keep_destroyed(pithComm_t comm) noexcept {
  comm->let_go();
  try {
    PerProcess<DestroyedHandles>::get().keep(comm);
  } catch (...) {  // no memory to keep it in
    delete comm;
  }
}

}  // namespace pith::api
