// Spans of memory with a kind, so that host and CUDA memory can travel through the same code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

enum class MemoryKind : std::uint8_t { host, cuda };

// A view of memory that somebody else owns.
struct Bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  MemoryKind kind = MemoryKind::host;

  Bytes part(std::size_t offset, std::size_t length) const {
    return {data ? data + offset : nullptr, length, kind};
  }
};

// The same to be read only, on whatever kind of memory.
struct ConstBytes {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

}  // namespace pith
