// A mailbox, a communicator, and what sends to it, for tests.
#pragma once

#include <cstring>
#include <vector>

#include "core/mailbox.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

using Data = std::vector<std::byte>;

class Started {
 public:
  Started(Mailbox& mailbox, Receive& receive) : mailbox_(mailbox), receive_(receive) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    receive_.waiter = waiter;
    return !mailbox_.start(receive_);
  }
  void await_resume() const {}

 private:
  Mailbox& mailbox_;
  Receive& receive_;
};

inline Task<Error> receives(Strand&, Mailbox& mailbox, Receive& receive) {
  co_await Started(mailbox, receive);
  co_return receive.error;
}

struct MailboxFixture {
  static constexpr int peer = 130;  // on a page of its own
  static constexpr std::uint64_t digest = 77;

  MailboxFixture() { comm.id = 1; }

  Header header(std::uint32_t step, std::size_t length) const {
    Header result;
    result.comm = comm.id;
    result.call = 4;
    result.step = step;
    result.length = static_cast<std::uint32_t>(length);
    result.digest = digest;
    return result;
  }
  Data message(std::size_t length) const {
    Data data(length);
    for (std::size_t i = 0; i < length; ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
    return data;
  }
  Receive receive(std::uint32_t step, Data& into) {
    Receive result;
    result.comm = &comm;
    result.peer = peer;
    result.tag = {comm.id, 4, step, 0};
    result.digest = digest;
    result.into = into.data();
    result.room = into.size();
    return result;
  }
  Receive borrow(std::uint32_t step, std::size_t room) {
    Data none;
    Receive result = receive(step, none);
    result.borrow = true;
    result.room = room;
    return result;
  }
  Task<Error> start(Receive& operation) {
    Task<Error> task = receives(strand, mailbox, operation);
    task.handle().resume();
    return task;
  }
  void revoke() {
    comm.revoked = Error(Code::remote, "revoked");
    mailbox.quiesce(comm, comm.revoked);
    strand.run();
  }
  void arrive(Mailbox::Incoming& incoming, const Data& data, std::size_t from, std::size_t to) {
    if (incoming.data) std::memcpy(incoming.data + from, data.data() + from, to - from);
  }

  Strand strand;
  Mailbox mailbox{strand.scheduler, 200};
  Slots slots;
  CommState comm;
};

inline bool holds(const Lease& lease, const Data& data) {
  return lease.size() == data.size() && std::memcmp(lease.data(), data.data(), data.size()) == 0;
}

}  // namespace pith::test
