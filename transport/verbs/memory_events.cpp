#include "transport/verbs/memory_events.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "transport/ucs.hpp"
#include "transport/verbs/spin_lock.hpp"

namespace pith {
namespace {

// Of ucm/api/ucm.h, which need not be there when Pith is built.
constexpr int vm_unmapped = 1 << 17;
struct UcmUnmapped {
  void* address;
  std::size_t size;
};
using UcmCallback = void (*)(int type, UcmUnmapped* event, void* arg);
using UcmSetHandler = signed char (*)(int events, int priority, UcmCallback callback, void* arg);

SpinLock lock;
MemoryListener* listeners = nullptr;

// Hears of one page that is unmapped on purpose.
class Trial final : public MemoryListener {
 public:
  bool succeeds() {
    const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    page_ = static_cast<const std::byte*>(page);
    MemoryEvents::add(*this);
    munmap(page, bytes);
    MemoryEvents::remove(*this);
    return heard_;
  }
  void leaves(const std::byte* data, std::size_t bytes) noexcept override {
    if (data <= page_ && page_ < data + bytes) heard_ = true;
  }

 private:
  const std::byte* page_ = nullptr;
  std::atomic<bool> heard_{false};
};

}  // namespace

// Listeners are called with the lock held, so that remove() can promise that it was the last time.
void MemoryEvents::tell(const std::byte* data, std::size_t bytes) noexcept {
  const std::lock_guard hold(lock);
  for (MemoryListener* one = listeners; one; one = one->next_) one->leaves(data, bytes);
}

struct MemoryEvents::Source {
  static Error begin() {
    // libucm is a part of libucs: neither can be loaded without the other.
    Error why_not;
    void* library = load_ucs(UcsHooks::wanted, why_not);
    if (!library) return why_not;
    const auto set_handler =
        reinterpret_cast<UcmSetHandler>(dlsym(library, "ucm_set_event_handler"));
    if (!set_handler) return {Code::system, "UCX's event library has no ucm_set_event_handler"};
    constexpr int priority = 1000;
    const auto heard = [](int, UcmUnmapped* event, void*) {
      tell(static_cast<const std::byte*>(event->address), event->size);
    };
    if (set_handler(vm_unmapped, priority, heard, nullptr) != 0) {
      return {Code::system, "UCX's event library cannot watch memory here"};
    }
    // A child has no thread that could free the lock, and none that registers memory.
    pthread_atfork(nullptr, nullptr, [] {
      lock.unlock();
      listeners = nullptr;
    });
    if (!Trial().succeeds()) return {Code::system, "UCX's event library misses an munmap"};
    return {};
  }
};

Error MemoryEvents::begin() {
  static const Error result = Source::begin();
  return result;
}

void MemoryEvents::add(MemoryListener& listener) {
  const std::lock_guard hold(lock);
  listener.next_ = listeners;
  listeners = &listener;
}

void MemoryEvents::remove(MemoryListener& listener) {
  const std::lock_guard hold(lock);
  for (MemoryListener** at = &listeners; *at; at = &(*at)->next_) {
    if (*at != &listener) continue;
    *at = listener.next_;
    return;
  }
}

}  // namespace pith
