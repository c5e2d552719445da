#include "api/submit.hpp"

#include "api/compressor_handle.hpp"

namespace pith::api {

namespace {

// blocking = 0: pithCommGetAsyncError tells the end.
Error begin(pithComm_t comm, Expected<Request> calls) {
  // Made once, and never destroyed: steady state allocates nothing, also at the end of a process.
  static const Error& begun = *new Error(Code::in_progress, "the call has begun");
  if (!calls) return calls.error();
  comm->begin(Background(std::move(*calls)));
  return begun;
}

// The thread's group is not open: it serves as one for this call alone.
template <class Call>
Error begin(pithComm_t comm, const Call& call, Group& alone) {
  const Group::Emptied emptied(alone);
  alone.add(comm->communicator, call, nullptr);
  return begin(comm, alone.run_in_background());
}

}  // namespace

Error submit(pithComm_t comm, CollectiveArgs& args, pithStream_t stream) {
  Group& group = Group::of_this_thread();
  if (group.open()) {
    if (!comm->blocking) comm->forget_failure();
    group.add(comm->communicator, args, stream);
    return {};
  }
  if (!comm->blocking && !stream) return begin(comm, args, group);
  // An abort by another thread may have freed `comm` when this returns.
  return stream ? comm->communicator->enqueue_on_stream(args, stream)
                : comm->communicator->run(args);
}

Error submit(pithComm_t comm, Message message, pithStream_t stream) {
  Group& group = Group::of_this_thread();
  if (group.open()) {
    if (!comm->blocking) comm->forget_failure();
    group.add(comm->communicator, message, stream);
    return {};
  }
  const std::span<Message> alone(&message, 1);
  if (Error error = check_own(alone, comm->communicator->rank())) return error;
  if (!comm->blocking && !stream) return begin(comm, message, group);
  CollectiveArgs args;
  args.collective = Collective::point_to_point;
  args.messages = alone;
  return submit(comm, args, stream);
}

Error submit(const char* function, pithComm_t comm, const std::shared_ptr<Compressor>& compressor,
             const CompressedTensor& given, pithStream_t stream) {
  Group& group = Group::of_this_thread();
  Claim claim(function, *compressor);
  if (claim.error()) return claim.error();
  if (group.open()) {
    if (!comm->blocking) comm->forget_failure();
    group.add(comm->communicator, compressor, given, stream);
    claim.keep();
    return {};
  }
  if (!comm->blocking && !stream) {
    const Group::Emptied emptied(group);
    group.add(comm->communicator, compressor, given, nullptr);
    claim.keep();
    return begin(comm, group.run_in_background());
  }
  CompressedTensor tensor = given;
  CollectiveArgs args;
  args.tensors = std::span(&tensor, 1);
  if (stream) {
    std::vector claimed{compressor};
    claim.keep();
    return comm->communicator->enqueue_on_stream(args, stream, HeldCompressors(std::move(claimed)));
  }
  if (Error error = comm->communicator->check(args.tensors)) return error;
  if (Error error = compressor->move_to(nullptr)) return error;
  compressor->shape(given.count, given.type);  // where there is no memory, nothing has begun
  comm->communicator->bind(compressor);
  // An abort by another thread may have freed `comm` when this returns.
  return comm->communicator->run(args);
}

Error conclude(Error error) {
  if (error && Group::of_this_thread().open()) Group::of_this_thread().fail(error);
  return error;
}

}  // namespace pith::api
