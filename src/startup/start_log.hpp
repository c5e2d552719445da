// What PITH_LOG tells of one communicator's start: at info one line by rank 0; at debug settings,
// addresses, placement, transports and the time of each phase.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/log.hpp"
#include "settings/settings.hpp"

namespace pith {

class StartLog {
 public:
  // `what`: "communicator" or "child communicator". `level`: of the one line by rank 0.
  StartLog(std::string what, int rank, int ranks, LogLevel level = LogLevel::info);

  // Logs changed settings at debug. Rank 0 also warns of unknown PITH_ variables, once in a
  // process.
  void begins(const Settings& settings);
  // Logs at debug, with the rank as prefix.
  void tell(const std::string& line) const;
  // Ends a phase: it took the time since the last one ended.
  void phase(std::string_view name);
  // Logs the one line. `how`: the transports in use.
  void ends(const std::string& how);

 private:
  double ms_since_start() const;

  const std::string what_;
  const int rank_;
  const int ranks_;
  const LogLevel level_;
  const std::uint64_t begin_ns_;
  std::uint64_t last_ns_;
  std::string phases_;
};

// "0-3,8"; expects ascending numbers.
std::string ranges(std::span<const int> numbers);

// Warns of environment variables that look like settings and are none, each once.
void warn_of_unknown_variables();

}  // namespace pith
