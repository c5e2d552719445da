// pith.h implemented: ranks that join a communicator.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "api/check.hpp"
#include "api/communicator_creation.hpp"
#include "api/completion.hpp"
#include "api/last_error.hpp"
#include "core/log.hpp"
#include "core/waiting.hpp"
#include "startup/rendezvous.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// The arguments of pithCommGrow beside comm.
struct Wanted {
  const char* function;
  int nranks;
  const pithUniqueId* id;
  int rank;
  pithComm_t* newcomm;
  const pithConfig_t* config;
};

template <class... Args>
Error refuse(const Wanted& wanted, fmt::format_string<Args...> what, Args&&... args) {
  return {Code::invalid_argument,
          fmt::format("{}: {}", wanted.function, fmt::format(what, std::forward<Args>(args)...))};
}

// `members`: the ranks that there are already.
Error check_nranks(const Wanted& wanted, int members) {
  if (wanted.nranks > members && wanted.nranks <= most_ranks) return {};
  return refuse(wanted, "nranks is {}, expected more than the {} that there are, and at most {}",
                wanted.nranks, members, most_ranks);
}

Expected<UniqueId> load_id(const Wanted& wanted) {
  Expected<UniqueId> id = UniqueId::load(wanted.id->internal);
  if (id && id->members > 0) return id;
  return refuse(wanted, "id is not one from pithCommGetUniqueId (all 128 bytes must be passed on)");
}

Error grow_as_member(pithComm_t comm, const Wanted& wanted) {
  if (Error error = check_communicator(wanted.function, comm)) return error;
  const std::shared_ptr<Communicator> communicator = comm->communicator;
  const int members = communicator->size();
  if (Error error = check_nranks(wanted, members)) return error;
  if (wanted.rank != -1) {
    return refuse(wanted, "rank is {}, expected -1: the ranks of comm keep their numbers",
                  wanted.rank);
  }
  std::optional<UniqueId> id;
  if (wanted.id) {
    const Expected<UniqueId> loaded = load_id(wanted);
    if (!loaded) return loaded.error();
    id = *loaded;
    if (id->members != members) {
      return refuse(wanted, "id is for a communicator of {} ranks, expected one for comm's {}",
                    id->members, members);
    }
  }
  const Expected<CommunicatorOptions> options =
      read_config(wanted.function, wanted.config, {comm->blocking, comm->name, {}});
  if (!options) return options.error();
  const Cancellable waiting([communicator] { communicator->children().cancel(); });
  return create_child(comm, wanted.newcomm, *options,
                      [communicator, id, nranks = wanted.nranks, timeout_s = options->timeout_s,
                       settings = settings_from_environment()] {
                        return communicator->children().grow(settings, nranks, id ? &*id : nullptr,
                                                             timeout_s);
                      });
}

Error grow_as_newcomer(const Wanted& wanted) {
  if (Error error = check_pointer(wanted.function, "id", wanted.id)) return error;
  const Expected<UniqueId> id = load_id(wanted);
  if (!id) return id.error();
  if (Error error = check_nranks(wanted, id->members)) return error;
  if (wanted.rank < id->members || wanted.rank >= wanted.nranks) {
    return refuse(wanted, "rank is {}, expected {} to {} of a rank that joins", wanted.rank,
                  id->members, wanted.nranks - 1);
  }
  const Expected<CommunicatorOptions> options = read_config(wanted.function, wanted.config, {});
  if (!options) return options.error();
  return create_from_id(wanted.function, wanted.newcomm, *id, wanted.rank, wanted.nranks, *options);
}

}  // namespace

namespace pith::api {

Error grow(const char* function, pithComm_t comm, int nranks, const pithUniqueId* id, int rank,
           pithComm_t* newcomm, const pithConfig_t* config) {
  if (Error error = check_pointer(function, "newcomm", newcomm)) return error;
  const Wanted wanted = {function, nranks, id, rank, newcomm, config};
  return comm ? grow_as_member(comm, wanted) : grow_as_newcomer(wanted);
}

}  // namespace pith::api

pithResult_t pithCommGetUniqueId(pithComm_t comm, pithUniqueId* id) {
  return guarded(comm, [&]() -> Error {
    constexpr const char* function = "pithCommGetUniqueId";
    if (Error error =
            first_of({check_communicator(function, comm), check_pointer(function, "id", id)})) {
      return error;
    }
    if (Error revoked = comm->communicator->error()) return revoked;
    const Expected<Settings> settings = settings_from_environment();
    if (!settings) return settings.error();
    set_log_level(settings->log);
    const Expected<UniqueId> made = Rendezvous::open(*settings, comm->communicator->size());
    if (!made) return made.error();
    return made->store(id->internal);
  });
}

pithResult_t pithCommGrow(pithComm_t comm, int nranks, const pithUniqueId* id, int rank,
                          pithComm_t* newcomm, pithConfig_t* config) {
  return guarded(comm,
                 [&] { return grow("pithCommGrow", comm, nranks, id, rank, newcomm, config); });
}
