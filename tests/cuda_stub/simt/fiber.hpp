// A thread of a kernel: a stack of its own that its scheduler resumes until it suspends itself. A
// fiber is resumed by one operating system's thread at a time, though not always by the same.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace pith::simt {

class Fiber {
 public:
  // Runs `main(of)`, which never returns.
  Fiber(void (*main)(void* of), void* of);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // By the scheduler; returns when the fiber suspends itself.
  void resume();
  // By the fiber.
  void suspend();
  // For ThreadSanitizer: a name, and that what it has done comes before who acquires the token.
  void name(const char* name);
  void release(void* token);

 private:
  std::byte* memory_;
#if defined(__x86_64__)
  void* own_ = nullptr;
  void* resumer_ = nullptr;
#else
  ucontext_t own_;
  ucontext_t resumer_;
#endif
  void* races_own_ = nullptr;  // ThreadSanitizer's view of both
  void* races_resumer_ = nullptr;
};

}  // namespace pith::simt
