// Runs a kernel's grid with a fiber for every CUDA thread, on the thread that calls. Which of them
// runs next is drawn from a seed wherever one of them waits, and now and then at accesses to words
// that threads share; a few blocks are there at once, begun in the order of their indices.
//
// What a device would hang at or leave undefined ends the launch with a message: a barrier that a
// thread misses because it has ended or is elsewhere, a warp's operation that some of its lanes
// do not reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pith::simt {

struct Launch {
  const char* name = "";
  unsigned threads = 256;  // of a block: whole warps
  unsigned blocks = 1;
  std::size_t shared_bytes = 0;
  void (*body)(const void* args, void* shared) = nullptr;  // of one thread
  const void* args = nullptr;
  std::uint64_t seed = 1;
  bool (*goes_on)(void* of) = nullptr;  // asked now and then; null: always
  void* of = nullptr;
};

// What went wrong; empty: nothing.
std::string run(const Launch& launch);

// The rest is for the threads of a launch.
unsigned thread_index();
unsigned block_index();
unsigned block_count();

void barrier();
bool barrier_or(bool value);  // whether any thread of the block gave true

// Operations of a warp that all of its lanes take part in.
enum class WarpOp { shuffle, vote, sync };
// What lane `from` has given.
std::uint64_t shuffle(unsigned mask, std::uint64_t bits, unsigned from);
unsigned vote(unsigned mask, bool value);
void sync_warp(unsigned mask);

// Another thread may run now.
void may_switch();
// Now and then the launch stands still for a moment: the host and other launches go on.
void may_be_late();
// The thread has nothing to do but to look again.
void rest();
void fence();
void has_read(const void* word);
void writes(const void* word);
void modifies(const void* word);

}  // namespace pith::simt
