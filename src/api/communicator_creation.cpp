#include "api/communicator_creation.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "api/check.hpp"
#include "api/completion.hpp"
#include "api/destroyed_handles.hpp"
#include "api/last_error.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"

namespace pith::api {

std::unique_ptr<pithComm> new_handle(const CommunicatorOptions& options) {
  auto handle = std::make_unique<pithComm>();
  handle->blocking = options.blocking;
  handle->name = options.name;
  begin_errors_of(handle.get());
  return handle;
}

namespace {

using Made = Expected<std::unique_ptr<Communicator>>;

std::atomic<Completion (*)()> begin_completion{nullptr};

// Prepares calls on streams of this thread's context.
Completion completion_of_this_thread() {
  Completion (*const begin)() = begin_completion.load(std::memory_order_acquire);
  Completion more = begin ? begin() : Completion();
  void* const context = current_context();
  if (!context) return more;
  return [context, more = std::move(more)](pithComm& comm) {
    comm.communicator->streams().prepare(context);
    return more ? more(comm) : Error();
  };
}

// A named communicator is logged, so that it can be found in the log by its name.
void tell_name(const pithComm& handle) {
  if (handle.name.empty() || !logs(LogLevel::debug)) return;
  const Communicator& made = *handle.communicator;
  log(LogLevel::debug,
      fmt::format("communicator \"{}\": rank {} of {}", handle.name, made.rank(), made.size()));
}

// Another thread's abort() either is seen here, or sees the communicator.
Error fill(pithComm& handle, Made made, const Completion& complete) {
  if (!made) return made.error();
  Error error;
  {
    const std::lock_guard lock(handle.guard);
    if (handle.making) error = handle.making->error();
    if (!error) handle.communicator = std::move(*made);
  }
  if (error) (*made)->abort();  // the other ranks may have made it
  if (error) return error;
  tell_name(handle);
  if (!complete) return {};
  error = without_throwing([&] { return complete(handle); });
  std::shared_ptr<Communicator> unwanted;  // destroyed outside the lock, as that may take a while
  const std::lock_guard lock(handle.guard);
  if (!error && handle.making) error = handle.making->error();
  if (error) unwanted.swap(handle.communicator);
  return error;
}

Error create_outside_group(pithComm_t* comm, const CommunicatorOptions& options, const Make& make,
                           const std::shared_ptr<Cancellation>& making,
                           const Completion& complete) {
  std::unique_ptr<pithComm> handle = new_handle(options);
  if (options.blocking) {
    if (Error error = fill(*handle, make(), complete)) return error;
    *comm = handle.release();
    return {};
  }
  handle->being_made = true;
  handle->making = making;
  handle->background = Background([raw = handle.get(), make, complete] {
    Error error = without_throwing([&] { return fill(*raw, make(), complete); });
    raw->being_made.store(false, std::memory_order_release);
    return error;
  });
  *comm = handle.release();
  return {Code::in_progress, "the communicator is being made"};
}

// A communicator that a group is to make. Its caller has the handle already and may pass it on, as
// in NCCL. It is not ready before the group's end, and is destroyed if the group fails.
class Promised {
 public:
  // `function`: the calling API function; a literal.
  Promised(const char* function, pithComm_t* comm, const CommunicatorOptions& options,
           std::shared_ptr<Cancellation> making)
      : function_(function), where_(comm), handle_(new_handle(options).release()) {
    handle_->being_made = true;
    handle_->making = std::move(making);
    *where_ = handle_;
  }
  // If a thread ends in the middle of a group, the caller's variable stays as it is.
  ~Promised() { drop(); }
  Promised(const Promised&) = delete;
  Promised& operator=(const Promised&) = delete;

  Error keep(const Make& make, const Completion& complete) {
    if (handle_->destroyed) return destroyed_before(function_);
    if (!handle_->blocking) {
      Background work([raw = handle_, make, complete] { return finish(*raw, make, complete); });
      std::exchange(handle_, nullptr)->begin(std::move(work));
      return {Code::in_progress, "the communicator is being made"};
    }
    Error error = finish(*handle_, make, complete);
    if (!error) handle_ = nullptr;
    return error;
  }
  void take_back() {
    if (handle_) *where_ = nullptr;
    drop();
  }

 private:
  static Error finish(pithComm& handle, const Make& make, const Completion& complete) {
    Error error = without_throwing([&] { return fill(handle, make(), complete); });
    handle.being_made.store(false, std::memory_order_release);
    return error;
  }
  void drop() {
    const pithComm_t handle = std::exchange(handle_, nullptr);
    if (handle && !handle->destroyed.exchange(true)) keep_destroyed(handle);
  }

  const char* const function_;
  pithComm_t* const where_;
  pithComm_t handle_;  // null: owned by the caller
};

}  // namespace

Error create(const char* function, pithComm_t* comm, const CommunicatorOptions& options,
             const Make& make, const std::shared_ptr<Cancellation>& making) {
  const Completion complete = completion_of_this_thread();
  Group& group = Group::of_this_thread();
  if (!group.open()) return create_outside_group(comm, options, make, making, complete);
  const auto promised = std::make_shared<Promised>(function, comm, options, making);
  group.add([promised, make, complete] { return promised->keep(make, complete); }, nullptr,
            [promised] { promised->take_back(); });
  return {};
}

Error create_child(pithComm_t comm, pithComm_t* child, const CommunicatorOptions& options,
                   const Make& make) {
  const CurrentContext current(comm->communicator->streams().context());
  const auto run = [child, options, make, complete = completion_of_this_thread()]() -> Error {
    Made made = make();
    if (!made) return made.error();
    if (!*made) return {};
    std::unique_ptr<pithComm> handle = new_handle(options);
    if (Error error = fill(*handle, std::move(made), complete)) return error;
    *child = handle.release();
    return {};
  };
  *child = nullptr;
  Group& group = Group::of_this_thread();
  if (group.open()) {
    if (!comm->blocking) comm->forget_failure();
    group.add(run, comm->communicator.get());
    return {};
  }
  if (comm->blocking) return run();
  comm->begin(Background(run));
  return {Code::in_progress, "the communicator is being made"};
}

void complete_communicators_by(Completion (*begin)()) {
  begin_completion.store(begin, std::memory_order_release);
}

bool has_layer_on_top() { return begin_completion.load(std::memory_order_acquire) != nullptr; }

}  // namespace pith::api
