#include "nccl/new_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "api/completion.hpp"
#include "api/group.hpp"
#include "api/submit.hpp"
#include "comm/stream_memory.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "nccl/device_context.hpp"
#include "nccl/extension.hpp"
#include "nccl/extras.hpp"

namespace pith::nccl {

namespace {

// What the ranks tell each other: rank 0's id, and whether one of them cannot. The greatest of all
// ranks' bytes is everybody's, as the others have zeros.
class Note {
 public:
  enum State : unsigned char { fine, no_device, no_id };

  void set(State state) { bytes_.back() = std::max<unsigned char>(bytes_.back(), state); }
  State state() const { return static_cast<State>(bytes_.back()); }
  void set(const ncclUniqueId& id) {
    std::copy(std::begin(id.internal), std::end(id.internal), bytes_.begin());
  }
  ncclUniqueId id() const {
    ncclUniqueId id;
    std::copy_n(bytes_.begin(), sizeof id.internal, std::begin(id.internal));
    return id;
  }
  Error exchange(Communicator& communicator) {
    CollectiveArgs args;
    args.send = args.recv = api::bytes_at(bytes_.data());
    args.count = bytes_.size();
    args.type = DType::u8;
    args.op = Op::max;
    return communicator.run(args);
  }

 private:
  std::array<unsigned char, sizeof(ncclUniqueId::internal) + 1> bytes_{};
};

Error error_there(const Fallback& library, ncclResult_t result) {
  return {static_cast<Code>(result),
          fmt::format("PITH_NCCL_FALLBACK: {}", library.ncclGetLastError(nullptr))};
}

// Null where ranks have nothing that would go there. Collective.
Expected<std::shared_ptr<FallbackComm>> make_twin(const Fallback& library,
                                                  Communicator& communicator, const Place& place) {
  Note note;
  Error own;
  if (!place.has_driver) note.set(Note::no_device);
  if (communicator.rank() == 0 && note.state() == Note::fine) {
    ncclUniqueId id;
    if (const ncclResult_t result = library.ncclGetUniqueId(&id)) {
      own = error_there(library, result);
      note.set(Note::no_id);
    } else {
      note.set(id);
    }
  }
  if (Error error = note.exchange(communicator)) return error;
  if (own) return own;
  if (note.state() == Note::no_id) {
    return Error(Code::remote, "PITH_NCCL_FALLBACK: rank 0 got no id from the other NCCL", 0);
  }
  if (note.state() == Note::no_device) return std::shared_ptr<FallbackComm>();
  const CurrentContext current(place.context);
  ncclComm_t made = nullptr;
  const ncclResult_t result = library.ncclCommInitRankConfig(&made, communicator.size(), note.id(),
                                                             communicator.rank(), nullptr);
  if (result != ncclSuccess) {
    communicator.abort();  // nobody else may know
    return error_there(library, result);
  }
  return std::make_shared<FallbackComm>(library, made);
}

// Of the call that this thread is in.
thread_local std::shared_ptr<const JobPart> part_of_this_thread;

Error complete(pithComm& comm, const Place& place, const std::shared_ptr<const JobPart>& part) {
  const Fallback* const library = extras() ? extras()->fallback.get() : nullptr;
  std::shared_ptr<FallbackComm> twin;
  if (library) {
    Expected<std::shared_ptr<FallbackComm>> made = make_twin(*library, *comm.communicator, place);
    if (!made) return made.error();
    twin = std::move(*made);
  }
  const bool has_part = part && extras() && extras()->compression;
  if (!twin && place.device == 0 && !has_part) return {};
  const std::shared_ptr<Extension> extension = extension_of(&comm);
  const std::lock_guard lock(extension->guard);
  extension->device = place.device;
  if (has_part) extension->job_part = part;
  extension->fallback = std::move(twin);
  return {};
}

api::Completion begin() {
  return [place = place_of_this_thread(), part = part_of_this_thread](pithComm& comm) {
    return complete(comm, place, part);
  };
}

}  // namespace

void complete_new_communicators() { api::complete_communicators_by(begin); }

FromId::FromId(int ranks, std::string id) {
  part_of_this_thread = std::make_shared<const JobPart>(ranks, std::move(id));
}

FromId::~FromId() { part_of_this_thread.reset(); }

// Over another NCCL they wait for each other, so each gets a thread.
Error complete_all(std::span<const pithComm_t> comms, const int* devices) {
  std::vector<std::function<Error()>> jobs;
  jobs.reserve(comms.size());
  const auto part = std::make_shared<const JobPart>(static_cast<int>(comms.size()), "");
  for (std::size_t r = 0; r < comms.size(); ++r) {
    const int device = devices ? devices[r] : static_cast<int>(r);
    jobs.emplace_back([comm = comms[r], device, part] {
      const Place place = place_of(device);
      comm->communicator->prepare_streams(place.context);
      return complete(*comm, place, part);
    });
  }
  if (extras() && extras()->fallback) return first_failure(run_together(jobs));
  std::vector<Error> errors;
  errors.reserve(jobs.size());
  for (const auto& job : jobs) errors.push_back(without_throwing(job));
  return first_failure(errors);
}

}  // namespace pith::nccl
