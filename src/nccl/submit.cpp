// Routes each call: to Pith at once, or, if the environment asks for compression or another NCCL,
// to one of these after the ranks have agreed.
//
// In a group such calls wait for the group's end and run after the communicator's other calls in
// the group, which is the same order on all ranks.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/check.hpp"
#include "core/log.hpp"
#include "nccl/call.hpp"
#include "nccl/compression/agreement.hpp"
#include "nccl/errors.hpp"
#include "nccl/estimate.hpp"
#include "nccl/exported.hpp"
#include "nccl/extension.hpp"
#include "nccl/extras.hpp"

namespace pith::nccl {

namespace {

enum class GroupKind : unsigned char { none, undecided, blocking, background };
constinit thread_local GroupKind group_kind = GroupKind::none;

ncclResult_t refuse_mixed(const NcclCall& call) {
  return fail_group(guarded([&] {
    return join_group(fmt::format("nccl{}", name_of(call.kind)), ours(call.comm)->blocking);
  }));
}

std::vector<Waiting>& waiting_of_this_thread() {
  static thread_local std::vector<Waiting> waiting;
  return waiting;
}

void prepare(Extension& extension, pithComm_t comm) {
  if (extension.compression || !extras()->compression) return;
  const CompressionRules& rules = *extras()->compression;
  const int size = comm->communicator->size();
  if (size == 1) return;
  const std::string name = comm->name.empty() ? "" : fmt::format(" \"{}\"", comm->name);
  const bool spans = spans_job(size);
  const std::string who =
      fmt::format("communicator{} of {} ranks, rank {},", name, size, comm->communicator->rank());
  extension.compression = std::make_unique<Compression>(rules, rules.selects(comm->name, spans),
                                                        who, comm->communicator, extension.plan());
  if (!spans || rules.comms != "world" || !job_size_is_guessed()) return;
  log(LogLevel::info, fmt::format("PITH_COMPRESS: {} is taken for the whole job's, as no launcher "
                                  "tells how large that is",
                                  who));
}

// A communicator that was taken for the whole job's may turn out to be smaller.
void reconsider(Compression& compression, const pithComm& comm) {
  const bool spans = spans_job(comm.communicator->size());
  if (!extras()->compression->selects(comm.name, spans)) compression.withdraw();
}

Error check_revoked(const Extension* extension, const NcclCall& call) {
  if (!extension || !extension->revoked) return {};
  return {Code::invalid_usage,
          fmt::format("nccl{}: comm is revoked, expected one that still takes calls",
                      name_of(call.kind))};
}

bool is_reduction(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

bool has_root(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::bcast || kind == Kind::reduce ||
         kind == Kind::gather || kind == Kind::scatter;
}

// Checks a collective of count 0, which some ranks may omit: it communicates nothing and has no
// number. Communicator and arguments are checked as for other calls, except that an operation made
// for another type is accepted, as in NCCL.
Error check_empty(const NcclCall& call) {
  const pithComm_t comm = ours(call.comm);
  const std::string name = fmt::format("nccl{}", name_of(call.kind));
  const char* const function = name.c_str();
  const auto type = static_cast<pithDataType_t>(call.type);
  const auto op = static_cast<pithRedOp_t>(call.op);
  Error error = api::check_communicator(function, comm);
  if (!error) error = check_revoked(find_extension(comm).get(), call);
  if (!error) error = async_error_of(comm);
  if (!error && has_root(call.kind)) {
    error = api::check_rank(function, "root", call.root, comm->communicator->size());
  }
  if (!error) error = api::check_type(function, type);
  if (!error && is_reduction(call.kind) && !comm->ops.find(op)) {
    error = api::check_op(function, op, comm, type);
  }
  return error;
}

// Pith's operations on bits and its complex types have numbers that NCCL gives to none.
bool is_unknown(ncclRedOp_t op) {
  return op >= ncclNumOps && static_cast<int>(op) < static_cast<int>(pithNumOps);
}
bool is_unknown(ncclDataType_t type) { return type < 0 || type >= ncclNumTypes; }

Error refuse_unknown(const NcclCall& call) {
  const std::string function = fmt::format("nccl{}", name_of(call.kind));
  if (Error error = api::check_communicator(function.c_str(), ours(call.comm))) return error;
  if (Error error = check_type(function, call.type)) return error;
  return {
      Code::invalid_argument,
      fmt::format("{}: op is {}, expected 0 to {} or what ncclRedOpCreatePreMulSum made for this "
                  "communicator",
                  function, static_cast<int>(call.op), ncclNumOps - 1)};
}

// Whether Pith's own call refuses it. Checked before the vote, in which no other rank would take
// part.
bool is_refused(const NcclCall& call) {
  if (!call.send || !call.recv) return true;
  return static_cast<bool>(
      api::check_count("", "count", call.count, static_cast<pithDataType_t>(call.type), 1));
}

// The operation may be destroyed before the group ends, so its factor is copied.
Error keep_factor(const char* function, Waiting& one) {
  const pithComm_t comm = ours(one.call.comm);
  const auto type = static_cast<pithDataType_t>(one.call.type);
  const auto op = static_cast<pithRedOp_t>(one.call.op);
  if (Error error = api::check_type(function, type)) return error;
  if (Error error = api::check_op(function, op, comm, type)) return error;
  if (const auto* const made = comm->ops.find(op)) one.factor = made->factor;
  return {};
}

// As Pith's own call does.
Error resolve_stream(const char* function, NcclCall& call) {
  pithStream_t stream = call.stream;
  Error error = api::resolve_stream(function, stream, {call.send, call.recv});
  call.stream = static_cast<cudaStream_t>(stream);
  return error;
}

// Precondition: the call's comm is not NULL, and extras may apply.
ncclResult_t submit_with_extras(const NcclCall& call) {
  const pithComm_t comm = ours(call.comm);
  const auto refused = [&](const Error& error) {
    return fail_group(guarded([&] { return error; }));
  };
  if (Error error = check_revoked(find_extension(comm).get(), call)) return refused(error);
  if (!extras()) return answer(issue(call));
  const std::string function = fmt::format("nccl{}", name_of(call.kind));
  if (Error error = api::check_communicator(function.c_str(), comm)) return refused(error);
  const bool alone = !Group::of_this_thread().open();
  Waiting one{call, comm->communicator, extension_of(comm), nullptr, {}, false};
  prepare(*one.extension, comm);
  Compression* const compression = one.extension->compression.get();
  bool compressed = false;
  if (compression && call.kind == Kind::allreduce) {
    NcclCall resolved = call;
    if (Error error = resolve_stream(function.c_str(), resolved)) return refused(error);
    reconsider(*compression, *comm);
    compressed = compression->covers(resolved);
    if (compressed) one.call = resolved;
  }
  one.in_background = alone && !comm->blocking && !one.call.stream;
  if (const Fallback* const library = extras()->fallback.get()) {
    if (!compressed && library->takes(call, *comm->communicator))
      one.there = one.extension->other_comm();
    library->announce(call.kind, one.there != nullptr);
  }
  if (!one.there && (!compressed || is_refused(call))) return answer(issue(call));
  if (one.there) {
    if (Error error = keep_factor(function.c_str(), one)) return refused(error);
  }
  if (alone) return guarded([&] { return run_waiting({&one, 1}, nullptr); });
  waiting_of_this_thread().push_back(std::move(one));
  return ncclSuccess;
}

// Precondition: this is the outermost end.
Error end_group() {
  std::vector<Waiting> calls;
  calls.swap(waiting_of_this_thread());
  Group& group = Group::of_this_thread();
  const Expected<bool> outermost = group.end("ncclGroupEnd");
  if (!outermost) return outermost.error();
  return group.error() ? group.run() : run_waiting(calls, &group);
}

// Answers the end of a group. An error of one of its calls has already been logged by that call.
template <class End>
ncclResult_t answer_end(End end) {
  const Group& group = Group::of_this_thread();
  const bool told = group.outermost() && group.error();
  return told ? answer_again(end()) : answer(end());
}

// Whether the group stays open when the innermost level ends.
bool nested() {
  const Group& group = Group::of_this_thread();
  return group.open() && !group.outermost();
}

LinkCost link_of(const Shape& shape) {
  const Fallback* const library = extras() ? extras()->fallback.get() : nullptr;
  const Lines* const lines = library ? library->lines() : nullptr;
  return lines ? lines->here : guessed_link(shape);
}

double seconds_of(const Group::Planned& planned) {
  const Shape shape =
      planned.communicator->links().model().shape(planned.args.count * size_of(planned.args.type));
  if (planned.message_bytes > 0) {
    return seconds_of_message(planned.message_bytes, link_of(shape));
  }
  return seconds_here(shape, planned.args.collective, link_of(shape));
}

// Precondition: the type has been checked.
double seconds_of(const Waiting& one) {
  const std::size_t bytes = one.call.count * size_of(static_cast<DType>(one.call.type));
  const Shape shape = one.communicator->links().model().shape(bytes);
  const Lines* const lines = one.there ? extras()->fallback->lines() : nullptr;
  const LinkCost link = lines ? lines->there : link_of(shape);
  if (is_message(one.call.kind)) return seconds_of_message(shape.bytes, link);
  const Collective collective = collective_of(one.call.kind);
  return one.there ? seconds_there(shape, collective, link) : seconds_here(shape, collective, link);
}

Error check_info(const char* function, const ncclSimInfo_t* info) {
  if (!info || (info->magic == NCCL_SIM_INFO_MAGIC && info->size >= sizeof *info)) return {};
  return {Code::invalid_argument,
          fmt::format("{}: info is not one that began with NCCL_SIM_INFO_INITIALIZER", function)};
}

// As in NCCL, an error of the group takes precedence over one of `info`.
Error simulate(ncclSimInfo_t* info) {
  constexpr const char* function = "ncclGroupSimulateEnd";
  Group& group = Group::of_this_thread();
  const Expected<bool> outermost = group.end(function);
  if (!outermost) return outermost.error();
  if (!*outermost) return check_info(function, info);
  std::vector<Waiting> calls;
  calls.swap(waiting_of_this_thread());
  const auto planned = group.discard();
  if (!planned) return planned.error();
  if (Error error = check_info(function, info)) return error;
  double seconds = 0;
  for (const Waiting& one : calls) seconds += seconds_of(one);
  for (const Group::Planned& one : *planned) seconds += seconds_of(one);
  if (info && seconds > 0) info->estimatedTime = static_cast<float>(seconds * 1e6);
  return {};
}

}  // namespace

Error check_not_waiting(const char* function, pithComm_t comm) {
  const auto& waiting = waiting_of_this_thread();
  const Communicator* const made = comm->made();
  const bool has_calls = std::any_of(waiting.begin(), waiting.end(), [made](const Waiting& one) {
    return one.communicator.get() == made;
  });
  return has_calls && !made->is_revoked() ? api::still_in_group(function) : Error();
}

Error join_group(std::string_view function, bool blocking) {
  if (group_kind == GroupKind::none) return {};
  const GroupKind own = blocking ? GroupKind::blocking : GroupKind::background;
  if (group_kind == GroupKind::undecided) group_kind = own;
  if (group_kind == own) return {};
  return {Code::invalid_argument,
          fmt::format("{}: comm has blocking = {}, expected that of the group's first "
                      "communicator, {}",
                      function, blocking ? 1 : 0, blocking ? 0 : 1)};
}

ncclResult_t submit(const NcclCall& call) {
  const pithComm_t comm = ours(call.comm);
  if (is_unknown(call.op) || is_unknown(call.type)) [[unlikely]] {
    return fail_group(guarded([&] { return refuse_unknown(call); }));
  }
  if (call.count == 0 && !is_message(call.kind)) [[unlikely]] {
    return fail_group(guarded([&] { return check_empty(call); }));
  }
  if (group_kind != GroupKind::none && comm) [[unlikely]] {
    if (const ncclResult_t refused = refuse_mixed(call)) return refused;
  }
  if (!comm || (!extras() && !comm->has_attached.load(std::memory_order_acquire))) [[likely]]
    return answer(issue(call));
  return reported_by([&] { return submit_with_extras(call); });
}

}  // namespace pith::nccl

using namespace pith::nccl;

NCCL_EXPORT(ncclResult_t, ncclGroupStart, (void)) {
  if (group_kind == GroupKind::none) group_kind = GroupKind::undecided;
  return answer(pithGroupStart());
}

NCCL_EXPORT(ncclResult_t, ncclGroupEnd, (void)) {
  if (!nested()) group_kind = GroupKind::none;
  const bool waits = pith::Group::of_this_thread().outermost() && !waiting_of_this_thread().empty();
  return answer_end([&] { return waits ? pith::api::guarded(end_group) : pithGroupEnd(); });
}

NCCL_EXPORT(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
  if (!nested()) group_kind = GroupKind::none;
  return answer_end([&] { return pith::api::guarded([&] { return simulate(info); }); });
}
