// pith.h implemented: communicators that are made from scratch.
#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "api/check.hpp"
#include "api/communicator_creation.hpp"
#include "api/completion.hpp"
#include "api/last_error.hpp"
#include "core/log.hpp"
#include "core/waiting.hpp"
#include "startup/connect.hpp"
#include "startup/rendezvous.hpp"
#include "startup/start.hpp"

using namespace pith;
using namespace pith::api;

namespace {

Error check_size(const char* function, const char* argument, int ranks) {
  if (ranks < 1) {
    return {Code::invalid_argument,
            fmt::format("{}: {} is {}, expected at least 1", function, argument, ranks)};
  }
  if (ranks > most_ranks) {
    return {Code::invalid_argument, fmt::format("{}: {} is {}, expected at most {}", function,
                                                argument, ranks, most_ranks)};
  }
  return {};
}

Error check_nranks(const char* function, int nranks, int rank) {
  if (Error error = check_size(function, "nranks", nranks)) return error;
  if (rank < 0 || rank >= nranks) {
    return {Code::invalid_argument,
            fmt::format("{}: rank is {}, expected 0 to {}", function, rank, nranks - 1)};
  }
  return {};
}

// Warns once, by rank 0 of the first communicator: a user who sets them expects an effect.
void warn_of_settings_of_nccl(const Settings& settings) {
  if (has_layer_on_top()) return;  // the program uses libnccl.so.2
  static std::once_flag once;
  std::call_once(once, [&] {
    set_log_level(settings.log);
    for (const char* name : {"PITH_COMPRESS", "PITH_COMPRESS_COMM", "PITH_NCCL_FALLBACK"}) {
      if (!in_environment(name)) continue;
      log(LogLevel::warn,
          fmt::format("{} is set, which counts in libnccl.so.2 alone: calls of pith.h are what "
                      "their program makes them",
                      name));
    }
  });
}

}  // namespace

namespace pith::api {

Error create_from_id(const char* function, pithComm_t* comm, const UniqueId& id, int rank,
                     int nranks, const CommunicatorOptions& options) {
  const auto making = std::make_shared<Cancellation>(rank);
  // Read here: while another thread reads it, the program might change its environment.
  Expected<Settings> settings = settings_from_environment();
  if (settings && options.timeout_s) settings->timeout = *options.timeout_s;
  const auto make = [id, rank, nranks, making,
                     settings]() -> Expected<std::unique_ptr<Communicator>> {
    if (!settings) return settings.error();
    return make_communicator(*settings, id, rank, nranks, making);
  };
  if (rank == 0 && settings) warn_of_settings_of_nccl(*settings);
  const Cancellable waiting([making] { making->cancel(); });
  return create(function, comm, options, make, making);
}

Error init_rank(const char* function, pithComm_t* comm, int nranks, const pithUniqueId& id,
                int rank, const pithConfig_t* config) {
  if (Error error = check_pointer(function, "comm", comm)) return error;
  if (Error error = check_nranks(function, nranks, rank)) return error;
  const Expected<UniqueId> loaded = UniqueId::load(id.internal);
  if (!loaded) return told_by(function, loaded.error());
  if (loaded->members > 0) {
    return {Code::invalid_argument,
            fmt::format("{}: id is one from pithCommGetUniqueId, expected one from "
                        "pithGetUniqueId: pithCommGrow takes the other",
                        function)};
  }
  const Expected<CommunicatorOptions> options = read_config(function, config, {});
  if (!options) return options.error();
  return create_from_id(function, comm, *loaded, rank, nranks, *options);
}

}  // namespace pith::api

pithResult_t pithGetUniqueId(pithUniqueId* id) {
  return guarded([&] {
    if (Error error = check_pointer("pithGetUniqueId", "id", id)) return error;
    const Expected<Settings> settings = settings_from_environment();
    if (!settings) return settings.error();
    set_log_level(settings->log);
    const Expected<UniqueId> made = Rendezvous::open(*settings);
    if (!made) return made.error();
    return made->store(id->internal);
  });
}

pithResult_t pithCommInitRank(pithComm_t* comm, int nranks, pithUniqueId id, int rank) {
  return guarded([&] { return init_rank("pithCommInitRank", comm, nranks, id, rank, nullptr); });
}

pithResult_t pithCommInitRankConfig(pithComm_t* comm, int nranks, pithUniqueId id, int rank,
                                    pithConfig_t* config) {
  return guarded(
      [&] { return init_rank("pithCommInitRankConfig", comm, nranks, id, rank, config); });
}

pithResult_t pithCommInitEnv(pithComm_t* comm) {
  return guarded([&] {
    constexpr const char* function = "pithCommInitEnv";
    if (Error error = check_pointer(function, "comm", comm)) return error;
    const Expected<Settings> settings = settings_from_environment();
    if (!settings) return settings.error();
    set_log_level(settings->log);
    const Expected<Start> start = start_from_environment(*settings);
    if (!start) return start.error();
    return create_from_id(function, comm, start->id, start->rank, start->size, {});
  });
}

pithResult_t pithCommInitAll(pithComm_t* comms, int n, const int* devices) {
  return guarded([&] {
    constexpr const char* function = "pithCommInitAll";
    if (Error error = check_pointer(function, "comms", comms)) return error;
    if (Error error = check_size(function, "n", n)) return error;
    if (devices) {
      return Error(Code::invalid_argument,
                   fmt::format("{}: devices is {}, expected NULL: this build has host ranks only",
                               function, static_cast<const void*>(devices)));
    }
    const Expected<Settings> settings = settings_from_environment();
    if (!settings) return settings.error();
    warn_of_settings_of_nccl(*settings);
    Expected<std::vector<std::unique_ptr<Communicator>>> made = make_communicators(n);
    if (!made) return made.error();
    for (int r = 0; r < n; ++r) {
      comms[r] = new_handle({}).release();
      comms[r]->communicator = std::move((*made)[static_cast<std::size_t>(r)]);
    }
    return Error();
  });
}
