// Task<T>: a lazily started coroutine that one other coroutine, or the engine, waits for.
//
// `co_await f(a, b)` on the temporary task that f returns is correct with arguments by reference
// and with plain structs, strings, errors, unique_ptrs and tasks by value, also with temporaries.
// Rules because of what g++ 12 gets wrong (tried from -O0 to -O3 and with the address sanitizer;
// clang 16 is right in all cases):
// - It destroys twice: temporaries of aggregates with a destructor, lambdas with captures that have
//   one, and temporaries of any class with one in an arm of `?:`, tasks too. An awaiter and a
//   parameter by value are no such aggregates; see SafeAwaiter, SafeArgument. Lambdas and
//   `c ? f() : g()` get a name first.
// - `if (co_await f()) co_return x;` never ends in a block without variables: name the result.
// - Promises have no await_transform: with one, this compiler builds every awaiter twice and moves
//   it, which costs some 7 % of a short call.
//
// Parameters are passed by value, by span, or by reference to what outlives the task.
// A frame that is suspended in an operation is never destroyed: abort makes the operation resume
// with an error, and the coroutine runs to its end.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "core/frame_arena.hpp"

namespace pith {

// Counts the children of a when_all; the last one to end resumes the waiter.
struct Join {
  std::size_t remaining = 0;
  std::coroutine_handle<> waiter;
};

// Required of a coroutine's parameters: callers build those that are passed by value inside their
// co_await expression.
template <class Argument>
concept SafeArgument = std::is_reference_v<Argument> || !std::is_aggregate_v<Argument> ||
                       std::is_trivially_destructible_v<Argument>;

// Required of every awaiter; asserted next to awaiters whose members have destructors.
template <class Awaiter>
concept SafeAwaiter = !std::is_aggregate_v<Awaiter> || std::is_trivially_destructible_v<Awaiter>;

template <class T>
class [[nodiscard]] Task;

namespace detail {

class PromiseBase {
 public:
  // The frame comes from the arena of the first parameter: a Call, or *this of a member function.
  template <FrameSource Source, class... Rest>
  static void* operator new(std::size_t bytes, Source& source, Rest&&...) {
    return source.frame_arena().allocate(bytes);
  }
  static void operator delete(void* frame) noexcept { FrameArena::free(frame); }

  std::suspend_always initial_suspend() noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      PromiseBase& promise = self.promise();
      if (promise.join_) {
        if (--promise.join_->remaining == 0) return promise.join_->waiter;
        return std::noop_coroutine();
      }
      return promise.continuation_ ? promise.continuation_ : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }

  void set_continuation(std::coroutine_handle<> handle) { continuation_ = handle; }
  void set_join(Join& join) { join_ = &join; }

 private:
  std::coroutine_handle<> continuation_;
  Join* join_ = nullptr;
};

template <class T>
class Promise : public PromiseBase {
 public:
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  // Only allocation can throw in a coroutine. The exception must not reach the engine or the C API.
  void unhandled_exception() { value_.emplace(out_of_memory()); }
  T take() { return std::move(*value_); }
  const T& result() const { return *value_; }

 private:
  std::optional<T> value_;
};

}  // namespace detail

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  Handle handle() const { return handle_; }
  explicit operator bool() const { return static_cast<bool>(handle_); }
  bool done() const { return handle_.done(); }
  T take() { return handle_.promise().take(); }
  const T& result() const { return handle_.promise().result(); }

  class Awaiter {
   public:
    explicit Awaiter(Handle handle) : handle_(handle) {}
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) noexcept {
      handle_.promise().set_continuation(waiter);
      return handle_;
    }
    T await_resume() { return handle_.promise().take(); }

   private:
    Handle handle_;
  };
  Awaiter operator co_await() && noexcept { return Awaiter(handle_); }

 private:
  Handle handle_;
};

template <class T>
Task<T> detail::Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}

}  // namespace pith

template <class T, class... Arguments>
struct std::coroutine_traits<pith::Task<T>, Arguments...> {
  static_assert((pith::SafeArgument<Arguments> && ...));
  using promise_type = pith::detail::Promise<T>;
};

namespace pith {

// Runs all children and resumes when every one has ended, even after errors. The result is the
// first error in the order of the children.
class [[nodiscard]] WhenAll {
 public:
  explicit WhenAll(std::span<Task<Error>> children) : children_(children) {}

  bool await_ready() const noexcept { return children_.empty(); }
  bool await_suspend(std::coroutine_handle<> waiter) {
    join_.waiter = waiter;
    join_.remaining = children_.size() + 1;  // + 1: no child may resume the waiter in this loop
    for (Task<Error>& child : children_) {
      child.handle().promise().set_join(join_);
      child.handle().resume();
    }
    return --join_.remaining != 0;
  }
  Error await_resume() {
    Error first;
    for (Task<Error>& child : children_) {
      if (child.result() && !first) first = child.result();
    }
    return first;
  }

 private:
  std::span<Task<Error>> children_;
  Join join_;
};

static_assert(SafeAwaiter<WhenAll> && SafeAwaiter<Task<Error>::Awaiter>);

inline WhenAll when_all(std::span<Task<Error>> children) { return WhenAll(children); }

}  // namespace pith
