// Messages that arrive in pieces, or stay with their sender until they are fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/operation.hpp"

namespace pith {

class MessageSource;
struct StoredMessage;

// `data` has room for header.length bytes and may move until the message is finished: read it again
// for each piece. Null: the bytes are to be discarded.
struct IncomingMessage {
  Header header;
  std::byte* data = nullptr;
  std::size_t arrived = 0;  // for the transport's use
  int peer = -1;
  std::uint64_t message = 0;  // the source's id of the message
  std::uint64_t memory = 0;   // memory of `data`, as Compute::network_memory(); 0: the host's
  Scratch* direct = nullptr;  // whose memory it is; only within MessageSource::fetch()

 private:
  friend class IncomingMessages;
  friend class Mailbox;
  Receive* receive_ = nullptr;       // null: stored, or its receive was aborted
  StoredMessage* stored_ = nullptr;  // where a later receive finds it
  std::byte* owned_ = nullptr;       // null: received straight into the receiver's buffer
  MessageSource* source_ = nullptr;  // of an announced message
  std::shared_ptr<void> withheld_;   // a receiver's buffer that is still written to
};

// A transport that can fetch announced messages.
class MessageSource {
 public:
  // Fetches the whole message to `incoming.data`, which does not move any more. Mailbox::finish or
  // abandon follows, after this function has returned.
  virtual void fetch(IncomingMessage& incoming) = 0;
  // The message is not needed: the mailbox has forgotten it.
  virtual void drop(std::uint64_t message) = 0;
  // True: it fetches into callers' buffers, and stop() takes buffers away from the network. Else
  // scratch that it fetches into is withheld where its receive ends early.
  virtual bool writes_to_callers() const { return false; }
  // Nothing is written for this message any more. Mailbox::finish or abandon follows, after this
  // function has returned.
  virtual void stop(std::uint64_t) {}

 protected:
  ~MessageSource() = default;
};

// The incoming messages of one mailbox; their memory is reused.
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
  // Messages that were taken and not recycled yet.
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
