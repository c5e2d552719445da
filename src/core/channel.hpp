// A bounded queue between two strands of one call. The bound gives back-pressure between stages.
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <optional>
#include <utility>

#include "core/scheduler.hpp"

namespace pith {

// One producer and one consumer, both on the same scheduler. T must be default constructible. After
// close() a push returns false, and a pop returns nullopt once the queue is empty.
template <class T, std::size_t capacity>
class Channel {
 public:
  explicit Channel(Scheduler& scheduler) : scheduler_(scheduler) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  class Push {
   public:
    Push(Channel& channel, T value) : channel_(channel), value_(std::move(value)) {}
    bool await_ready() const { return channel_.closed_ || channel_.count_ < capacity; }
    void await_suspend(std::coroutine_handle<> waiter) { channel_.producer_ = waiter; }
    bool await_resume() {
      if (channel_.closed_) return false;
      channel_.put(std::move(value_));
      return true;
    }

   private:
    Channel& channel_;
    T value_;
  };

  class Pop {
   public:
    explicit Pop(Channel& channel) : channel_(channel) {}
    bool await_ready() const { return channel_.closed_ || channel_.count_ > 0; }
    void await_suspend(std::coroutine_handle<> waiter) { channel_.consumer_ = waiter; }
    std::optional<T> await_resume() { return channel_.get(); }

   private:
    Channel& channel_;
  };

  Push push(T value) { return Push(*this, std::move(value)); }
  Pop pop() { return Pop(*this); }

  void close() {
    closed_ = true;
    wake(producer_);
    wake(consumer_);
  }

 private:
  void put(T value) {
    slots_[(head_ + count_++) % capacity] = std::move(value);
    wake(consumer_);
  }
  std::optional<T> get() {
    if (count_ == 0) return std::nullopt;
    T value = std::move(slots_[head_]);
    head_ = (head_ + 1) % capacity;
    --count_;
    wake(producer_);
    return value;
  }
  void wake(std::coroutine_handle<>& waiter) {
    if (waiter) scheduler_.make_ready(std::exchange(waiter, nullptr));
  }

  Scheduler& scheduler_;
  std::array<T, capacity> slots_{};
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  bool closed_ = false;
  std::coroutine_handle<> producer_;
  std::coroutine_handle<> consumer_;
};

}  // namespace pith
