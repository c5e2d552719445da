// pith.h implemented: communicators that are made from another one, by split and shrink.
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <vector>

#include "api/check.hpp"
#include "api/communicator_creation.hpp"
#include "api/completion.hpp"
#include "api/last_error.hpp"
#include "core/waiting.hpp"

using namespace pith;
using namespace pith::api;

namespace {

using Made = Expected<std::unique_ptr<Communicator>>;
using Reading = Expected<Settings>;

Error split(pithComm_t comm, int color, int key, pithComm_t* newcomm, const pithConfig_t* config,
            Made (*make)(Communicator&, const Reading& settings, int color, int key)) {
  constexpr const char* function = "pithCommSplit";
  if (Error error = first_of(
          {check_communicator(function, comm), check_pointer(function, "newcomm", newcomm)})) {
    return error;
  }
  if (color < 0 && color != PITH_SPLIT_NOCOLOR) {
    return {Code::invalid_argument,
            fmt::format("{}: color is {}, expected at least 0, or PITH_SPLIT_NOCOLOR (-1)",
                        function, color)};
  }
  const Expected<CommunicatorOptions> options =
      read_config(function, config, {comm->blocking, comm->name, {}});
  if (!options) return options.error();
  const std::shared_ptr<Communicator> communicator = comm->communicator;
  const Cancellable waiting([communicator] { communicator->children().cancel(); });
  return create_child(comm, newcomm, *options,
                      [communicator, make, color, key, settings = settings_from_environment()] {
                        return make(*communicator, settings, color, key);
                      });
}

// Ends the running work of a communicator that is made, so that the handle takes calls again.
void end_running(pithComm& comm) {
  comm.communicator->abort();
  Background ended;
  const std::lock_guard lock(comm.guard);
  std::swap(ended, comm.background);
}

Error shrink(pithComm_t comm, const int* exclude, int n, pithComm_t* newcomm,
             const pithConfig_t* config, int flags) {
  constexpr const char* function = "pithCommShrink";
  const bool aborts = flags == PITH_SHRINK_ABORT;
  if (Error error =
          first_of({aborts ? check_made(function, comm) : check_communicator(function, comm),
                    check_pointer(function, "newcomm", newcomm)})) {
    return error;
  }
  const auto refuse = [&](const std::string& what) { return refused(function, what); };
  if (flags != PITH_SHRINK_DEFAULT && !aborts) {
    return refuse(
        fmt::format("flags is {}, expected PITH_SHRINK_DEFAULT (0) or PITH_SHRINK_ABORT "
                    "(1)",
                    flags));
  }
  if (exclude && n < 1) return refuse(fmt::format("n is {}, expected at least 1", n));
  const std::shared_ptr<Communicator> communicator = comm->communicator;
  std::vector<int> excluded;
  for (int i = 0; exclude && i < n; ++i) {
    const int rank = exclude[i];
    if (rank < 0 || rank >= communicator->size()) {
      return refuse(
          fmt::format("exclude[{}] is {}, expected 0 to {}", i, rank, communicator->size() - 1));
    }
    if (rank == communicator->rank()) {
      return refuse(
          fmt::format("exclude[{}] is {}, the calling rank: only those that stay call", i, rank));
    }
    excluded.push_back(rank);
  }
  const Expected<CommunicatorOptions> options =
      read_config(function, config, {comm->blocking, comm->name, {}});
  if (!options) return options.error();
  if (aborts) end_running(*comm);
  const Cancellable waiting([communicator] { communicator->children().cancel(); });
  return create_child(comm, newcomm, *options,
                      [communicator, excluded, settings = settings_from_environment()] {
                        return communicator->children().shrink(settings, excluded);
                      });
}

}  // namespace

namespace pith::api {

Error split_survivors(pithComm_t comm, int color, int key, pithComm_t* newcomm,
                      const pithConfig_t* config) {
  return split(comm, color, key, newcomm, config,
               [](Communicator& communicator, const Reading& settings, int c, int k) -> Made {
                 const Made survivors = communicator.children().shrink(settings, {});
                 if (!survivors) return survivors.error();
                 (*survivors)->children().is_cancelled_with(communicator.children());
                 return (*survivors)->children().split(settings, c, k);
               });
}

}  // namespace pith::api

pithResult_t pithCommSplit(pithComm_t comm, int color, int key, pithComm_t* newcomm,
                           pithConfig_t* config) {
  return guarded(comm, [&] {
    return split(comm, color, key, newcomm, config,
                 [](Communicator& communicator, const Reading& settings, int c, int k) {
                   return communicator.children().split(settings, c, k);
                 });
  });
}

pithResult_t pithCommShrink(pithComm_t comm, int* exclude, int n, pithComm_t* newcomm,
                            pithConfig_t* config, int flags) {
  return guarded(comm, [&] { return shrink(comm, exclude, n, newcomm, config, flags); });
}
