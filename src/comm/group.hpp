// Groups: what this thread has collected between pithGroupStart and pithGroupEnd.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/request.hpp"

namespace pith {

class Group {
 public:
  static Group& of_this_thread();

  bool open() const { return depth_ > 0; }
  bool outermost() const { return depth_ == 1; }
  void start() { ++depth_; }
  // Error where no group is open. True: this was the outermost end.
  Expected<bool> end(const char* function);

  void add(std::shared_ptr<Communicator> communicator, const CallArgs& args, void* stream) {
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
    std::size_t message_bytes;  // of messages, both ways; 0: a collective
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
    CallArgs args;
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

}  // namespace pith
