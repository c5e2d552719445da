// Messages that arrive piece by piece, or stay with their sender until they are fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/operation.hpp"

namespace pith {

class MessageSource;
struct StoredMessage;

// `data` has room for header.length bytes and may move until the message is finished: read it anew
// for each piece. Null: nobody wants the bytes.
struct IncomingMessage {
  Header header;
  std::byte* data = nullptr;
  std::size_t arrived = 0;  // for the transport's use
  int peer = -1;
  std::uint64_t message = 0;  // the source's name for it
  std::uint64_t memory = 0;   // where `data` lies, as Compute::network_memory(); 0: the host's

 private:
  friend class IncomingMessages;
  friend class Mailbox;
  Receive* receive_ = nullptr;       // null: stored, or its receive was aborted
  StoredMessage* stored_ = nullptr;  // where it will be found by a later receive
  std::byte* owned_ = nullptr;       // null: straight into the receiver's buffer
  MessageSource* source_ = nullptr;  // of an announced one
  std::shared_ptr<void> withheld_;   // a receiver's buffer that is still written to
};

// Who can fetch messages that were announced.
class MessageSource {
 public:
  // All of it, to `incoming.data`, which does not move any more. Mailbox::finish or abandon follow,
  // but not before this returns.
  virtual void fetch(IncomingMessage& incoming) = 0;
  // Nobody wants it: the mailbox has forgotten it.
  virtual void drop(std::uint64_t message) = 0;

 protected:
  ~MessageSource() = default;
};

// The incoming messages of one mailbox; their memory is used again.
class IncomingMessages {
 public:
  IncomingMessage& take(int peer, const Header& header) {
    if (spare_.empty()) add_spare();
    IncomingMessage& incoming = *spare_.back();
    spare_.pop_back();
    active_.push_back(&incoming);
    incoming.header = header;
    incoming.peer = peer;
    incoming.arrived = 0;
    incoming.memory = 0;
    incoming.data = nullptr;
    incoming.receive_ = nullptr;
    incoming.stored_ = nullptr;
    incoming.owned_ = nullptr;
    incoming.source_ = nullptr;
    return incoming;
  }
  // Its members stay readable until the next take().
  void recycle(IncomingMessage& incoming) {
    std::erase(active_, &incoming);
    incoming.withheld_.reset();
    spare_.push_back(&incoming);
  }
  // Taken, and not recycled yet.
  const std::vector<IncomingMessage*>& active() const { return active_; }

 private:
  void add_spare() {
    all_.push_back(std::make_unique<IncomingMessage>());
    spare_.reserve(all_.capacity());
    active_.reserve(all_.capacity());
    spare_.push_back(all_.back().get());
  }

  std::vector<std::unique_ptr<IncomingMessage>> all_;
  std::vector<IncomingMessage*> spare_;
  std::vector<IncomingMessage*> active_;
};

}  // namespace pith
