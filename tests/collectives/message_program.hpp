// Random messages between the ranks of a communicator, all of one call under way at once, with the
// memory of all ranks and the check of what arrived.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/point_to_point.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

struct MessageCase {
  int ranks = 2;
  std::size_t messages = 4;
  std::size_t most_bytes = 200;
  std::size_t chunk_bytes = 64;
  std::uint64_t seed = 1;
};

inline std::string describe(const MessageCase& c) {
  return fmt::format("{} messages among {} ranks, up to {} bytes in chunks of {}, seed {}",
                     c.messages, c.ranks, c.most_bytes, c.chunk_bytes, c.seed);
}

// How many messages of a pair have gone before, and the ranks' windows; shared by the calls on one
// communicator.
struct MessageCounts {
  std::map<std::pair<int, int>, std::uint32_t> sent;
  std::vector<PairWindows> windows;  // by rank; empty until the first call
};

class MessageProgram final : public Program {
 public:
  MessageProgram(const MessageCase& c, MessageCounts& counts)
      : case_(c),
        buffers_(static_cast<std::size_t>(c.ranks)),
        lists_(buffers_.size()),
        windows_(counts.windows) {
    if (windows_.empty()) draw_windows();
    for (std::size_t m = 0; m < c.messages; ++m) draw(m, counts);
    for (auto& buffer : buffers_) buffer.insert(buffer.end(), margin, beside);
    for (const Drawn& one : drawn_) add(one);
  }

  Task<Error> start(Call& call, int rank) override {
    const auto r = static_cast<std::size_t>(rank);
    return exchange_messages(call, lists_[r], windows_[r], case_.chunk_bytes);
  }
  std::span<std::byte> memory(int rank) override {
    return buffers_[static_cast<std::size_t>(rank)];
  }

  // Both ends of every message hold what was sent, and nothing else was written.
  std::string check() const {
    for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
      std::vector<std::byte> expected(buffers_[rank].size(), beside);
      for (const Drawn& one : drawn_) {
        for (std::size_t i = 0; i < one.bytes; ++i) {
          if (one.from == static_cast<int>(rank)) expected[one.at_sender + i] = content(one, i);
          if (one.to == static_cast<int>(rank)) expected[one.at_receiver + i] = content(one, i);
        }
      }
      if (expected != buffers_[rank]) return fmt::format("rank {}: a message is wrong", rank);
    }
    return {};
  }

 private:
  static constexpr std::byte beside{0xC3};
  static constexpr std::size_t margin = 16;
  struct Drawn {
    int from;
    int to;
    std::size_t name;
    std::size_t bytes;
    std::uint32_t number;
    std::size_t at_sender;  // offsets
    std::size_t at_receiver;
  };

  std::size_t below(std::size_t n, std::size_t name, std::size_t which) const {
    return random_bits(case_.seed, 1000 + which, name) % n;
  }
  std::byte content(const Drawn& one, std::size_t i) const {
    return static_cast<std::byte>(random_bits(case_.seed, one.name, i));
  }

  std::size_t take(int rank, std::size_t bytes) {
    auto& buffer = buffers_[static_cast<std::size_t>(rank)];
    const std::size_t at = buffer.size() + margin;
    buffer.resize(at + bytes, beside);
    return at;
  }

  // From windows that have room for no message to those that have room for all.
  void draw_windows() {
    const std::size_t ranks = buffers_.size();
    const PairWindows drawn(ranks, std::size_t{128} << random_bits(case_.seed, 999, 0) % 8);
    windows_.assign(ranks, drawn);
  }

  void draw(std::size_t name, MessageCounts& counts) {
    const auto ranks = static_cast<std::size_t>(case_.ranks);
    Drawn one{};
    one.from = static_cast<int>(below(ranks, name, 0));
    one.to = static_cast<int>(below(ranks, name, 1));
    one.name = name;
    one.bytes = below(case_.most_bytes + 1, name, 2);
    one.number = counts.sent[{one.from, one.to}]++;
    one.at_sender = take(one.from, one.bytes);
    one.at_receiver = take(one.to, one.bytes);
    drawn_.push_back(one);
  }

  // Anywhere in the rank's list; who is matched with whom depends on the numbers only.
  void insert(int rank, Message message, std::size_t where) {
    auto& list = lists_[static_cast<std::size_t>(rank)];
    const auto at = static_cast<std::ptrdiff_t>(where % (list.size() + 1));
    list.insert(message.peer == rank ? list.end() : list.begin() + at, message);
  }

  void add(const Drawn& one) {
    const auto data = [&](int rank, std::size_t at) {
      return Bytes{buffers_[static_cast<std::size_t>(rank)].data() + at, one.bytes};
    };
    const Bytes from = data(one.from, one.at_sender);
    for (std::size_t i = 0; i < one.bytes; ++i) from.data[i] = content(one, i);
    insert(one.from, {from, one.bytes, DType::u8, one.to, true, one.number},
           below(1000, one.name, 3));
    insert(one.to,
           {data(one.to, one.at_receiver), one.bytes, DType::u8, one.from, false, one.number},
           below(1000, one.name, 4));
  }

  MessageCase case_;
  std::vector<Drawn> drawn_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::vector<Message>> lists_;
  std::vector<PairWindows>& windows_;
};

}  // namespace pith::test
