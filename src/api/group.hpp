// Groups: what this thread has collected between pithGroupStart and pithGroupEnd.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "api/background.hpp"
#include "api/reduction_ops.hpp"
#include "api/registrations.hpp"
#include "api/request.hpp"
#include "collectives/compressed.hpp"
#include "comm/communicator.hpp"
#include "core/per_process.hpp"
#include "pith/pith.h"

// The handle of the C API. It keeps what must outlive a moved or failed communicator.
struct pithComm {
  std::shared_ptr<pith::Communicator> communicator;  // shared with groups in flight
  std::atomic<bool> being_made{false};  // by a thread of ours: nobody else may look at it
  std::atomic<bool> destroyed{false};   // nothing but this is left; see destroyed_handles.hpp
  bool finalized = false;
  const unsigned process = pith::fork_generation();  // that made it: a forked child is another one
  bool blocking = true;
  std::string name;
  // blocking = 0: GetAsyncError may come from any thread while another one issues calls.
  mutable std::mutex guard;
  pith::api::Background background;            // what blocking = 0 has begun
  pith::Error failure;                         // of the last that was begun so
  std::shared_ptr<pith::Cancellation> making;  // while being_made
  pith::api::ReductionOps ops = {};
  pith::api::Registrations registrations = {};
  std::shared_ptr<void> attached;  // what a layer on top keeps with it; goes first
  std::atomic<bool> has_attached{false};

  // A call is accepted, so what came of the last one is over. `work`: what it has begun.
  void begin(pith::api::Background work) {
    const std::lock_guard lock(guard);
    failure = pith::Error();
    background = std::move(work);
  }
  void forget_failure() {
    const std::lock_guard lock(guard);
    failure = pith::Error();
  }

  // As its end would, but that the handle stays. Precondition: `destroyed`, and nothing runs on it.
  void let_go() {
    attached.reset();
    registrations.clear();
    ops.clear();
    making.reset();
    communicator.reset();
  }

  // Null where there is none, or not yet.
  pith::Communicator* made() const {
    return being_made.load(std::memory_order_acquire) ? nullptr : communicator.get();
  }
};

namespace pith::api {

class Group {
 public:
  static Group& of_this_thread();

  bool open() const { return depth_ > 0; }
  bool outermost() const { return depth_ == 1; }
  void start() { ++depth_; }
  // Error where no group is open. True: this was the outermost end.
  Expected<bool> end(const char* function);

  void add(std::shared_ptr<Communicator> communicator, const CollectiveArgs& args, void* stream) {
    collectives_.push_back({std::move(communicator), args, stream, nullptr});
  }
  void add(std::shared_ptr<Communicator> communicator, const Message& message, void* stream);
  // The compressor is claimed; it is let go when the call has ended, or is never begun.
  void add(std::shared_ptr<Communicator> communicator, std::shared_ptr<Compressor> compressor,
           const CompressedTensor& tensor, void* stream);
  bool has(const Compressor& compressor) const;
  // Calls of it, or of what descends from it.
  bool has(const Communicator& communicator) const;
  // Collective set-up that blocks; the outermost end runs all of the group at once, but those of
  // one parent one after the other: all its ranks must agree on their order.
  // `undo`: called when the group is over, whether the set-up has run or not.
  void add(std::function<Error()> setup, const Communicator* parent = nullptr,
           std::function<void()> undo = {});
  // The group's result will be this error; nothing of it is started.
  void fail(const Error& error) {
    if (!error_) error_ = error;
  }
  const Error& error() const { return error_; }
  bool empty() const { return collectives_.empty() && batches_.empty() && setups_.empty(); }
  bool makes_communicators() const { return !setups_.empty(); }
  // Calls that were collected and are not to be run, in place of an end.
  struct Planned {
    std::shared_ptr<Communicator> communicator;
    CollectiveArgs args;
    std::size_t message_bytes;  // of messages, both ways
  };
  Expected<std::vector<Planned>> discard();

  // What the outermost end does.
  Error run();
  Expected<Request> run_in_background();
  // Whatever comes of a group, and be it an exception: the next one begins without its calls.
  struct Emptied {
    explicit Emptied(Group& owner) : group(owner) {}
    ~Emptied() { group.clear(); }
    Emptied(const Emptied&) = delete;
    Emptied& operator=(const Emptied&) = delete;
    Group& group;
  };

 private:
  struct Collected {
    std::shared_ptr<Communicator> communicator;
    CollectiveArgs args;
    void* stream;  // null: the group's end waits for it
    CompressedBatch* compressed;
  };
  struct Setup {
    std::function<Error()> run;
    std::function<void()> undo;  // or empty
  };
  // What is set up in this order. The setups hold the parent; null: none.
  struct Chain {
    const Communicator* parent;
    std::vector<Setup> setups;
  };
  void clear();
  Error check_messages() const;
  Error check_captures();
  Error shape_compressed();
  void place_compressed();
  Error join_background();
  void absorb_compressed();
  void add_messages();
  Error run_setups();
  Request issue(bool driven);
  void prepare(pithRequest& request);
  bool is_later(const Collected& call) const;
  void join_streams();
  void issue_all(pithRequest& request, bool driven);

  int depth_ = 0;
  std::vector<Collected> collectives_;
  std::vector<void*> streams_;  // of one communicator, while they are joined
  Refilled<MessageBatch> batches_;
  Refilled<CompressedBatch> compressed_;
  std::vector<Chain> setups_;
  Error error_;
};

}  // namespace pith::api
