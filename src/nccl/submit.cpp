// From a call to who serves it: Pith, at once; or, where the environment asks for compression or
// another NCCL, whoever it belongs to, after the ranks have agreed.
//
// In a group such calls wait for its end, because agreement is a call of its own: one for all of
// them. They then come behind the group's other calls, which is the same on all ranks.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "api/check.hpp"
#include "api/submit.hpp"
#include "core/log.hpp"
#include "nccl/call.hpp"
#include "nccl/errors.hpp"
#include "nccl/exported.hpp"
#include "nccl/extension.hpp"
#include "nccl/extras.hpp"

namespace pith::nccl {

namespace {

using api::Group;

struct Waiting {
  NcclCall call;
  bool there;  // in the other NCCL
};

std::vector<Waiting>& waiting_of_this_thread() {
  static thread_local std::vector<Waiting> waiting;
  return waiting;
}

std::vector<ncclComm_t> communicators_of(std::span<const Waiting> calls, bool there) {
  std::vector<ncclComm_t> comms;
  for (const Waiting& one : calls) {
    if (one.there != there) continue;
    if (std::find(comms.begin(), comms.end(), one.call.comm) == comms.end()) {
      comms.push_back(one.call.comm);
    }
  }
  return comms;
}

CollectiveArgs make_args(Collective collective, void* memory, std::size_t count, DType type,
                         Op op) {
  CollectiveArgs args;
  args.collective = collective;
  args.send = args.recv = api::bytes_at(memory);
  args.count = count;
  args.type = type;
  args.op = op;
  return args;
}

// Least and greatest of all ranks' votes: the least of them, and of their negatives.
Error agree_on_compression(std::span<const Waiting> calls) {
  const std::vector<ncclComm_t> comms = communicators_of(calls, false);
  if (comms.empty()) return {};
  std::vector<std::vector<std::int64_t>> votes(comms.size());
  Group agreement;
  for (std::size_t i = 0; i < comms.size(); ++i) {
    Compression& compression = *extension_of(ours(comms[i])).compression;
    for (const Waiting& one : calls) {
      if (!one.there && one.call.comm == comms[i]) votes[i].push_back(compression.vote(one.call));
    }
    const std::size_t n = votes[i].size();
    for (std::size_t v = 0; v < n; ++v) votes[i].push_back(-votes[i][v]);
    agreement.add(ours(comms[i])->communicator,
                  make_args(Collective::allreduce, votes[i].data(), 2 * n, DType::i64, Op::min),
                  nullptr);
  }
  const Error error = agreement.run();
  for (std::size_t i = 0; i < comms.size(); ++i) {
    const std::size_t n = votes[i].size() / 2;
    std::span<std::int64_t> greatest(votes[i].data() + n, n);
    for (std::int64_t& vote : greatest) vote = -vote;
    std::vector<std::int64_t> nobody(n, 0);  // after an error the calls fail anyway
    Compression& compression = *extension_of(ours(comms[i])).compression;
    compression.settle(error ? std::span<std::int64_t>(nobody) : std::span(votes[i].data(), n),
                       error ? std::span<std::int64_t>(nobody) : greatest);
  }
  return error;
}

// Its id goes from rank 0 to the others by our communicator, of all that lack one at once.
Error make_fallback_comms(const Fallback& library, std::span<const Waiting> calls) {
  std::vector<ncclComm_t> comms = communicators_of(calls, true);
  std::erase_if(comms,
                [](ncclComm_t comm) { return extension_of(ours(comm)).fallback != nullptr; });
  if (comms.empty()) return {};
  const auto failed = [&](ncclResult_t result) {
    return Error(static_cast<Code>(result), library.ncclGetLastError(nullptr));
  };
  std::vector<ncclUniqueId> ids(comms.size());
  Group shared;
  for (std::size_t i = 0; i < comms.size(); ++i) {
    const auto& communicator = ours(comms[i])->communicator;
    if (communicator->rank() == 0) {
      if (const ncclResult_t result = library.ncclGetUniqueId(&ids[i])) return failed(result);
    }
    shared.add(communicator,
               make_args(Collective::broadcast, ids[i].internal, sizeof ids[i], DType::u8, Op::sum),
               nullptr);
  }
  if (Error error = shared.run()) return error;
  std::vector<ncclComm_t> made(comms.size(), nullptr);
  ncclResult_t result = library.ncclGroupStart();
  for (std::size_t i = 0; i < comms.size() && result == ncclSuccess; ++i) {
    const Communicator& communicator = *ours(comms[i])->communicator;
    result = library.ncclCommInitRankConfig(&made[i], communicator.size(), ids[i],
                                            communicator.rank(), nullptr);
  }
  const ncclResult_t ended = library.ncclGroupEnd();
  if (result == ncclSuccess) result = ended;
  if (result != ncclSuccess) return failed(result);
  for (std::size_t i = 0; i < comms.size(); ++i) {
    extension_of(ours(comms[i])).fallback = std::make_unique<FallbackComm>(library, made[i]);
  }
  return {};
}

Error agree(std::span<const Waiting> calls) {
  if (Error error = agree_on_compression(calls)) return error;
  const Fallback* const library = extras()->fallback.get();
  return library ? make_fallback_comms(*library, calls) : Error();
}

ncclResult_t issue_there(std::span<const Waiting> calls) {
  const Fallback* const library = extras()->fallback.get();
  if (!library || communicators_of(calls, true).empty()) return ncclSuccess;
  ncclResult_t result = library->ncclGroupStart();
  for (const Waiting& one : calls) {
    if (!one.there || result != ncclSuccess) continue;
    result = library->issue(one.call, extension_of(ours(one.call.comm)).fallback->get());
  }
  const ncclResult_t ended = library->ncclGroupEnd();
  if (result == ncclSuccess) result = ended;
  if (result != ncclSuccess) remember(library->ncclGetLastError(nullptr));
  return result;
}

// The first error counts; the other calls are made all the same, for other ranks count on them.
ncclResult_t issue_all(std::span<const Waiting> calls) {
  ncclResult_t result = issue_there(calls);
  for (const Waiting& one : calls) {
    if (one.there) continue;
    Compression& compression = *extension_of(ours(one.call.comm)).compression;
    const ncclResult_t issued = answer(compression.issue(one.call));
    if (result == ncclSuccess) result = issued;
  }
  return result;
}

ncclResult_t agree_and_issue(std::span<const Waiting> calls) {
  const ncclResult_t agreed = guarded([&] { return agree(calls); });
  return agreed == ncclSuccess ? issue_all(calls) : agreed;
}

void prepare(Extension& extension, pithComm_t comm) {
  if (extension.compression || !extras()->compression) return;
  const CompressionRules& rules = *extras()->compression;
  const int size = comm->communicator->size();
  if (size == 1) return;
  extension.compression =
      std::make_unique<Compression>(rules, rules.selects(comm->name, spans_job(size)));
}

void say_host_only() {
  static std::once_flag once;
  std::call_once(once, [] {
    log(LogLevel::warn,
        "PITH_COMPRESS: calls on streams are made dense: compressed ones run on host memory only");
  });
}

Error check_revoked(const Extension* extension, const NcclCall& call) {
  if (!extension || !extension->revoked) return {};
  return {Code::invalid_usage,
          fmt::format("nccl{}: comm is revoked, expected one that still takes calls",
                      name_of(call.kind))};
}

// Precondition: the call's comm is not NULL, and something more than Pith's own call may be wanted.
ncclResult_t submit_with_extras(const NcclCall& call) {
  const pithComm_t comm = ours(call.comm);
  const auto refused = [&](const Error& error) {
    return fail_group(guarded([&] { return error; }));
  };
  if (Error error = check_revoked(find_extension(comm), call)) return refused(error);
  if (!extras()) return answer(issue(call));
  const std::string function = fmt::format("nccl{}", name_of(call.kind));
  if (Error error = api::check_communicator(function.c_str(), comm)) return refused(error);
  Extension& extension = extension_of(comm);
  prepare(extension, comm);
  const bool compressed = extension.compression && extension.compression->covers(call);
  if (extras()->compression && call.kind == Kind::allreduce && call.stream) say_host_only();
  const Fallback* const library = extras()->fallback.get();
  const bool there = !compressed && library && library->takes(call);
  if (library) library->announce(call.kind, there);
  if (!compressed && !there) return answer(issue(call));
  const Waiting one{call, there};
  if (!Group::of_this_thread().open()) return agree_and_issue({&one, 1});
  waiting_of_this_thread().push_back(one);
  return ncclSuccess;
}

// Precondition: this is the outermost end.
ncclResult_t end_waiting() {
  std::vector<Waiting> calls;
  calls.swap(waiting_of_this_thread());
  if (calls.empty() || Group::of_this_thread().error()) return ncclSuccess;
  return fail_group(agree_and_issue(calls));
}

// As a guess, where nothing is measured: a message, a byte sent, a byte reduced.
constexpr LinkCost guessed_link{20e-6, 1e-9, 1e-10};

double seconds_of(const Group::Planned& planned) {
  if (planned.message_bytes > 0 || planned.args.collective == Collective::point_to_point) {
    return guessed_link.alpha + guessed_link.beta * static_cast<double>(planned.message_bytes);
  }
  Shape shape;
  shape.ranks = planned.communicator->size();
  shape.bytes = planned.args.count * size_of(planned.args.type);
  return default_algorithm(shape, planned.args.collective).cost(shape, guessed_link);
}

Error simulate(ncclSimInfo_t* info) {
  Group& group = Group::of_this_thread();
  const Expected<bool> outermost = group.end();
  if (!outermost) return outermost.error();
  if (info && (info->magic != NCCL_SIM_INFO_MAGIC || info->size < sizeof *info)) {
    if (*outermost) static_cast<void>(group.discard());
    return {Code::invalid_argument,
            "ncclGroupSimulateEnd: info is not one that began with "
            "NCCL_SIM_INFO_INITIALIZER"};
  }
  if (!*outermost) return {};
  double seconds = 0;
  for (const Waiting& one : waiting_of_this_thread()) {
    const std::size_t bytes = one.call.count * size_of(static_cast<DType>(one.call.type));
    seconds += guessed_link.alpha + guessed_link.beta * static_cast<double>(bytes);
  }
  waiting_of_this_thread().clear();
  const auto planned = group.discard();
  if (!planned) return planned.error();
  for (const Group::Planned& one : *planned) seconds += seconds_of(one);
  if (info && seconds > 0) info->estimatedTime = static_cast<float>(seconds);
  return {};
}

}  // namespace

ncclResult_t submit(const NcclCall& call) {
  const pithComm_t comm = ours(call.comm);
  if (!comm || (!extras() && !comm->has_attached.load(std::memory_order_acquire))) [[likely]]
    return answer(issue(call));
  return without_throwing([&] { return submit_with_extras(call); });
}

}  // namespace pith::nccl

using namespace pith::nccl;

NCCL_EXPORT(ncclResult_t, ncclGroupStart, (void)) { return answer(pithGroupStart()); }

NCCL_EXPORT(ncclResult_t, ncclGroupEnd, (void)) {
  if (pith::api::Group::of_this_thread().outermost()) {
    without_throwing([] { return end_waiting(); });
  }
  return answer(pithGroupEnd());
}

NCCL_EXPORT(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
  return guarded([&] { return simulate(info); });
}
