#include "frame/memory.hpp"

#include <fmt/format.h>
#include <pith/pith.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "must.hpp"

namespace pith_perf {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

Memory::Memory(std::size_t bytes, bool registered) : registered_(registered) {
  void* memory = nullptr;
  if (registered) {
    pith_bench::must(pithMemAlloc(&memory, bytes), "pithMemAlloc");
  } else {
    memory = std::aligned_alloc(page_bytes, (bytes + page_bytes - 1) / page_bytes * page_bytes);
    if (memory == nullptr) throw std::runtime_error(fmt::format("no memory: {} bytes", bytes));
  }
  std::memset(memory, 0, bytes);
  data_ = static_cast<std::byte*>(memory);
}

Memory::~Memory() { registered_ ? static_cast<void>(pithMemFree(data_)) : std::free(data_); }

Memory::Memory(Memory&& from) noexcept
    : registered_(from.registered_), data_(std::exchange(from.data_, nullptr)) {}

}  // namespace pith_perf
