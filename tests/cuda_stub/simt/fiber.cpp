#include "tests/cuda_stub/simt/fiber.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "tests/cuda_stub/simt/races.hpp"

#if defined(__x86_64__)
// Saves what a function has to keep on the own stack and takes it from the other one. A new stack
// holds a function and its argument in two of these registers.
asm(R"(
.text
.hidden pith_simt_switch
.globl pith_simt_switch
.type pith_simt_switch, @function
pith_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pith_simt_switch, .-pith_simt_switch
.hidden pith_simt_begin
.globl pith_simt_begin
.type pith_simt_begin, @function
pith_simt_begin:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size pith_simt_begin, .-pith_simt_begin
)");
extern "C" void pith_simt_switch(void** from, void* to);
extern "C" void pith_simt_begin();
#endif

namespace pith::simt {

namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
constexpr std::size_t guard_bytes = std::size_t{4} << 10;

std::byte* new_stack() {
  void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0) std::abort();
  return static_cast<std::byte*>(memory);
}

// Stacks begin at different places of their pages, or all of them would meet in the same sets of
// the caches.
std::size_t colour() {
  static std::atomic<std::size_t> next{0};
  return next++ % 61 * 64;
}

}  // namespace

#if defined(__x86_64__)

Fiber::Fiber(void (*main)(void* of), void* of) : memory_(new_stack()) {
  auto* const top = reinterpret_cast<std::uint64_t*>(memory_ + stack_bytes - 64 - colour());
  // From below: r15, r14, r13, r12, rbx, rbp and where to return to, behind which it is aligned.
  std::uint64_t* const frame = top - 7;
  frame[3] = reinterpret_cast<std::uint64_t>(of);
  frame[4] = reinterpret_cast<std::uint64_t>(main);
  frame[6] = reinterpret_cast<std::uint64_t>(&pith_simt_begin);
  own_ = frame;
  races_own_ = races_new_fiber();
}

void Fiber::resume() {
  races_resumer_ = races_this_fiber();
  races_switch_to(races_own_);
  pith_simt_switch(&resumer_, own_);
}
void Fiber::suspend() {
  races_switch_to(races_resumer_);
  pith_simt_switch(&own_, resumer_);
}

#else

namespace {

// makecontext hands integers over.
void begin(unsigned main_high, unsigned main_low, unsigned of_high, unsigned of_low) {
  const auto join = [](unsigned high, unsigned low) { return std::uint64_t{high} << 32 | low; };
  const auto main = reinterpret_cast<void (*)(void*)>(join(main_high, main_low));
  main(reinterpret_cast<void*>(join(of_high, of_low)));
}

}  // namespace

Fiber::Fiber(void (*main)(void* of), void* of) : memory_(new_stack()) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = memory_ + guard_bytes;
  own_.uc_stack.ss_size = stack_bytes - guard_bytes - colour();
  own_.uc_link = nullptr;
  const auto m = reinterpret_cast<std::uint64_t>(main);
  const auto o = reinterpret_cast<std::uint64_t>(of);
  makecontext(&own_, reinterpret_cast<void (*)()>(begin), 4, static_cast<unsigned>(m >> 32),
              static_cast<unsigned>(m), static_cast<unsigned>(o >> 32), static_cast<unsigned>(o));
  races_own_ = races_new_fiber();
}

void Fiber::resume() {
  races_resumer_ = races_this_fiber();
  races_switch_to(races_own_);
  swapcontext(&resumer_, &own_);
}
void Fiber::suspend() {
  races_switch_to(races_resumer_);
  swapcontext(&own_, &resumer_);
}

#endif

Fiber::~Fiber() {
  races_end_fiber(races_own_);
  munmap(memory_, stack_bytes);
}

void Fiber::name(const char* name) { races_name(races_own_, name); }

void Fiber::release(void* token) {
  void* const caller = races_this_fiber();
  races_switch_to(races_own_);
  races_release(token);
  races_switch_to(caller);
}

}  // namespace pith::simt
