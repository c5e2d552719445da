// pith.h implemented, the life of communicators: argument checks, then the communicator.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/check.hpp"
#include "api/completion.hpp"
#include "api/destroyed_handles.hpp"
#include "api/last_error.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"
#include "startup/connect.hpp"
#include "startup/rendezvous.hpp"
#include "startup/start.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// A pithConfig_t as far as its caller knew it.
struct Options {
  bool blocking = true;
  std::string name;
};

Expected<Options> read_config(const char* function, const pithConfig_t* given, Options options) {
  if (!given) return options;
  const auto refuse = [&](const std::string& what) {
    return Error(Code::invalid_argument, fmt::format("{}: config->{}", function, what));
  };
  if (given->magic != PITH_CONFIG_MAGIC) {
    return refuse(fmt::format("magic is {:#x}, expected {:#x}: begin with PITH_CONFIG_INITIALIZER",
                              given->magic, PITH_CONFIG_MAGIC));
  }
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  std::memcpy(&config, given, std::min(given->size, sizeof config));
  if (config.blocking != PITH_CONFIG_UNDEF_INT) {
    if (config.blocking != 0 && config.blocking != 1) {
      return refuse(fmt::format("blocking is {}, expected 0 or 1", config.blocking));
    }
    options.blocking = config.blocking != 0;
  }
  if (config.commName) options.name = config.commName;
  return options;
}

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

using Made = Expected<std::unique_ptr<Communicator>>;
using Reading = Expected<Settings>;

std::atomic<Completion (*)()> begin_completion{nullptr};

// Once, by the first communicator's rank 0: who sets them means to be heard.
void warn_of_settings_of_nccl(const Settings& settings) {
  if (begin_completion.load(std::memory_order_acquire)) return;  // this is libnccl.so.2
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

// Calls on streams of this thread's context find what they need.
Completion completion_of_this_thread() {
  Completion (*const begin)() = begin_completion.load(std::memory_order_acquire);
  Completion more = begin ? begin() : Completion();
  void* const context = current_context();
  if (!context) return more;
  return [context, more = std::move(more)](pithComm& comm) {
    comm.communicator->streams().prepare(context);
    return more ? more(comm) : Error();
  };
}

// Whoever names communicators wants to find them again.
void tell_name(const pithComm& handle) {
  if (handle.name.empty() || !logs(LogLevel::debug)) return;
  const Communicator& made = *handle.communicator;
  log(LogLevel::debug,
      fmt::format("communicator \"{}\": rank {} of {}", handle.name, made.rank(), made.size()));
}

// An abort by another thread is either seen here, or sees the communicator.
Error fill(pithComm& handle, Made made, const Completion& complete) {
  if (!made) return made.error();
  Error error;
  {
    const std::lock_guard lock(handle.guard);
    if (handle.making) error = handle.making->error();
    if (!error) handle.communicator = std::move(*made);
  }
  if (error) (*made)->abort();  // the other ranks may have it already
  if (error) return error;
  tell_name(handle);
  if (!complete) return {};
  error = without_throwing([&] { return complete(handle); });
  if (!error) return {};
  std::shared_ptr<Communicator> unwanted;  // its end may take a while: not under the lock
  const std::lock_guard lock(handle.guard);
  unwanted.swap(handle.communicator);
  return error;
}

std::unique_ptr<pithComm> new_handle(const Options& options) {
  auto handle = std::make_unique<pithComm>();
  handle->blocking = options.blocking;
  handle->name = options.name;
  begin_errors_of(handle.get());
  return handle;
}

// With blocking = 0 the handle is there at once, and the rest follows. `make` looks at `making`.
Error create(pithComm_t* comm, const Options& options, std::function<Made()> make,
             std::shared_ptr<Cancellation> making, const Completion& complete) {
  std::unique_ptr<pithComm> handle = new_handle(options);
  if (options.blocking) {
    if (Error error = fill(*handle, make(), complete)) return error;
    *comm = handle.release();
    return {};
  }
  handle->being_made = true;
  handle->making = std::move(making);
  handle->background = Background([raw = handle.get(), make = std::move(make), complete] {
    Error error = without_throwing([&] { return fill(*raw, make(), complete); });
    raw->being_made.store(false, std::memory_order_release);
    return error;
  });
  *comm = handle.release();
  return {Code::in_progress, "the communicator is being made"};
}

// A communicator that a group is to make: its caller has the handle already, and may hand it on,
// as in NCCL. It is not ready before the group's end, and gone if the group fails.
class Promised {
 public:
  // `function`: that wants it; a literal.
  Promised(const char* function, pithComm_t* comm, const Options& options,
           std::shared_ptr<Cancellation> making)
      : function_(function), where_(comm), handle_(new_handle(options).release()) {
    handle_->being_made = true;
    handle_->making = std::move(making);
    *where_ = handle_;
  }
  // A thread that ends in the middle of a group leaves the caller's variable alone.
  ~Promised() { drop(); }
  Promised(const Promised&) = delete;
  Promised& operator=(const Promised&) = delete;

  Error keep(const std::function<Made()>& make, const Completion& complete) {
    if (handle_->destroyed) return destroyed_before(function_);
    if (!handle_->blocking) {
      Background work([raw = handle_, make, complete] { return finish(*raw, make, complete); });
      std::exchange(handle_, nullptr)->begin(std::move(work));
      return {Code::in_progress, "the communicator is being made"};
    }
    Error error = finish(*handle_, make, complete);
    if (!error) handle_ = nullptr;
    return error;
  }
  void take_back() {
    if (handle_) *where_ = nullptr;
    drop();
  }

 private:
  static Error finish(pithComm& handle, const std::function<Made()>& make,
                      const Completion& complete) {
    Error error = without_throwing([&] { return fill(handle, make(), complete); });
    handle.being_made.store(false, std::memory_order_release);
    return error;
  }
  void drop() {
    const pithComm_t handle = std::exchange(handle_, nullptr);
    if (handle && !handle->destroyed.exchange(true)) keep_destroyed(handle);
  }

  const char* const function_;
  pithComm_t* const where_;
  pithComm_t handle_;  // null: the caller's from now on
};

Error join(const char* function, pithComm_t* comm, const UniqueId& id, int rank, int nranks,
           const Options& options) {
  const auto making = std::make_shared<Cancellation>(rank);
  // Read here: on a thread of its own the program might be changing its environment.
  const Expected<Settings> settings = settings_from_environment();
  const auto make = [id, rank, nranks, making, settings]() -> Made {
    if (!settings) return settings.error();
    return make_communicator(*settings, id, rank, nranks, making);
  };
  const Completion complete = completion_of_this_thread();
  Group& group = Group::of_this_thread();
  if (rank == 0 && settings) warn_of_settings_of_nccl(*settings);
  if (!group.open()) return create(comm, options, make, making, complete);
  const auto promised = std::make_shared<Promised>(function, comm, options, making);
  group.add([promised, make, complete] { return promised->keep(make, complete); }, nullptr,
            [promised] { promised->take_back(); });
  return {};
}

// A child of `comm`, for streams of the same context: this thread's may be another, or none.
// With blocking = 0 its handle appears when comm is ready again.
Error descend(pithComm_t comm, pithComm_t* newcomm, const Options& options,
              std::function<Made()> make) {
  const CurrentContext current(comm->communicator->streams().context());
  const auto run = [newcomm, options, make = std::move(make),
                    complete = completion_of_this_thread()]() -> Error {
    Made made = make();
    if (!made) return made.error();
    if (!*made) return {};
    std::unique_ptr<pithComm> handle = new_handle(options);
    if (Error error = fill(*handle, std::move(made), complete)) return error;
    *newcomm = handle.release();
    return {};
  };
  *newcomm = nullptr;
  Group& group = Group::of_this_thread();
  if (group.open()) {
    if (!comm->blocking) comm->forget_failure();
    group.add(run, comm->communicator.get());
    return {};
  }
  if (comm->blocking) return run();
  comm->begin(Background(run));
  return {Code::in_progress, "the communicator is being made"};
}

// What is behind a handle goes with it; calls in flight end first.
Error destroy(pithComm_t comm) {
  if (!comm) return {};
  // Threads that it would wait for and locks that they held are the parent's; so is the rank.
  if (comm->process != fork_generation()) return {};
  if (comm->destroyed.exchange(true)) return destroyed_before("pithCommDestroy");
  comm->background = Background();
  if (comm->communicator) comm->communicator->drain();
  keep_destroyed(comm);
  return {};
}

// What still makes the communicator, or a child of it, ends first.
Error abort(pithComm_t comm) {
  if (!comm || comm->process != fork_generation()) return {};
  if (comm->destroyed) return destroyed_before("pithCommAbort");
  std::shared_ptr<Communicator> communicator;
  bool promised = false;  // by a group, whose end takes it back
  {
    const std::lock_guard lock(comm->guard);
    if (comm->making) comm->making->cancel();
    communicator = comm->communicator;
    promised = comm->being_made && !comm->background;
  }
  if (promised) return {};
  if (communicator) {
    communicator->children().cancel();
    communicator->abort();
  }
  return destroy(comm);
}

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
  const Expected<Options> options = read_config(function, config, {comm->blocking, comm->name});
  if (!options) return options.error();
  return descend(comm, newcomm, *options,
                 [communicator = comm->communicator, make, color, key,
                  settings = settings_from_environment()] {
                   return make(*communicator, settings, color, key);
                 });
}

// Of a made communicator: what runs on it ends, and the handle takes calls again.
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
  const auto refuse = [&](const std::string& what) {
    return Error(Code::invalid_argument, fmt::format("{}: {}", function, what));
  };
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
  const Expected<Options> options = read_config(function, config, {comm->blocking, comm->name});
  if (!options) return options.error();
  if (aborts) end_running(*comm);
  return descend(comm, newcomm, *options,
                 [communicator, excluded, settings = settings_from_environment()] {
                   return communicator->children().shrink(settings, excluded);
                 });
}

bool has_background(pithComm& comm) {
  const std::lock_guard lock(comm.guard);
  return static_cast<bool>(comm.background);
}

// Of what blocking = 0 has begun.
Error background_error(pithComm& comm) {
  // Made once, and never destroyed: a program may ask again and again.
  static const Error& runs = *new Error(Code::in_progress, "the last call is still running");
  const std::lock_guard lock(comm.guard);
  if (comm.background) {
    if (!comm.background.done()) return runs;
    const Error error = comm.background.error();
    comm.background = Background();
    if (error) comm.failure = error;
  }
  return comm.being_made ? runs : comm.failure;
}

// A number that the communicator knows.
template <class Number, class Ask>
pithResult_t tell(const char* function, pithComm_t comm, const char* argument, Number* number,
                  const Ask& ask) {
  return guarded(comm, [&] {
    if (Error error =
            first_of({check_queried(function, comm), check_pointer(function, argument, number)})) {
      return error;
    }
    *number = ask(*comm->communicator);
    return Error();
  });
}

}  // namespace

namespace pith::api {

void complete_communicators_by(Completion (*begin)()) {
  begin_completion.store(begin, std::memory_order_release);
}

Error init_rank(const char* function, pithComm_t* comm, int nranks, const pithUniqueId& id,
                int rank, const pithConfig_t* config) {
  if (Error error = check_pointer(function, "comm", comm)) return error;
  if (Error error = check_nranks(function, nranks, rank)) return error;
  const Expected<UniqueId> loaded = UniqueId::load(id.internal);
  if (!loaded) return told_by(function, loaded.error());
  const Expected<Options> options = read_config(function, config, {});
  if (!options) return options.error();
  return join(function, comm, *loaded, rank, nranks, *options);
}

// A call in the background that has just ended well is told of before a death that it did not need.
Error async_error(pithComm_t comm) {
  const bool waited_for = has_background(*comm);
  if (Error error = background_error(*comm)) return error;
  if (!comm->communicator) return {};
  return waited_for ? comm->communicator->error() : comm->communicator->async_error();
}

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

const char* pithGetLastError(pithComm_t comm) {
  if (!comm) return last_error();
  Error error;
  {
    const std::lock_guard lock(comm->guard);
    error = comm->failure;
  }
  if (!error && comm->made()) error = comm->made()->async_error();
  return error ? keep_for_this_thread(error) : last_error_of(comm);
}

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
    return join(function, comm, start->id, start->rank, start->size, {});
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

pithResult_t pithCommGetAsyncError(pithComm_t comm, pithResult_t* result) {
  return guarded(comm, [&] {
    constexpr const char* function = "pithCommGetAsyncError";
    if (Error error =
            first_of({check_handle(function, comm), check_pointer(function, "result", result)})) {
      return error;
    }
    *result = static_cast<pithResult_t>(async_error(comm).code());
    return Error();
  });
}

pithResult_t pithCommGetFailed(pithComm_t comm, int* ranks, int* n) {
  return guarded(comm, [&] {
    constexpr const char* function = "pithCommGetFailed";
    if (Error error =
            first_of({check_communicator(function, comm), check_pointer(function, "n", n)})) {
      return error;
    }
    const std::vector<int> failed = comm->communicator->revocation().failed();
    const auto count = static_cast<int>(failed.size());
    if (ranks && *n < count) {
      return Error(Code::invalid_argument,
                   fmt::format("{}: *n is {}, expected room for {} ranks", function, *n, count));
    }
    if (ranks) std::copy(failed.begin(), failed.end(), ranks);
    *n = count;
    return Error();
  });
}

pithResult_t pithCommGetLastCompleted(pithComm_t comm, uint64_t* call) {
  return tell("pithCommGetLastCompleted", comm, "call", call, [](const Communicator& communicator) {
    return communicator.children().last_completed_by_all();
  });
}

pithResult_t pithCommFinalize(pithComm_t comm) {
  return guarded(comm, [&] {
    if (!comm) return Error();
    constexpr const char* function = "pithCommFinalize";
    if (Error error = check_communicator(function, comm)) return error;
    if (Error error = check_not_in_group(function, *comm)) return error;
    comm->communicator->drain();
    comm->finalized = true;
    return Error();
  });
}

pithResult_t pithCommDestroy(pithComm_t comm) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithCommDestroy";
    const bool is_alive = comm && !check_handle(function, comm);
    if (Error error = is_alive ? check_not_in_group(function, *comm) : Error()) return error;
    return destroy(comm);
  });
}

pithResult_t pithCommAbort(pithComm_t comm) {
  return guarded([&] { return abort(comm); });
}

pithResult_t pithCommCount(pithComm_t comm, int* count) {
  return tell("pithCommCount", comm, "count", count,
              [](const Communicator& communicator) { return communicator.size(); });
}

pithResult_t pithCommGetAlgorithm(pithComm_t comm, const char* collective, size_t count,
                                  pithDataType_t type, const char** algorithm) {
  return guarded(comm, [&]() -> Error {
    constexpr const char* function = "pithCommGetAlgorithm";
    if (Error error = first_of(
            {check_queried(function, comm), check_pointer(function, "collective", collective),
             check_type(function, type), check_pointer(function, "algorithm", algorithm)})) {
      return error;
    }
    const Algorithm* chosen = comm->communicator->links().model().algorithm(
        collective, count * size_of(static_cast<DType>(type)));
    if (!chosen) {
      return {Code::invalid_argument,
              fmt::format("{}: collective is \"{}\", expected a name as \"allreduce\"", function,
                          collective)};
    }
    *algorithm = chosen->name.data();
    return {};
  });
}

pithResult_t pithCommUserRank(pithComm_t comm, int* rank) {
  return tell("pithCommUserRank", comm, "rank", rank,
              [](const Communicator& communicator) { return communicator.rank(); });
}
