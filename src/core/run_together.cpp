#include "core/run_together.hpp"

#include <fmt/format.h>

#include <atomic>
#include <new>
#include <system_error>
#include <thread>

namespace pith {

std::vector<Error> run_together(std::span<const std::function<Error()>> jobs) {
  enum Gate { closed, open, called_off };
  std::vector<Error> errors(jobs.size());
  std::atomic<Gate> gate{closed};
  std::vector<std::jthread> threads;
  const Error refused = without_throwing([&]() -> Error {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      threads.emplace_back([&, i] {
        gate.wait(closed);
        if (gate.load() == open) errors[i] = without_throwing(jobs[i]);
      });
    }
    return {};
  });
  gate.store(refused ? called_off : open);
  gate.notify_all();
  threads.clear();  // joins them
  if (!refused) return errors;
  return {jobs.size(),
          Error(refused.code(), fmt::format("a thread cannot be started: {}", refused.message()))};
}

Error first_failure(std::span<const Error> errors) {
  Error begun;
  for (const Error& error : errors) {
    if (error && error.code() != Code::in_progress) return error;
    if (error) begun = error;
  }
  return begun;
}

}  // namespace pith
