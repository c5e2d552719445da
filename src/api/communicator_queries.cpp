// pith.h implemented: what a communicator can be asked.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "api/check.hpp"
#include "api/completion.hpp"
#include "api/last_error.hpp"

using namespace pith;
using namespace pith::api;

namespace {

bool has_background(pithComm& comm) {
  const std::lock_guard lock(comm.guard);
  return static_cast<bool>(comm.background);
}

// The result of background work (blocking = 0).
Error background_error(pithComm& comm) {
  // Made once and never destroyed, because a program may poll.
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

// What has failed on `comm` as a whole. In a forked child nothing of a communicator is looked at:
// to ask it may take its messages from the parent.
Error failure_of(pithComm_t comm) {
  if (check_handle("pithGetLastError", comm)) return {};
  {
    const std::lock_guard lock(comm->guard);
    if (comm->failure) return comm->failure;
  }
  const std::shared_ptr<Communicator> communicator = comm->held();
  return communicator ? communicator->async_error() : Error();
}

std::optional<Collective> collective_named(std::string_view name) {
  for (std::size_t i = 0; i < collective_count; ++i) {
    if (name_of(static_cast<Collective>(i)) == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

// Answers a query for one number.
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

// A background call that has just ended well is reported before a death that did not affect it.
Error async_error(pithComm_t comm) {
  const bool waited_for = has_background(*comm);
  if (Error error = background_error(*comm)) return error;
  const std::shared_ptr<Communicator> communicator = comm->held();
  if (!communicator) return {};
  return waited_for ? communicator->error() : communicator->async_error();
}

}  // namespace pith::api

const char* pithGetLastError(pithComm_t comm) {
  if (!comm) return last_error();
  try {
    const Error error = failure_of(comm);
    return error ? keep_for_this_thread(error) : last_error_of(comm);
  } catch (const std::exception&) {
    return last_error_of(comm);
  }
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
    if (Error error = check_count(function, "count", count, type, 1)) return error;
    const std::size_t bytes = count * size_of(static_cast<DType>(type));
    const Communicator& communicator = *comm->communicator;
    const std::optional<Collective> asked = collective_named(collective);
    if (!asked) {
      return {Code::invalid_argument,
              fmt::format("{}: collective is \"{}\", expected a name as \"allreduce\"", function,
                          collective)};
    }
    *algorithm = communicator.calls().planner().chosen(*asked, bytes).algorithm->name.data();
    return {};
  });
}

pithResult_t pithCommUserRank(pithComm_t comm, int* rank) {
  return tell("pithCommUserRank", comm, "rank", rank,
              [](const Communicator& communicator) { return communicator.rank(); });
}
