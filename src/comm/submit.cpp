#include "comm/submit.hpp"

#include <vector>

#include "comm/group.hpp"
#include "streams/streams.hpp"

namespace pith {

namespace {

// For blocking = false: the caller asks later how the calls have ended.
Error begin(CallTarget& target, Expected<Request> calls) {
  // Made once and never destroyed, so nothing is allocated in steady state or at the end of the
  // process.
  static const Error& begun = *new Error(Code::in_progress, "the call has begun");
  if (!calls) return calls.error();
  target.begin(Background(std::move(*calls)));
  return begun;
}

// The thread's group is not open, so it holds this one call.
template <class... Call>
Error begin_alone(CallTarget& target, const Call&... call) {
  Group& alone = Group::of_this_thread();
  const Group::Emptied emptied(alone);
  alone.add(target.communicator, call..., nullptr);
  return begin(target, alone.run_in_background());
}

template <class... Call>
Error collect(CallTarget& target, void* stream, const Call&... call) {
  if (!target.blocking) target.forget_failure();
  Group::of_this_thread().add(target.communicator, call..., stream);
  return {};
}

// Releases a compressor at the end of a scope, unless keep() hands that duty on.
class Claimed {
 public:
  explicit Claimed(Compressor& compressor) : compressor_(&compressor) {}
  ~Claimed() {
    if (compressor_) compressor_->release();
  }
  Claimed(const Claimed&) = delete;
  Claimed& operator=(const Claimed&) = delete;
  void keep() { compressor_ = nullptr; }

 private:
  Compressor* compressor_;
};

}  // namespace

// Another thread may abort and so free `target` before these functions return.
Error submit(CallTarget& target, CollectiveArgs& args, void* stream) {
  if (Group::of_this_thread().open()) return collect(target, stream, args);
  if (stream) return target.communicator->streams().enqueue(args, stream);
  if (!target.blocking) return begin_alone(target, args);
  return target.communicator->calls().run(args);
}

Error submit(CallTarget& target, Message message, void* stream) {
  if (Group::of_this_thread().open()) return collect(target, stream, message);
  PairArgs args{{&message, 1}};
  if (Error error = check_own(args.messages, target.communicator->rank())) return error;
  if (stream) return target.communicator->streams().enqueue(args, stream);
  if (!target.blocking) return begin_alone(target, message);
  return target.communicator->calls().run(args);
}

Error submit(CallTarget& target, const std::shared_ptr<Compressor>& compressor,
             const CompressedTensor& given, void* stream) {
  Claimed claimed(*compressor);
  if (Group::of_this_thread().open()) {
    Error error = collect(target, stream, compressor, given);
    claimed.keep();
    return error;
  }
  if (stream) {
    CompressedTensor tensor = given;
    std::vector held{compressor};
    claimed.keep();
    return target.communicator->streams().enqueue(CompressedArgs{{&tensor, 1}}, stream,
                                                  HeldCompressors(std::move(held)));
  }
  if (!target.blocking) {
    Group& alone = Group::of_this_thread();
    const Group::Emptied emptied(alone);
    alone.add(target.communicator, compressor, given, nullptr);
    claimed.keep();
    return begin(target, alone.run_in_background());
  }
  CompressedTensor tensor = given;
  CompressedArgs args{{&tensor, 1}};
  BoundCompressors& bound = target.communicator->compressors();
  if (Error error = bound.check(args.tensors)) return error;
  if (Error error = compressor->move_to(nullptr)) return error;
  compressor->shape(given.count, given.type);  // may throw: nothing has begun
  bound.bind(compressor);
  return target.communicator->calls().run(args);
}

Error failing_group(Error error) {
  if (Group::of_this_thread().open()) Group::of_this_thread().fail(error);
  return error;
}

}  // namespace pith
