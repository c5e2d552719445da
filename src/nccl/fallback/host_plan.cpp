#include "nccl/fallback/host_plan.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/dtype.hpp"
#include "core/log.hpp"
#include "streams/stream_memory.hpp"

namespace pith::nccl {

namespace {

bool are_alike(const Hosts& hosts, int ranks) {
  return hosts.count() > 1 && hosts.slices() > 1 && hosts.slices() * hosts.count() == ranks;
}

std::size_t unit_of(const NcclCall& call) { return size_of(static_cast<DType>(call.type)); }

void* element(void* memory, std::size_t index, const NcclCall& call) {
  return static_cast<std::byte*>(memory) + index * unit_of(call);
}
const void* element(const void* memory, std::size_t index, const NcclCall& call) {
  return static_cast<const std::byte*>(memory) + index * unit_of(call);
}

bool is_on_device(const void* memory) {
  const Expected<bool> known = is_device_memory(memory);
  return known && *known;
}

}  // namespace

// Ranks of one color are ordered by host, so a rank's number between hosts is its host's number.
Expected<std::unique_ptr<HostPlan>> HostPlan::make(const Fallback& library,
                                                   const FallbackComm& twin, Communicator& whole,
                                                   const Expected<Settings>& settings) {
  const Hosts& hosts = whole.links().hosts();
  const bool tells = whole.rank() == 0;
  if (!are_alike(hosts, whole.size())) {
    if (tells) {
      log(LogLevel::info,
          fmt::format("PITH_NCCL_FALLBACK: sums that may be compressed are Pith's alone: {} ranks "
                      "are on {} hosts, of at least {} each, expected two or more hosts with as "
                      "many each, two or more",
                      whole.size(), hosts.count(), hosts.slices()));
    }
    return std::unique_ptr<HostPlan>();
  }
  const int own = whole.links().context().rank;
  const int host = hosts.host_of(own);
  const int place = hosts.index_of(own);
  ncclComm_t inside = nullptr;
  const ncclResult_t result = library.ncclCommSplit(twin.get(), host, place, &inside, nullptr);
  if (result != ncclSuccess) {
    whole.abort();  // the other ranks may not know of the failure
    return library.error_of(result);
  }
  std::unique_ptr<HostPlan> plan(new HostPlan(library, inside, place, hosts.slices()));
  Expected<std::unique_ptr<Communicator>> between = whole.children().split(settings, place, host);
  if (!between) {
    whole.abort();  // ranks at other places may have succeeded
    plan->inside_.abort();
    return between.error();
  }
  plan->between_ = std::move(*between);
  plan->between_->revocation().takes_along(whole.identity().key);
  whole.revocation().takes_along(plan->between_->identity().key);
  if (tells) {
    log(LogLevel::info, fmt::format("PITH_NCCL_FALLBACK: of sums that may be compressed, {} makes "
                                    "what is inside hosts, of {} ranks each; Pith what is between "
                                    "the {} hosts",
                                    library.path(), hosts.slices(), hosts.count()));
  }
  return plan;
}

// Elements of each rank's part. Parts are aligned for fast access on the device; the last part also
// takes the remainder, less than 16 bytes per part.
std::size_t HostPlan::each_of(const NcclCall& call) const {
  constexpr std::size_t aligned_bytes = 16;
  const std::size_t aligned = aligned_bytes / unit_of(call);
  return call.count / places_ / aligned * aligned;
}

// Averages of f16 are excluded: the other library adds in f16, and a sum may overflow before the
// division.
bool HostPlan::takes(const NcclCall& call) const {
  if (!call.stream || each_of(call) == 0) return false;
  if (call.type == ncclFloat16 && call.op == ncclAvg) return false;
  look_for_device_memory();
  return is_on_device(call.send) && is_on_device(call.recv);
}

NcclCall HostPlan::rest_of(const NcclCall& call) const {
  const std::size_t begin = each_of(call) * places_;
  NcclCall rest = call;
  rest.op = ncclSum;
  rest.send = element(call.send, begin, call);
  rest.recv = element(call.recv, begin, call);
  rest.count = call.count - begin;
  rest.root = static_cast<int>(places_) - 1;
  return rest;
}

NcclCall HostPlan::own_part(const NcclCall& call) const {
  const std::size_t each = each_of(call);
  NcclCall part = call;
  part.recv = element(call.recv, place_ * each, call);
  part.send = part.recv;
  part.count = place_ + 1 == places_ ? call.count - place_ * each : each;
  return part;
}

Error HostPlan::issue(const NcclCall& parts, const NcclCall& rest) const {
  return library_.in_group([&] {
    Error error = inside_.issue(parts);
    if (!error && rest.count > 0) error = inside_.issue(rest);
    return error;
  });
}

Error HostPlan::reduce_scatter(const NcclCall& call) const {
  NcclCall parts = own_part(call);
  parts.kind = Kind::reduce_scatter;
  parts.op = ncclSum;
  parts.send = call.send;
  parts.count = each_of(call);
  NcclCall rest = rest_of(call);
  rest.kind = Kind::reduce;
  return issue(parts, rest);
}

Error HostPlan::all_gather(const NcclCall& call) const {
  NcclCall parts = own_part(call);
  parts.kind = Kind::allgather;
  parts.recv = call.recv;
  parts.count = each_of(call);
  NcclCall rest = rest_of(call);
  rest.kind = Kind::bcast;
  return issue(parts, rest);
}

// An abort may wait for the device, and thus for another communicator there unless that is aborted
// in the same group.
void HostPlan::abort_there(FallbackComm* twin) {
  [[maybe_unused]] const Error error = library_.in_group([&] {
    inside_.abort();
    if (twin) twin->abort();
    return Error();
  });
}

}  // namespace pith::nccl
