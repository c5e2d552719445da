// NCCL's functions on communicators, exported. A communicator is Pith's handle under another name.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "api/check.hpp"
#include "api/completion.hpp"
#include "core/run_together.hpp"
#include "nccl/call.hpp"
#include "nccl/config.hpp"
#include "nccl/device_context.hpp"
#include "nccl/environment.hpp"
#include "nccl/errors.hpp"
#include "nccl/exported.hpp"
#include "nccl/extension.hpp"
#include "nccl/extras.hpp"
#include "nccl/new_communicator.hpp"
#include "settings/settings.hpp"
#include "startup/start.hpp"

namespace pith::nccl {

namespace {

pithConfig_t* pointer_to(std::optional<pithConfig_t>& config) {
  return config ? &*config : nullptr;
}

// Turns the result of a pith.h function into an Error.
Error error_of(pithResult_t result) {
  return result == pithSuccess
             ? Error()
             : Error(static_cast<Code>(result),
                     result == pithInProgress ? "in progress" : api::last_error());
}

// NCCL_COMM_ID: the address is given, the secret is the job's, and rank 0 opens the root at that
// address.
Expected<pithUniqueId> id_by_address(const std::string& address, int rank, int nranks) {
  Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  settings->rank = rank;
  settings->size = nranks;
  settings->root = address;
  const Expected<Start> start = start_from_environment(*settings);
  if (!start) return start.error();
  pithUniqueId id;
  if (Error error = start->id.store(id.internal)) return error;
  return id;
}

Error make_id(ncclUniqueId* id) {
  const Expected<Environment> environment = read_environment();
  if (!environment) return environment.error();
  if (!id || environment->comm_id.empty()) {
    return error_of(pithGetUniqueId(reinterpret_cast<pithUniqueId*>(id)));
  }
  UniqueId known;
  known.address = environment->comm_id;
  known.known_before = true;
  return known.store(id->internal);
}

// The configuration of a communicator that is made from an id, for which all is prepared.
Expected<std::optional<pithConfig_t>> begin_from_id(const char* function,
                                                    const ncclConfig_t* asked) {
  const Expected<Environment> environment = read_environment();
  if (!environment) return environment.error();
  if (Error error = read_extras()) return error;
  Expected<std::optional<pithConfig_t>> config =
      read_config(function, asked, environment->blocking);
  if (!config) return config.error();
  if (Error error = join_group(function, !*config || (*config)->blocking != 0)) return error;
  complete_new_communicators();
  return config;
}

Error join(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId& given, int rank,
           const ncclConfig_t* asked) {
  Expected<std::optional<pithConfig_t>> config = begin_from_id(function, asked);
  if (!config) return config.error();
  pithUniqueId id;
  std::copy(std::begin(given.internal), std::end(given.internal), id.internal);
  const Expected<UniqueId> read = UniqueId::load(id.internal);
  const bool is_valid = comm && nranks > 0 && rank >= 0 && rank < nranks;
  if (is_valid && read && read->known_before) {
    const Expected<pithUniqueId> met = id_by_address(read->address, rank, nranks);
    if (!met) return met.error();
    id = *met;
  }
  const FromId from(is_valid ? nranks : 0, std::string(id.internal, sizeof id.internal));
  return api::init_rank(function, ours(comm), nranks, id, rank, pointer_to(*config));
}

// Clears `comm` on failure, so that no old value is taken for the new communicator.
Error init_rank(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId& given,
                int rank, const ncclConfig_t* asked) {
  Error error =
      pith::without_throwing([&] { return join(function, comm, nranks, given, rank, asked); });
  if (error && error.code() != Code::in_progress && comm) *comm = nullptr;
  return error;
}

Error check_devices(int count, const int* devices) {
  for (int i = 0; devices && i < count; ++i) {
    if (devices[i] < 0) {
      return {
          Code::invalid_argument,
          fmt::format("ncclCommInitAll: devices[{}] is {}, expected at least 0", i, devices[i])};
    }
    if (std::find(devices, devices + i, devices[i]) != devices + i) {
      return {Code::invalid_usage,
              fmt::format("ncclCommInitAll: devices[{}] is {}, a device that the list has "
                          "already: several ranks on one device come by ncclCommInitRank",
                          i, devices[i])};
    }
  }
  return {};
}

// Checked only if a driver is in use; elsewhere device numbers are meaningless.
Error check_devices_are_there(int count, const int* devices) {
  const std::optional<int> there = device_count();
  for (int i = 0; there && i < count; ++i) {
    const int device = devices ? devices[i] : i;
    if (device < *there) continue;
    return {Code::invalid_argument,
            fmt::format("ncclCommInitAll: rank {} is to be on device {}, expected one of the {} "
                        "that are there",
                        i, device, *there)};
  }
  return {};
}

Error init_all(ncclComm_t* comms, int count, const int* devices) {
  const Expected<Environment> environment = read_environment();
  if (!environment) return environment.error();
  if (Error error = read_extras()) return error;
  if (Error error = check_devices(count, devices)) return error;
  if (Error error = check_devices_are_there(count, devices)) return error;
  complete_new_communicators();
  if (Error error = error_of(pithCommInitAll(ours(comms), count, nullptr))) return error;
  for (int r = 0; r < count; ++r) ours(comms)[r]->blocking = environment->blocking != 0;
  const std::span<const pithComm_t> made(ours(comms), static_cast<std::size_t>(count));
  Error error = complete_all(made, devices);
  if (!error) return {};
  for (const pithComm_t comm : made) pithCommAbort(comm);
  std::fill_n(comms, count, nullptr);
  return error;
}

// The configuration of a child: as asked for, adjusted by the environment; empty (inherit the
// parent's) if `asked` is NULL.
Expected<std::optional<pithConfig_t>> config_of_descendant(const char* function,
                                                           const ncclConfig_t* asked) {
  if (!asked) return std::optional<pithConfig_t>();
  const Expected<Environment> environment = read_environment();
  if (!environment) return environment.error();
  return read_config(function, asked, environment->blocking);
}

// Reports errors that are found before the parent is looked at.
Error prepare_descendant(const char* function, pithComm_t comm, pithComm_t* newcomm,
                         const Expected<std::optional<pithConfig_t>>& config) {
  Error error = config ? Error() : config.error();
  if (!error && comm) error = join_group(function, comm->blocking);
  if (error && comm && newcomm) *newcomm = nullptr;
  return error;
}

// From here on errors are the child's, not those of the calls that the revocation has ended.
void note_descendant(pithComm_t comm, Extension& extension) {
  pithResult_t state = pithSuccess;
  pithCommGetAsyncError(comm, &state);  // collects calls that have ended
  if (state == pithInProgress) return;  // the call will be refused
  const std::lock_guard lock(comm->guard);
  comm->failure = Error();
  extension.has_descendants = true;
}

Error split(pithComm_t comm, int color, int key, pithComm_t* newcomm, const ncclConfig_t* asked) {
  constexpr const char* function = "ncclCommSplit";
  Expected<std::optional<pithConfig_t>> config = config_of_descendant(function, asked);
  if (Error error = prepare_descendant(function, comm, newcomm, config)) return error;
  const std::shared_ptr<Extension> extension = comm ? find_extension(comm) : nullptr;
  if (extension && extension->revoked) {
    note_descendant(comm, *extension);
    return api::split_survivors(comm, color, key, newcomm, pointer_to(*config));
  }
  return error_of(pithCommSplit(comm, color, key, newcomm, pointer_to(*config)));
}

// Survivors of a revoked communicator shrink it before they grow.
Error check_growing(const char* function, pithComm_t comm) {
  if (Error error = api::check_handle(function, comm)) return error;
  const std::shared_ptr<Extension> extension = find_extension(comm);
  if (!extension || !extension->revoked) return {};
  return {Code::invalid_usage,
          fmt::format("{}: comm is revoked, expected one that is not: shrink it first", function)};
}

void abort_there(Extension& extension) {
  const auto there = extension.other_comm();
  if (const auto plan = extension.plan()) return plan->abort_there(there.get());
  if (there) there->abort();
}

// Called after our own abort. Streams that wait for Pith are released first: the other library may
// wait for work behind them.
void abort_rest(Extension& extension) {
  if (const auto plan = extension.plan()) plan->abort_between();
  abort_there(extension);
}

Error shrink(pithComm_t comm, int* exclude, int count, pithComm_t* newcomm,
             const ncclConfig_t* asked, int flags) {
  constexpr const char* function = "ncclCommShrink";
  if (!exclude || count < 1) {
    return {Code::invalid_argument,
            fmt::format("{}: the list of excluded ranks is {} with {} ranks, expected at least one",
                        function, static_cast<const void*>(exclude), count)};
  }
  Expected<std::optional<pithConfig_t>> config = config_of_descendant(function, asked);
  if (Error error = prepare_descendant(function, comm, newcomm, config)) return error;
  const std::shared_ptr<Extension> extension = comm ? find_extension(comm) : nullptr;
  if (extension && extension->revoked) note_descendant(comm, *extension);
  const pithResult_t result =
      pithCommShrink(comm, exclude, count, newcomm, pointer_to(*config), flags);
  const bool aborted = flags == NCCL_SHRINK_ABORT && result != pithInvalidArgument;
  if (aborted && extension) abort_rest(*extension);
  return error_of(result);
}

// Members go on with the communicator's configuration, as for a split; those that join begin as in
// InitRank, whose group and whose place in the job theirs is.
Error grow_or_join(pithComm_t comm, int nranks, const ncclUniqueId* given, int rank,
                   pithComm_t* newcomm, const ncclConfig_t* asked) {
  constexpr const char* function = "ncclCommGrow";
  if (Error error = api::check_pointer(function, "newcomm", newcomm)) return error;
  if (Error error = comm ? check_growing(function, comm) : Error()) return error;
  Expected<std::optional<pithConfig_t>> config =
      comm ? config_of_descendant(function, asked) : begin_from_id(function, asked);
  if (!config) return config.error();
  if (Error error = comm ? join_group(function, comm->blocking) : Error()) return error;
  const auto* id = reinterpret_cast<const pithUniqueId*>(given);
  const Growing growing;
  return api::grow(function, comm, nranks, id, rank, newcomm, pointer_to(*config));
}

Error grow(pithComm_t comm, int nranks, const ncclUniqueId* id, int rank, pithComm_t* newcomm,
           const ncclConfig_t* config) {
  Error error =
      pith::without_throwing([&] { return grow_or_join(comm, nranks, id, rank, newcomm, config); });
  if (error && error.code() != Code::in_progress && newcomm) *newcomm = nullptr;
  return error;
}

Error make_growth_id(pithComm_t comm, ncclUniqueId* id) {
  if (Error error = check_growing("ncclCommGetUniqueId", comm)) return error;
  return error_of(pithCommGetUniqueId(comm, reinterpret_cast<pithUniqueId*>(id)));
}

Error revoke(pithComm_t comm, int flags) {
  if (!comm) return {};
  if (flags != 0) {
    return {Code::invalid_argument, fmt::format("ncclCommRevoke: flags is {}, expected 0", flags)};
  }
  constexpr const char* function = "ncclCommRevoke";
  if (Error error = api::check_made(function, comm)) return error;
  const std::shared_ptr<Extension> extension = extension_of(comm);
  if (extension->revoked.exchange(true)) {
    return {Code::invalid_argument,
            fmt::format("{}: comm is revoked, expected one that is not", function)};
  }
  comm->made()->abort();
  abort_rest(*extension);
  return {};
}

// Frameworks abort their communicators at exit. A communicator without running calls only leaves,
// silently as in NCCL: other ranks may still have to receive what it has sent.
bool leaves(Communicator& communicator) {
  if (!communicator.leave()) return false;
  communicator.children().cancel();
  return true;
}

// Null while the communicator is being created.
std::shared_ptr<Communicator> communicator_of(pithComm_t comm) {
  const std::lock_guard lock(comm->guard);
  return comm->background || comm->being_made ? nullptr : comm->communicator;
}

pithResult_t abort(pithComm_t comm) {
  const std::shared_ptr<Extension> extension = find_extension(comm);
  if (extension) {  // from here on other threads' calls leave the handle alone
    const std::lock_guard lock(extension->guard);
    extension->closed = true;
  }
  const std::shared_ptr<Communicator> communicator = communicator_of(comm);
  const bool left = communicator && leaves(*communicator);
  if (communicator && !left) communicator->abort();
  if (extension) abort_rest(*extension);
  return left ? pithCommDestroy(comm) : pithCommAbort(comm);
}

// A revoked communicator counts as finalized, as in NCCL; a failed one reports its error and stays
// as it is.
Error finalize(pithComm_t comm) {
  constexpr const char* function = "ncclCommFinalize";
  if (!comm) return {};
  if (Error error = api::check_communicator(function, comm)) return error;
  const std::shared_ptr<Extension> extension = find_extension(comm);
  if (extension && extension->revoked) {
    return {Code::invalid_argument,
            fmt::format("{}: comm is revoked, expected ncclCommDestroy", function)};
  }
  Error error = async_error_of(comm);
  if (!error) error = check_not_waiting(function, comm);
  if (error) return error;
  error = error_of(pithCommFinalize(comm));
  const auto plan = !error && extension ? extension->plan() : nullptr;
  if (plan) plan->drain();
  return error;
}

// A failed communicator's twin is aborted rather than awaited: its kernels may wait for a dead
// rank. The other ranks are not told: they may be about to shrink.
void abort_there_if_failed(pithComm_t comm) {
  const std::shared_ptr<Extension> extension = find_extension(comm);
  const std::shared_ptr<Communicator> communicator = communicator_of(comm);
  if (extension && communicator && communicator->async_error()) abort_there(*extension);
}

Error destroy(pithComm_t comm) {
  constexpr const char* function = "ncclCommDestroy";
  const bool is_alive = comm && !api::check_handle(function, comm);
  if (Error error = is_alive ? check_not_waiting(function, comm) : Error()) return error;
  if (is_alive) abort_there_if_failed(comm);
  return error_of(pithCommDestroy(comm));
}

// Watchdogs poll the state all the time, so each change is logged once.
void tell_change(pithComm_t comm, const Error& state) {
  const bool failed = state && state.code() != Code::in_progress;
  const std::shared_ptr<Extension> extension = failed ? extension_of(comm) : find_extension(comm);
  if (!extension || extension->told.exchange(state.code()) == state.code()) return;
  if (failed) remember(state.message(), LogLevel::info);
}

Error async_error(pithComm_t comm, ncclResult_t* result) {
  constexpr const char* function = "ncclCommGetAsyncError";
  if (Error error = api::check_handle(function, comm)) return error;
  if (Error error = api::check_pointer(function, "result", result)) return error;
  const Error state = async_error_of(comm);
  *result = static_cast<ncclResult_t>(state.code());
  tell_change(comm, state);
  return {};
}

}  // namespace

}  // namespace pith::nccl

using namespace pith::nccl;
using pith::Error;

NCCL_EXPORT(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
  return guarded([&] { return make_id(id); });
}

NCCL_EXPORT(ncclResult_t, ncclCommInitRank,
            (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank)) {
  return fail_group(
      guarded([&] { return init_rank("ncclCommInitRank", comm, nranks, id, rank, nullptr); }));
}

NCCL_EXPORT(ncclResult_t, ncclCommInitRankConfig,
            (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  return fail_group(
      guarded([&] { return init_rank("ncclCommInitRankConfig", comm, nranks, id, rank, config); }));
}

// The root of the first id serves all ranks.
NCCL_EXPORT(ncclResult_t, ncclCommInitRankScalable,
            (ncclComm_t * comm, int nranks, int rank, int id_count, ncclUniqueId* ids,
             ncclConfig_t* config)) {
  constexpr const char* function = "ncclCommInitRankScalable";
  return fail_group(guarded([&]() -> Error {
    if (!ids || id_count < 1 || id_count > nranks) {
      if (comm) *comm = nullptr;
      return {pith::Code::invalid_argument,
              fmt::format("{}: {} ids at {}, expected 1 to {}", function, id_count,
                          static_cast<const void*>(ids), nranks)};
    }
    return init_rank(function, comm, nranks, ids[0], rank, config);
  }));
}

NCCL_EXPORT(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int count, const int* devices)) {
  return fail_group(guarded([&] { return init_all(comms, count, devices); }));
}

NCCL_EXPORT(ncclResult_t, ncclCommSplit,
            (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)) {
  return fail_group(guarded([&] { return split(ours(comm), color, key, ours(newcomm), config); }));
}

NCCL_EXPORT(ncclResult_t, ncclCommShrink,
            (ncclComm_t comm, int* exclude, int count, ncclComm_t* newcomm, ncclConfig_t* config,
             int flags)) {
  return fail_group(
      guarded([&] { return shrink(ours(comm), exclude, count, ours(newcomm), config, flags); }));
}

NCCL_EXPORT(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id)) {
  return guarded([&] { return make_growth_id(ours(comm), id); });
}

NCCL_EXPORT(ncclResult_t, ncclCommGrow,
            (ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,
             ncclConfig_t* config)) {
  return fail_group(
      guarded([&] { return grow(ours(comm), nranks, id, rank, ours(newcomm), config); }));
}

NCCL_EXPORT(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  return guarded([&] { return finalize(ours(comm)); });
}

NCCL_EXPORT(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  return guarded([&] { return destroy(ours(comm)); });
}

NCCL_EXPORT(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  // In a forked child the parent's communicator is not touched.
  if (pith::api::check_handle("ncclCommAbort", ours(comm))) {
    return answer(pithCommAbort(ours(comm)));
  }
  return answer(abort(ours(comm)));
}

NCCL_EXPORT(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags)) {
  return guarded([&] { return revoke(ours(comm), flags); });
}

NCCL_EXPORT(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* result)) {
  return guarded([&] { return async_error(ours(comm), result); });
}

NCCL_EXPORT(ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count)) {
  return answer(pithCommCount(ours(comm), count));
}

NCCL_EXPORT(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank)) {
  return answer(pithCommUserRank(ours(comm), rank));
}

// Host ranks report device 0; the others the device that was current when they were created.
NCCL_EXPORT(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device)) {
  return guarded([&]() -> Error {
    constexpr const char* function = "ncclCommCuDevice";
    if (Error error = pith::api::check_queried(function, ours(comm))) return error;
    if (Error error = pith::api::check_pointer(function, "device", device)) return error;
    const std::shared_ptr<Extension> extension = find_extension(ours(comm));
    *device = extension ? extension->device : 0;
    return {};
  });
}
