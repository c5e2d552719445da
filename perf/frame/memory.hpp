// The programs' buffers.
#pragma once

#include <cstddef>

namespace pith_perf {

// A buffer of pithMemAlloc or private memory, with all pages present. Throws std::runtime_error.
class Memory {
 public:
  Memory(std::size_t bytes, bool registered);
  ~Memory();
  Memory(Memory&& from) noexcept;
  Memory& operator=(Memory&&) = delete;
  std::byte* data() const { return data_; }

 private:
  bool registered_;
  std::byte* data_ = nullptr;
};

}  // namespace pith_perf
