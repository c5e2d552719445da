// Messages that arrived before a receive waited for them. They stay here until a receive takes
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/call_number.hpp"
#include "core/mailbox/tag_buckets.hpp"
#include "core/operation.hpp"
#include "core/pair_message.hpp"

namespace pith {

struct IncomingMessage;

struct StoredMessage {
  static constexpr std::size_t inline_bytes = 64;

  Header header;
  int peer = -1;
  const std::byte* data = nullptr;
  SlotOwner* owner = nullptr;  // null: `small` holds the bytes
  std::uint64_t slot = 0;
  IncomingMessage* incoming = nullptr;  // still arriving
  StoredMessage* next = nullptr;
  std::array<std::byte, inline_bytes> small;

  // The bytes lie in slot `name` of `from`, which the receive gives back or leases.
  void keep(const std::byte* bytes, SlotOwner* from, std::uint64_t name) {
    data = bytes;
    owner = from;
    slot = name;
  }
  // Bytes needed to keep the message.
  static std::size_t room(const Header& header) { return header.length + sizeof(StoredMessage); }
};

class StoredMessages {
 public:
  StoredMessages() { reserve(); }

  bool empty() const { return spare_.size() == all_.size(); }

  // Makes room for the next add(); the only function that allocates. It allocates many at once,
  // because steady state must allocate nothing and how far peers run ahead varies.
  void reserve() {
    if (!spare_.empty()) return;
    constexpr std::size_t batch = 64;
    all_.reserve(all_.size() + batch);
    spare_.reserve(all_.size() + batch);
    for (std::size_t i = 0; i < batch; ++i) {
      all_.push_back(std::make_unique<StoredMessage>());
      spare_.push_back(all_.back().get());
    }
  }
  StoredMessage& add(int peer, const Header& header) {
    StoredMessage& stored = *spare_.back();
    spare_.pop_back();
    stored.header = header;
    stored.peer = peer;
    stored.owner = nullptr;
    stored.incoming = nullptr;
    buckets_.append(peer, header.tag(), stored);
    return stored;
  }

  // The caller reads the message, then calls recycle(). Null: no message fits this receive.
  StoredMessage* take(const Receive& receive, bool of_any_digest) {
    return buckets_.take(receive.peer, receive.tag, [&](const StoredMessage& stored) {
      return stored.peer == receive.peer && stored.header.tag() == receive.tag &&
             (stored.header.digest == receive.digest || receive.tag.lane == pair_lane ||
              of_any_digest);
    });
  }
  void take(StoredMessage& stored) {
    buckets_.take(stored.peer, stored.header.tag(),
                  [&](const StoredMessage& other) { return &other == &stored; });
  }
  // Removes all messages of the communicator, calling f(stored) for each.
  template <class F>
  void take_all(std::uint32_t comm, const F& f) {
    buckets_.take_all([&](const StoredMessage& stored) { return stored.header.comm == comm; }, f);
  }
  void recycle(StoredMessage& stored) { spare_.push_back(&stored); }

  template <class F>
  void for_each(const F& f) const {
    buckets_.for_each(f);
  }
  // A message of the communicator's collectives up to number `call`; null: there is none.
  const StoredMessage* find_left_over(std::uint32_t comm, std::uint32_t call) const {
    if (empty()) [[likely]]
      return nullptr;
    return buckets_.find([&](const StoredMessage& stored) {
      const Header& header = stored.header;
      const bool same_sequence = ((header.call ^ call) >> 31) == 0;
      return header.comm == comm && same_sequence && !is_later(header.call, call) &&
             header.lane != pair_lane;
    });
  }

 private:
  TagBuckets<StoredMessage> buckets_;
  std::vector<std::unique_ptr<StoredMessage>> all_;
  std::vector<StoredMessage*> spare_;
};

}  // namespace pith
