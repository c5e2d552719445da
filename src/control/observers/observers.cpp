#include "control/observers/observers.hpp"

#include <cerrno>
#include <utility>

#include "control/control_frames.hpp"
#include "transport/socket.hpp"

namespace pith {

void Observers::add(Descriptor connection, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (observers_.size() >= most) return;
  observers_.push_back({std::move(connection), {}, 0, now_ns, false});
  count_.store(observers_.size(), std::memory_order_relaxed);
}

bool Observers::any_ready() const {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  for (const Observer& one : observers_) {
    if (one.out.empty()) return true;
  }
  return false;
}

void Observers::show(const std::string& text, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  for (Observer& one : observers_) {
    if (!one.out.empty()) continue;
    append_control_frame(one.out, text);
    send(one, now_ns);
  }
}

void Observers::turn(std::uint64_t now_ns) {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  for (Observer& one : observers_) {
    send(one, now_ns);
    one.gone = one.gone || !is_open(one) || now_ns - one.moved_ns > patience_ns;
  }
  observers_.remove_if([](const Observer& one) { return one.gone; });
  count_.store(observers_.size(), std::memory_order_relaxed);
}

void Observers::close() {
  const std::lock_guard lock(mutex_);
  for (Observer& one : observers_) {
    if (one.out.empty()) append_goodbye(one.out);
    send(one, one.moved_ns);
  }
  observers_.clear();
  count_.store(0, std::memory_order_relaxed);
}

// It has nothing to say: one that talks would keep the control thread awake.
bool Observers::is_open(const Observer& observer) {
  char said = 0;
  const ssize_t got = ::recv(observer.connection.get(), &said, sizeof said, MSG_DONTWAIT);
  return got < 0 && would_block(errno);
}

void Observers::send(Observer& observer, std::uint64_t now_ns) {
  while (observer.out_done < observer.out.size()) {
    const ssize_t sent =
        ::send(observer.connection.get(), observer.out.data() + observer.out_done,
               observer.out.size() - observer.out_done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      observer.gone = !would_block(errno);
      return;
    }
    observer.out_done += static_cast<std::size_t>(sent);
    observer.moved_ns = now_ns;
  }
  observer.out.clear();
  observer.out_done = 0;
  observer.moved_ns = now_ns;
}

}  // namespace pith
