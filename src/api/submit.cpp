#include "api/submit.hpp"

namespace pith::api {

namespace {

// blocking = 0: pithCommGetAsyncError tells the end.
template <class Call>
Error begin(pithComm_t comm, const Call& call) {
  Group alone;
  alone.add(comm->communicator, call, nullptr);
  Expected<std::unique_ptr<pithRequest>> calls = alone.run_in_background();
  if (!calls) return calls.error();
  comm->background = std::make_unique<Background>(std::move(*calls));
  return {Code::in_progress, "the call has begun"};
}

}  // namespace

Error submit(pithComm_t comm, CollectiveArgs& args, pithStream_t stream) {
  Group& group = Group::of_this_thread();
  if (group.open()) {
    group.add(comm->communicator, args, stream);
    return {};
  }
  if (!comm->blocking && !stream) return begin(comm, args);
  // An abort by another thread may have freed `comm` when this returns.
  return stream ? comm->communicator->enqueue_on_stream(args, stream)
                : comm->communicator->run(args);
}

Error submit(pithComm_t comm, Message message, pithStream_t stream) {
  Group& group = Group::of_this_thread();
  if (group.open()) {
    group.add(comm->communicator, message, stream);
    return {};
  }
  const std::span<Message> alone(&message, 1);
  if (Error error = check_own(alone, comm->communicator->rank())) return error;
  if (!comm->blocking && !stream) return begin(comm, message);
  CollectiveArgs args;
  args.collective = Collective::point_to_point;
  args.messages = alone;
  return submit(comm, args, stream);
}

Error submit(pithComm_t comm, const CompressedTensor& given) {
  CompressedTensor tensor = given;
  CollectiveArgs args;
  args.tensors = std::span(&tensor, 1);
  return submit(comm, args, nullptr);
}

Error conclude(Error error) {
  if (error && Group::of_this_thread().open()) Group::of_this_thread().fail(error);
  return error;
}

}  // namespace pith::api
