// Spans of memory with a kind, so that the same code handles host and CUDA memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

enum class MemoryKind : std::uint8_t { host, cuda };

// A view of memory; it does not own it.
struct Bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  MemoryKind kind = MemoryKind::host;

  Bytes part(std::size_t offset, std::size_t length) const {
    return {data ? data + offset : nullptr, length, kind};
  }
};

// A read-only view of memory of any kind.
struct ConstBytes {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

}  // namespace pith
