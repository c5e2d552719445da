// What a call of a process group returns: it ends when its results are in the tensors.
//
// A call in the background is brought to its end by the thread that waits for it, or by the group's
// completer if nobody does.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pith_torch {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

// What still runs of a call. Used by one thread at a time.
class Pending {
 public:
  virtual ~Pending() = default;
  // True: the call has ended. Throws the call's error.
  virtual bool poll() = 0;
  // Waits; false: the deadline has passed. Throws the call's error.
  virtual bool wait(Deadline deadline) = 0;
  // Whether it is a message, whose next part may depend on other messages.
  virtual bool is_message() const { return false; }
  virtual int source() const { return -1; }
  // When it has taken too long; then expiry() is called, by any thread. None: never.
  virtual Deadline late() const { return std::nullopt; }
  virtual std::function<void()> expiry() const { return {}; }
};

// What a call is, for users and profilers.
struct CallFacts {
  c10d::OpType op;
  const char* title;                             // as "pith:all_reduce"
  std::vector<at::Tensor> inputs;                // for profilers
  std::vector<std::vector<at::Tensor>> outputs;  // the value of the future
  std::uint64_t sequence = 0;
};

class PithWork final : public c10d::Work {
 public:
  PithWork(int rank, CallFacts facts);
  ~PithWork() override;

  // Ends it; the exception, if any, is what wait() throws.
  void conclude(std::exception_ptr failure = nullptr);
  // The call goes on in the background. `hurry` is called when somebody needs the work to end
  // without waiting for it.
  void begin(std::unique_ptr<Pending> pending, std::function<void()> hurry);

  // The caller becomes the only one that uses what is pending. False: another thread is.
  bool claim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  void release();
  // With the claim. True: it has ended.
  bool poll();
  bool wait_claimed(Deadline deadline);
  // The error with which it ended, if any.
  std::exception_ptr failure() const;
  // False: the deadline has passed.
  bool wait_until(Deadline deadline);
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }
  bool is_message() const { return is_message_; }
  // Makes it fail if it has taken too long.
  void expire_if_late() {
    if (late_ && !has_ended() && Clock::now() >= *late_) expiry_();
  }
  // Somebody wants to know when it ends.
  bool is_urgent() const { return urgent_.load(std::memory_order_acquire); }

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return facts_.sequence; }

 private:
  [[noreturn]] void fail_late(std::chrono::milliseconds timeout) const;
  void settle(c10::ivalue::Future& future, const std::exception_ptr& failure);

  CallFacts facts_;
  std::unique_ptr<Pending> pending_;
  std::function<void()> hurry_;
  bool is_message_ = false;
  Deadline late_;
  std::function<void()> expiry_;
  std::atomic<int> source_{-1};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> urgent_{false};
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

using WorkPtr = c10::intrusive_ptr<PithWork>;

// Ends when all of several calls have.
class WorksPending final : public Pending {
 public:
  explicit WorksPending(std::vector<WorkPtr> works) : works_(std::move(works)) {}
  bool poll() override;
  bool wait(Deadline deadline) override;
  // Some of them may be.
  bool is_message() const override { return true; }

 private:
  std::vector<WorkPtr> works_;
};

}  // namespace pith_torch
