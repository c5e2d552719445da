// The calls and set-ups that this thread has collected between pithGroupStart and pithGroupEnd.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/request.hpp"

namespace pith {

// Whether compressed calls of a group are one: at the same step, by the same spec. With
// density=auto, whatever densities and forms the vectors had by themselves. Both are claimed.
bool are_one_exchange(const Compressor& one, const Compressor& other);

class Group {
 public:
  static Group& of_this_thread();

  bool open() const { return depth_ > 0; }
  bool outermost() const { return depth_ == 1; }
  void start();
  // An error if no group is open. True: this was the outermost end.
  Expected<bool> end(const char* function);

  // Copies where uneven blocks lie.
  void add(std::shared_ptr<Communicator> communicator, const CallArgs& args, void* stream);
  void add(std::shared_ptr<Communicator> communicator, const Message& message, void* stream);
  // The compressor is claimed, and released when the call has ended or is dropped.
  void add(std::shared_ptr<Communicator> communicator, std::shared_ptr<Compressor> compressor,
           const CompressedTensor& tensor, void* stream);
  bool has(const Compressor& compressor) const;
  // Whether the group has calls of the communicator or set-ups of its children.
  bool has(const Communicator& communicator) const;
  // Adds a collective set-up that blocks. The outermost end runs all set-ups of the group at once,
  // except that those of one parent run one after the other, in an order that all its ranks must
  // agree on. `undo`: called when the group is over, whether or not the set-up has run.
  void add(std::function<Error()> setup, const Communicator* parent = nullptr,
           std::function<void()> undo = {});
  // Makes this error the group's result; none of its calls is started.
  void fail(const Error& error) {
    if (!error_) error_ = error;
  }
  const Error& error() const { return error_; }
  bool empty() const { return collectives_.empty() && batches_.empty() && setups_.empty(); }
  bool makes_communicators() const { return !setups_.empty(); }
  // A call that was collected and is dropped by discard(), which takes the place of run().
  struct Planned {
    std::shared_ptr<Communicator> communicator;
    CollectiveArgs args;
    std::size_t message_bytes;  // total of the messages both ways; 0: a collective
  };
  Expected<std::vector<Planned>> discard();

  // Runs the group at its outermost end.
  Error run();
  Expected<Request> run_in_background();
  // Empties the group when it leaves scope, also by an exception, so that the next group begins
  // without its calls.
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
    void* stream;  // null: host memory; the group's end waits for the call
    CompressedBatch* compressed;
  };
  struct Setup {
    std::function<Error()> run;
    std::function<void()> undo;  // may be empty
  };
  // Set-ups that run one after the other and keep `parent` alive; null: no parent.
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
  void add_messages();
  Error run_setups();
  Error run_calls();
  Request issue(bool driven);
  void prepare(pithRequest& request);
  bool is_later(const Collected& call) const;
  void join_streams();
  void issue_all(pithRequest& request, bool driven);

  int depth_ = 0;
  unsigned process_ = fork_generation();
  std::vector<Collected> collectives_;
  std::vector<void*> streams_;  // scratch of join_streams()
  Refilled<std::vector<Range>> blocks_;
  Refilled<MessageBatch> batches_;
  Refilled<CompressedBatch> compressed_;
  std::vector<Chain> setups_;
  Error error_;
};

}  // namespace pith
