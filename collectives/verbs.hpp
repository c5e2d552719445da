// The awaiters behind Call's verbs. All of them live in the frame of the awaiting coroutine.
#pragma once

#include <new>
#include <optional>

#include "collectives/call.hpp"

namespace pith {

// Fails the call because `receive` got another number of bytes than expected.
Error wrong_length(const Call& call, const Receive& receive, std::size_t expected);

// Starts a send, as Transport::start() does, and ends it if there is no memory.
inline bool start_send(Transport& transport, Send& send) {
  try {
    return transport.start(send);
  } catch (const std::bad_alloc&) {  // an exception at an awaiter would resume the waiter twice
    send.error = out_of_memory();
    return true;
  }
}

class UntilAwaiter {
 public:
  UntilAwaiter(const Call& call, Fence fence) : call_(call) { wait_.fence = fence; }
  bool await_ready() const { return call_.reached(wait_.fence); }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    wait_.owner = this;
    wait_.reached = [](FenceWait& wait) {
      auto& self = *static_cast<UntilAwaiter*>(wait.owner);
      self.call_.scheduler().make_ready(self.waiter_);
    };
    call_.compute().notify(wait_);
  }
  void await_resume() const {}

 private:
  const Call& call_;
  FenceWait wait_;
  std::coroutine_handle<> waiter_;
};

class TurnAwaiter {
 public:
  explicit TurnAwaiter(Scheduler& scheduler) : scheduler_(scheduler) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) { scheduler_.make_ready(waiter); }
  void await_resume() const {}

 private:
  Scheduler& scheduler_;
};

// Sends once its fence is reached; device memory goes through a buffer that the transport reads.
class SendStage {
 public:
  SendStage(const Call& call, int to, std::uint16_t lane, std::uint32_t step, Bytes data,
            Fence after)
      : call_(call), after_(after), device_(data.kind != MemoryKind::host) {
    if (to == no_rank) [[unlikely]]
      return;
    if (device_) {
      staging_ = call.direct_scratch(to, data.size);
      if (staging_) {
        send_.direct = &staging_;
      } else {
        staging_ = Scratch(call.host_compute(), data.size);
      }
      after_ = call.compute().run<CopyKernel>({staging_.bytes().data, data.data, data.size}, after);
      data = staging_.bytes();
    }
    call.prepare(send_, to, lane, step, data);
    transport_ = call.route(to).transport;
  }
  SendStage(const SendStage&) = delete;  // operations point to it
  SendStage& operator=(const SendStage&) = delete;

  // True: completed at once.
  bool start() {
    if (!transport_) [[unlikely]]
      return true;
    if (!call_.reached(after_)) {
      wait_.owner = this;
      wait_.fence = after_;
      wait_.reached = [](FenceWait& wait) {
        auto& self = *static_cast<SendStage*>(wait.owner);
        if (self.start_now()) self.call_.scheduler().complete(self.send_);
      };
      call_.compute().notify(wait_);
      return false;
    }
    return start_now();
  }
  Send& operation() { return send_; }
  Error result() {
    staging_ = Scratch();
    return send_.error ? call_.fail(send_.error) : Error();
  }

 private:
  bool start_now() {
    if (call_.comm().revoked) send_.error = call_.comm().revoked;
    if (send_.error) [[unlikely]] {
      // Fail at once: in an exchange the peer's message would never come.
      static_cast<void>(call_.fail(send_.error));
      return true;
    }
    return start_send(*transport_, send_);
  }

  const Call& call_;
  Fence after_;
  bool device_;
  FenceWait wait_;
  Send send_;
  Scratch staging_;
  Transport* transport_ = nullptr;
};

// Where a message for a device lies until the device reads it: in pinned memory, or in device
// memory if the network has put it there.
class ReceiveStaging {
 public:
  ReceiveStaging() = default;
  ReceiveStaging(const Call& call, Receive& receive, int from, std::size_t size)
      : staging_(call.host_compute(), size) {
    receive.into = staging_.bytes().data;
    direct_ = call.direct_scratch(from, size);
    if (direct_) receive.direct = &direct_;
  }
  ReceiveStaging(const ReceiveStaging&) = delete;
  ReceiveStaging& operator=(const ReceiveStaging&) = delete;
  // The message's memory, for kernels from now on.
  Scratch take(const Call& call, const Receive& receive) {
    if (!receive.landed) return std::move(staging_);
    call.compute().see_network_writes();
    return std::move(direct_);
  }
  // The receive has failed. What the network wrote must not come after what reuses the memory.
  void give_up(const Call& call) const {
    if (direct_) call.compute().see_network_writes();
  }

 private:
  Scratch staging_;
  Scratch direct_;
};

inline Error receive_failed(const Call& call, const Receive& receive,
                            const std::optional<ReceiveStaging>& staging) {
  if (staging) staging->give_up(call);
  return call.fail(receive.error);
}

// Receives a message. Device memory is filled by a copy on the compute queue, which later kernels
// follow.
class RecvStage {
 public:
  RecvStage(const Call& call, int from, std::uint16_t lane, std::uint32_t step, Bytes into)
      : call_(call), into_(into) {
    if (from == no_rank) [[unlikely]]
      return;
    call.prepare(receive_, from, lane, step);
    receive_.into = into.data;
    receive_.room = into.size;
    if (into.kind != MemoryKind::host) staging_.emplace(call, receive_, from, into.size);
  }
  RecvStage(const RecvStage&) = delete;
  RecvStage& operator=(const RecvStage&) = delete;
  bool start() { return !receive_.comm || call_.mailbox().start(receive_); }
  Receive& operation() { return receive_; }
  std::size_t length() const { return receive_.length; }
  Error result() {
    if (receive_.error) return receive_failed(call_, receive_, staging_);
    if (into_.kind == MemoryKind::host || !receive_.comm) return {};
    Scratch message = staging_->take(call_, receive_);
    const Fence copied =
        call_.compute().run<CopyKernel>({into_.data, message.bytes().data, receive_.length});
    call_.compute().retire(Lease(), std::move(message), copied);
    return {};
  }
  // result(), and the message must have filled the buffer.
  Error result_exact() {
    if (Error error = result()) return error;
    if (receive_.length == into_.size) [[likely]]
      return {};
    return wrong_length(call_, receive_, into_.size);
  }

 private:
  const Call& call_;
  Bytes into_;
  Receive receive_;
  std::optional<ReceiveStaging> staging_;
};

class SendAwaiter {
 public:
  SendAwaiter(const Call& call, int to, std::uint16_t lane, std::uint32_t step, Bytes data,
              Fence after)
      : stage_(call, to, lane, step, data, after) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    stage_.operation().waiter = waiter;
    return !stage_.start();
  }
  Error await_resume() { return stage_.result(); }

 private:
  SendStage stage_;
};

class RecvAwaiter {
 public:
  RecvAwaiter(const Call& call, int from, std::uint16_t lane, std::uint32_t step, Bytes into)
      : stage_(call, from, lane, step, into) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    stage_.operation().waiter = waiter;
    return !stage_.start();
  }
  Error await_resume() { return stage_.result_exact(); }

 private:
  RecvStage stage_;
};

class RecvSomeAwaiter {
 public:
  RecvSomeAwaiter(const Call& call, int from, std::uint16_t lane, std::uint32_t step, Bytes into)
      : stage_(call, from, lane, step, into) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    stage_.operation().waiter = waiter;
    return !stage_.start();
  }
  Expected<std::size_t> await_resume() {
    if (Error error = stage_.result()) return error;
    return stage_.length();
  }

 private:
  RecvStage stage_;
};

// Receives a message without a copy: kernels read it where the transport has it. A device's
// kernels, which may not reach that, read it where it was staged.
class BorrowStage {
 public:
  BorrowStage(const Call& call, int from, std::uint16_t lane, std::uint32_t step, std::size_t size)
      : call_(call), size_(size) {
    if (from == no_rank) [[unlikely]]
      return;
    call.prepare(receive_, from, lane, step);
    receive_.room = size;
    receive_.borrow = call.compute().kind() == MemoryKind::host;
    if (receive_.borrow) [[likely]]
      return;
    staging_.emplace(call, receive_, from, size);
  }
  BorrowStage(const BorrowStage&) = delete;
  BorrowStage& operator=(const BorrowStage&) = delete;
  bool start() { return !receive_.comm || call_.mailbox().start(receive_); }
  Receive& operation() { return receive_; }
  // A single result variable, filled in place: the caller's, without a copy.
  Expected<Borrowed> result() {
    Expected<Borrowed> borrowed{check()};
    if (borrowed) [[likely]] {
      borrowed->size = size_;
      if (staging_) {
        borrowed->staged = staging_->take(call_, receive_);
        borrowed->data = borrowed->staged.bytes().data;
        return borrowed;
      }
      borrowed->lease = std::move(receive_.lease);
      borrowed->data = borrowed->lease.data();
    }
    return borrowed;
  }

 private:
  Error check() const {
    if (receive_.error) return receive_failed(call_, receive_, staging_);
    if (receive_.length == size_) [[likely]]
      return {};
    return wrong_length(call_, receive_, size_);
  }

  const Call& call_;
  std::size_t size_;
  Receive receive_;
  std::optional<ReceiveStaging> staging_;
};

class BorrowAwaiter {
 public:
  BorrowAwaiter(const Call& call, int from, std::uint16_t lane, std::uint32_t step,
                std::size_t size)
      : stage_(call, from, lane, step, size) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    stage_.operation().waiter = waiter;
    return !stage_.start();
  }
  Expected<Borrowed> await_resume() { return stage_.result(); }

 private:
  BorrowStage stage_;
};

// Starts two operations for one waiter. False: both were complete at once.
template <class First, class Second>
bool start_both(First& first, Second& second, int& remaining, std::coroutine_handle<> waiter) {
  first.operation().waiter = second.operation().waiter = waiter;
  first.operation().remaining = second.operation().remaining = &remaining;
  remaining = 3;  // one is held here, so that neither can resume the waiter inside this function
  if (first.start()) --remaining;
  if (second.start()) --remaining;
  return --remaining != 0;
}

class ExchangeAwaiter {
 public:
  ExchangeAwaiter(const Call& call, int to, int from, std::uint16_t lane, std::uint32_t step,
                  Bytes data, Bytes into, Fence after)
      : send_(call, to, lane, step, data, after), recv_(call, from, lane, step, into) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    return start_both(send_, recv_, remaining_, waiter);
  }
  Error await_resume() {
    Error sent = send_.result();
    Error received = recv_.result_exact();
    return sent ? sent : received;
  }

 private:
  SendStage send_;
  RecvStage recv_;
  int remaining_ = 0;
};

class ExchangeBorrowAwaiter {
 public:
  ExchangeBorrowAwaiter(const Call& call, int to, int from, std::uint16_t lane, std::uint32_t step,
                        Bytes data, std::size_t size, Fence after)
      : send_(call, to, lane, step, data, after), borrow_(call, from, lane, step, size) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    return start_both(send_, borrow_, remaining_, waiter);
  }
  Expected<Borrowed> await_resume() {
    if (Error sent = send_.result()) return sent;
    return borrow_.result();
  }

 private:
  SendStage send_;
  BorrowStage borrow_;
  int remaining_ = 0;
};

static_assert(SafeAwaiter<UntilAwaiter> && SafeAwaiter<SendAwaiter> && SafeAwaiter<RecvAwaiter> &&
              SafeAwaiter<RecvSomeAwaiter> && SafeAwaiter<BorrowAwaiter> &&
              SafeAwaiter<ExchangeAwaiter> && SafeAwaiter<ExchangeBorrowAwaiter>);

inline SendAwaiter Call::send(int to, std::uint16_t lane, std::uint32_t step, Bytes data,
                              Fence after) {
  return SendAwaiter(*this, to, lane, step, data, after);
}
inline RecvAwaiter Call::recv(int from, std::uint16_t lane, std::uint32_t step, Bytes into) {
  return RecvAwaiter(*this, from, lane, step, into);
}
inline RecvSomeAwaiter Call::recv_some(int from, std::uint16_t lane, std::uint32_t step,
                                       Bytes into) {
  return RecvSomeAwaiter(*this, from, lane, step, into);
}
inline BorrowAwaiter Call::borrow(int from, std::uint16_t lane, std::uint32_t step,
                                  std::size_t size) {
  return BorrowAwaiter(*this, from, lane, step, size);
}
inline ExchangeAwaiter Call::exchange(int to, int from, std::uint16_t lane, std::uint32_t step,
                                      Bytes data, Bytes into, Fence after) {
  return ExchangeAwaiter(*this, to, from, lane, step, data, into, after);
}
inline ExchangeBorrowAwaiter Call::exchange_borrow(int to, int from, std::uint16_t lane,
                                                   std::uint32_t step, Bytes data, std::size_t size,
                                                   Fence after) {
  return ExchangeBorrowAwaiter(*this, to, from, lane, step, data, size, after);
}
inline void Call::give_back(Borrowed& borrowed, Fence fence) {
  if (reached(fence)) [[likely]] {
    borrowed.lease.release();
    if (borrowed.staged.bytes().data) borrowed.staged = Scratch();
    return;
  }
  compute().retire(std::move(borrowed.lease), std::move(borrowed.staged), fence);
}
inline TurnAwaiter Call::turn() { return TurnAwaiter(scheduler()); }
inline UntilAwaiter Call::until(Fence fence) { return UntilAwaiter(*this, fence); }

}  // namespace pith
