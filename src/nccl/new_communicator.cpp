#include "nccl/new_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "api/comm_handle.hpp"
#include "api/completion.hpp"
#include "comm/submit.hpp"
#include "control/control_node.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "nccl/device_context.hpp"
#include "nccl/extension.hpp"
#include "nccl/extras.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"

namespace pith::nccl {

namespace {

// What the ranks exchange: rank 0's id, the worst State, and whether a rank wants no HostPlan.
// The bytewise maximum over ranks is the result, since unset bytes are zero.
class Note {
 public:
  enum State : unsigned char { fine, no_device, no_id };

  void set(State state) { bytes_[state_at] = std::max<unsigned char>(bytes_[state_at], state); }
  State state() const { return static_cast<State>(bytes_[state_at]); }
  void want_no_plan() { bytes_[no_plan_at] = 1; }
  bool is_plan_wanted() const { return bytes_[no_plan_at] == 0; }
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
    args.send = args.recv = bytes_at(bytes_.data());
    args.count = bytes_.size();
    args.type = DType::u8;
    args.op = Op::max;
    return communicator.calls().run(args);
  }

 private:
  static constexpr std::size_t state_at = sizeof(ncclUniqueId::internal);
  static constexpr std::size_t no_plan_at = state_at + 1;
  std::array<unsigned char, no_plan_at + 1> bytes_{};
};

Error error_there(const Fallback& library, ncclResult_t result) {
  return {static_cast<Code>(result),
          fmt::format("PITH_NCCL_FALLBACK: {}", library.ncclGetLastError(nullptr))};
}

struct There {
  std::shared_ptr<FallbackComm> twin;  // null: a rank has no device
  bool is_plan_wanted = false;         // on all ranks
};

// Collective.
Expected<There> make_twin(const Fallback& library, Communicator& communicator, const Place& place,
                          bool wants_plan) {
  Note note;
  Error own;
  if (!wants_plan) note.want_no_plan();
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
  if (note.state() == Note::no_device) return There();
  ncclComm_t made = nullptr;
  const ncclResult_t result = library.ncclCommInitRankConfig(&made, communicator.size(), note.id(),
                                                             communicator.rank(), nullptr);
  if (result != ncclSuccess) {
    communicator.abort();  // the other ranks may not know of the failure
    return error_there(library, result);
  }
  return There{std::make_shared<FallbackComm>(library, made), note.is_plan_wanted()};
}

// Whether compressed sums of the communicator should be made host by host, and the other NCCL may
// do the part inside hosts.
bool wants_plan(const Fallback& library, const pithComm& comm) {
  const auto& rules = extras()->compression;
  return rules && rules->by_host && library.has(Kind::reduce_scatter) &&
         library.has(Kind::allgather) &&
         rules->selects(comm.name, spans_job(comm.communicator->size()));
}

// Of this thread's current call.
thread_local std::shared_ptr<const JobPart> part_of_this_thread;
thread_local bool grows_on_this_thread = false;

// The control plane's secret is that of the id, which only one member was given.
std::shared_ptr<const JobPart> part_of_grown(const Communicator& communicator) {
  const Secret secret = communicator.identity().control->secret();
  std::string id(secret.size(), '\0');
  std::memcpy(id.data(), secret.data(), secret.size());
  return std::make_shared<const JobPart>(communicator.size(), std::move(id));
}

Error complete(pithComm& comm, const Place& place, const std::shared_ptr<const JobPart>& part,
               const Expected<Settings>& settings) {
  const Fallback* const library = extras() ? extras()->fallback.get() : nullptr;
  There there;
  std::shared_ptr<HostPlan> plan;
  if (library) {
    const CurrentContext current(place.context);
    Expected<There> made =
        make_twin(*library, *comm.communicator, place, wants_plan(*library, comm));
    if (!made) return made.error();
    there = std::move(*made);
    if (there.is_plan_wanted) {
      auto planned = HostPlan::make(*library, *there.twin, *comm.communicator, settings);
      if (!planned) return planned.error();
      plan = std::move(*planned);
    }
    if (plan) plan->between()->streams().prepare(place.context);
  }
  const bool has_part = part && extras() && extras()->compression;
  if (!there.twin && place.device == 0 && !has_part) return {};
  const std::shared_ptr<Extension> extension = extension_of(&comm);
  const std::lock_guard lock(extension->guard);
  extension->device = place.device;
  if (has_part) extension->job_part = part;
  extension->host_plan = std::move(plan);
  extension->fallback = std::move(there.twin);
  return {};
}

api::Completion begin() {
  return [place = place_of_this_thread(), part = part_of_this_thread, grows = grows_on_this_thread,
          settings = settings_from_environment()](pithComm& comm) {
    return complete(comm, place, grows ? part_of_grown(*comm.communicator) : part, settings);
  };
}

}  // namespace

void complete_new_communicators() { api::complete_communicators_by(begin); }

FromId::FromId(int ranks, std::string id) {
  part_of_this_thread = std::make_shared<const JobPart>(ranks, std::move(id));
}

FromId::~FromId() { part_of_this_thread.reset(); }

Growing::Growing() { grows_on_this_thread = true; }

Growing::~Growing() { grows_on_this_thread = false; }

// With another NCCL they wait for each other, so each gets a thread.
Error complete_all(std::span<const pithComm_t> comms, const int* devices) {
  std::vector<std::function<Error()>> jobs;
  jobs.reserve(comms.size());
  const auto part = std::make_shared<const JobPart>(static_cast<int>(comms.size()), "");
  const Expected<Settings> settings = settings_from_environment();
  for (std::size_t r = 0; r < comms.size(); ++r) {
    const int device = devices ? devices[r] : static_cast<int>(r);
    jobs.emplace_back([comm = comms[r], device, part, &settings] {
      const Place place = place_of(device);
      comm->communicator->streams().prepare(place.context);
      return complete(*comm, place, part, settings);
    });
  }
  if (extras() && extras()->fallback) return first_failure(run_together(jobs));
  std::vector<Error> errors;
  errors.reserve(jobs.size());
  for (const auto& job : jobs) errors.push_back(without_throwing(job));
  return first_failure(errors);
}

}  // namespace pith::nccl
