// One allgather of messages of unknown lengths, with the memory of all its ranks and its checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/allgatherv_unknown.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

struct UnknownCase {
  std::vector<std::size_t> lengths;  // by rank
  std::size_t capacity = 0;
  std::size_t chunk_bytes = 64;
  bool in_place = false;

  int ranks() const { return static_cast<int>(lengths.size()); }
};

inline std::string describe(const UnknownCase& c) {
  std::string text = fmt::format("capacity {}, chunks of {}, {}, lengths", c.capacity,
                                 c.chunk_bytes, c.in_place ? "in place" : "out of place");
  for (const std::size_t length : c.lengths) text += fmt::format(" {}", length);
  return text;
}

class UnknownProgram final : public Program {
 public:
  explicit UnknownProgram(UnknownCase c) : case_(std::move(c)) {
    for (std::size_t rank = 0; rank < case_.lengths.size(); ++rank) {
      Buffer& buffer = buffers_.emplace_back();
      buffer.memory.resize(recv_bytes() + margin + case_.lengths[rank], beside);
      buffer.lengths.resize(case_.lengths.size(), ~std::size_t{0});
      const Bytes own = args(static_cast<int>(rank)).send;
      for (std::size_t i = 0; i < own.size; ++i) own.data[i] = content(rank, i);
    }
  }

  UnknownGather args(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::byte* memory = buffers_[r].memory.data();
    std::byte* own = memory + (case_.in_place ? r * case_.capacity : recv_bytes() + margin);
    return {{own, case_.lengths[r]},
            {memory, recv_bytes()},
            case_.capacity,
            buffers_[r].lengths,
            case_.chunk_bytes};
  }
  Task<Error> start(Call& call, int rank) override { return allgatherv_unknown(call, args(rank)); }
  std::span<std::byte> memory(int rank) override {
    // Without the message, so that a copy of it that comes too late is seen.
    return std::span(buffers_[static_cast<std::size_t>(rank)].memory).first(recv_bytes() + margin);
  }

  // Every message in its slot and nothing behind it.
  std::string check() const {
    for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
      const Buffer& buffer = buffers_[rank];
      if (buffer.lengths != case_.lengths) return fmt::format("rank {}: lengths are wrong", rank);
      for (std::size_t i = 0; i < recv_bytes() + margin; ++i) {
        const std::size_t from = case_.capacity == 0 ? buffers_.size() : i / case_.capacity;
        const std::size_t at = case_.capacity == 0 ? 0 : i % case_.capacity;
        const bool is_message = from < buffers_.size() && at < case_.lengths[from];
        if (buffer.memory[i] != (is_message ? content(from, at) : beside)) {
          return fmt::format("rank {}: byte {} of slot {} is wrong", rank, at, from);
        }
      }
    }
    return {};
  }

 private:
  static constexpr std::byte beside{0xC3};
  static constexpr std::size_t margin = 64;
  struct Buffer {
    std::vector<std::byte> memory;
    std::vector<std::size_t> lengths;
  };

  std::size_t recv_bytes() const { return case_.capacity * case_.lengths.size(); }
  static std::byte content(std::size_t rank, std::size_t i) {
    return static_cast<std::byte>(random_bits(1, rank, i));
  }

  UnknownCase case_;
  std::vector<Buffer> buffers_;
};

}  // namespace pith::test
