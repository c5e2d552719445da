// Messages between two ranks with tags, and receives from any rank.
//
// libpith matches the messages of two ranks in the order of the calls. So each message begins with
// an envelope of fixed size, which has its tag and, if it is short, the data. A receiver asks a
// rank for the next envelope as long as a posted receive may match it, looks for the first such
// receive, and then takes the data: into its tensor, or into a buffer until a receive is posted.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "communicator.hpp"
#include "request.hpp"

namespace pith_torch {

constexpr std::size_t envelope_bytes = 256;

struct Envelope {
  static constexpr std::size_t room = envelope_bytes - 32;

  std::uint32_t magic = 0;
  std::int32_t tag = 0;
  std::uint64_t bytes = 0;
  char type[16] = {};  // of the elements, for messages to users
  std::byte data[room];

  bool is_short() const { return bytes <= room; }
};
static_assert(sizeof(Envelope) == envelope_bytes);

// One send or receive. Shared by the work and by what is in flight.
struct Message {
  at::Tensor memory;  // packed
  at::Tensor tensor;  // where received data belong
  int peer = -1;      // of a receive: -1 while it may come from any rank
  int tag = 0;
  bool any_source = false;
  bool done = false;
  std::exception_ptr failure;
  Deadline late;
  Envelope envelope;  // of a send
};
using MessagePtr = std::shared_ptr<Message>;

// Any thread.
class Messages {
 public:
  // comm: without a timeout, because a receive from any rank asks ranks that may never send.
  // timeout_s: of messages; 0: never.
  Messages(std::unique_ptr<Communicator> comm, double timeout_s);
  // Messages that may never end keep the communicator, and it stays until the process ends.
  ~Messages();

  MessagePtr send(const at::Tensor& tensor, int to, int tag);
  // from: -1 for any rank.
  MessagePtr receive(const at::Tensor& tensor, int from, int tag);

  // Moves everything that can move; true if `message` has ended. Throws its error.
  bool poll(const Message& message);
  bool wait(const Message& message, Deadline deadline);
  void abort() { comm_->abort(); }
  // Makes a message fail that takes too long, and with it all others: the communicator is aborted.
  void give_up(Message& message);

 private:
  // A request in flight, and what it moves.
  struct Flight {
    enum class Kind { send, envelope, data, unexpected, dropped };
    Kind kind;
    int peer = -1;
    pithRequest_t request = nullptr;
    MessagePtr message;                  // kinds send and data
    std::shared_ptr<Envelope> envelope;  // of all but send and data
    std::vector<std::byte> unexpected;
    bool waited_for = false;  // by a thread that is in pithWait
  };
  struct Unexpected {
    int peer;
    std::shared_ptr<Envelope> envelope;
    std::vector<std::byte> data;  // of a long message
  };
  using Flights = std::list<Flight>;

  Deadline late() const;
  void start_send(const MessagePtr& message);
  void post(const MessagePtr& message);
  bool take_unexpected(Message& message);
  void keep_or_deliver(Unexpected arrived);
  void deliver_kept(Message& message, const Unexpected& kept);
  void ask_for_envelopes();
  void ask(int peer);
  void progress();
  void land(Flights::iterator flight, pithResult_t result);
  void fail(Flight& flight, const std::exception_ptr& failure);
  template <class Concerns>
  void fail_posted(const std::exception_ptr& failure, const Concerns& concerns);
  void open(int peer, const std::shared_ptr<Envelope>& envelope);
  MessagePtr take_posted(int peer, const Envelope& envelope);
  void deliver(Message& message, int peer, const Envelope& envelope);
  void finish(Message& message);
  bool drive_one(std::unique_lock<std::mutex>& lock);
  bool has_ended(const Message& message) const;

  std::unique_ptr<Communicator> comm_;
  const int rank_;
  const int size_;
  const double timeout_s_;
  mutable std::mutex mutex_;
  Flights flights_;
  std::list<MessagePtr> posted_;  // receives without a match, in the order of posting
  std::list<Unexpected> unexpected_;
  std::vector<bool> asked_;  // by peer: an envelope is on its way, or its data are
};

class MessagePending final : public Pending {
 public:
  MessagePending(std::shared_ptr<Messages> messages, MessagePtr message)
      : messages_(std::move(messages)), message_(std::move(message)) {}
  bool poll() override { return messages_->poll(*message_); }
  bool wait(Deadline deadline) override { return messages_->wait(*message_, deadline); }
  bool is_message() const override { return true; }
  int source() const override { return message_->peer; }
  Deadline late() const override { return message_->late; }
  std::function<void()> expiry() const override {
    return [messages = messages_, message = message_] { messages->give_up(*message); };
  }

 private:
  std::shared_ptr<Messages> messages_;
  MessagePtr message_;
};

}  // namespace pith_torch
