#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "transport/descriptor_table.hpp"
#include "transport/socket.hpp"

namespace pith {

// All open Descriptors of this process. The lock is taken before a fork and released on both sides,
// so the child finds a consistent list; there it calls async-signal-safe functions only. A child
// inherits nothing from a thread with its own table (descriptor_table.hpp) that did not fork,
// so that thread's are not in the list: the child would close others of the same numbers.
class OpenDescriptors {
 public:
  static void add(Descriptor& one, int fd) {
    if (fd < 0) return;
    watch_forks();
    const std::lock_guard lock(mutex);
    put(one, fd);
  }
  static void move(Descriptor& from, Descriptor& to) {
    const std::lock_guard lock(mutex);
    const int fd = take(from);
    if (fd >= 0) put(to, fd);
  }
  static void swap(Descriptor& one, Descriptor& other) {
    const std::lock_guard lock(mutex);
    const int from_one = take(one);
    const int from_other = take(other);
    if (from_other >= 0) put(one, from_other);
    if (from_one >= 0) put(other, from_one);
  }
  // Under the lock, or a child forked in between would keep it open.
  static void close(Descriptor& one) {
    const std::lock_guard lock(mutex);
    ::close(take(one));
  }
  static void hand_over(Descriptor& one) {
    const std::lock_guard lock(mutex);
    const int fd = take(one);
    one.fd_ = fd;
    ::close(fd);
  }

 private:
  static void put(Descriptor& one, int fd) {
    one.fd_ = fd;
    if (has_own_descriptor_table()) return;
    one.next_ = first;
    if (first) first->previous_ = &one;
    first = &one;
  }
  static int take(Descriptor& one) {
    const int fd = std::exchange(one.fd_, -1);
    const bool listed = one.next_ || one.previous_ || first == &one;
    if (fd < 0 || !listed) return fd;
    if (one.next_) one.next_->previous_ = one.previous_;
    (one.previous_ ? one.previous_->next_ : first) = one.next_;
    one.next_ = one.previous_ = nullptr;
    return fd;
  }
  static void watch_forks() {
    static const int registered = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                                                 [] {
                                                   close_all();
                                                   mutex.unlock();
                                                 });
    static_cast<void>(registered);
  }
  // close() without shutdown(): the connections are the parent's.
  static void close_all() {
    while (first) ::close(take(*first));
  }

  static constinit std::mutex mutex;
  static constinit Descriptor* first;
};

constinit std::mutex OpenDescriptors::mutex;
constinit Descriptor* OpenDescriptors::first = nullptr;

Descriptor::Descriptor(int fd) { OpenDescriptors::add(*this, fd); }

Descriptor::Descriptor(Descriptor&& other) noexcept {
  if (other) OpenDescriptors::move(other, *this);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (&other != this) OpenDescriptors::swap(*this, other);
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) OpenDescriptors::close(*this);
}

void hand_over(Descriptor& descriptor) {
  if (descriptor) OpenDescriptors::hand_over(descriptor);
}

}  // namespace pith
