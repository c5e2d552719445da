// What orders the memory accesses of a kernel's threads, told to ThreadSanitizer: launches,
// barriers of a block, and fences together with the atomic and volatile accesses around them, as
// C++ has it: what a thread did before a fence comes before what another does after a fence, if
// between them the second has read what the first has written. Nothing else does, shuffles and
// votes least. Without ThreadSanitizer all this is nothing.
//
// The sources of this folder but the kernels' are not instrumented themselves.
#pragma once

#include <cstddef>
#include <memory>

namespace pith::simt {

#ifdef PITH_SIMT_TSAN

void* races_new_fiber();
void races_end_fiber(void* fiber);
void* races_this_fiber();
void races_switch_to(void* fiber);
void races_name(void* fiber, const char* name);
void races_release(void* where);
void races_acquire(void* where);

#else

inline void* races_new_fiber() { return nullptr; }
inline void races_end_fiber(void*) {}
inline void* races_this_fiber() { return nullptr; }
inline void races_switch_to(void*) {}
inline void races_name(void*, const char*) {}
inline void races_release(void*) {}
inline void races_acquire(void*) {}

#endif

// What ThreadSanitizer keeps clocks for.
struct alignas(8) Token {
  char at[8];
};

// Of one thread since it began.
struct Fences {
  Token* last = nullptr;  // what was done before its last fence; null: none yet
  struct Read;
  std::unique_ptr<Read> read;  // what the next one puts in order
  Fences();
  ~Fences();
  void clear();
};

// The words through which threads of one launch meet.
class Words {
 public:
  Words();  // by the scheduler
  ~Words();
  void fence(Fences& fences);
  void has_read(Fences& fences, const void* word);
  void writes(Fences& fences, const void* word);
  void modifies(Fences& fences, const void* word);  // reads and writes it

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace pith::simt
