// Tells when memory of this process is given back to the system, so that registrations of it are
// not used for what is mapped there next. UCX's event library does the watching: it patches munmap,
// mremap, madvise, shmdt and brk of the process, at the first use and for good.
#pragma once

#include <cstddef>

#include "core/error.hpp"

namespace pith {

class MemoryListener {
 public:
  // Called by the thread that gives up the memory, before it is gone, possibly inside malloc() or
  // free(): must not allocate, free, or wait for anything that does.
  virtual void leaves(const std::byte* data, std::size_t bytes) noexcept = 0;

 protected:
  ~MemoryListener() = default;

 private:
  friend class MemoryEvents;
  MemoryListener* next_ = nullptr;
};

class MemoryEvents {
 public:
  // Begins to watch, and tries it out; or why it cannot. Thread-safe, as the others.
  static Error begin();
  static void add(MemoryListener& listener);
  // The listener is not called any more once this has returned.
  static void remove(MemoryListener& listener);

 private:
  struct Source;
  static void tell(const std::byte* data, std::size_t bytes) noexcept;
};

}  // namespace pith
