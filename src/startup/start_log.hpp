// What PITH_LOG tells of a start: at info one line by rank 0, at debug what somebody wants to know
// who looks for a mistake: settings, addresses, places, transports and where the time went. Of the
// start of one communicator.
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
  // `what` is made: "communicator" or "child communicator". `level`: of the one line.
  StartLog(std::string what, int rank, int ranks, LogLevel level = LogLevel::info);

  // At debug. Rank 0 also warns of variables that look like settings, once in a process.
  void begins(const Settings& settings);
  // At debug, behind the rank.
  void tell(const std::string& line) const;
  // This took the time since the last one.
  void phase(std::string_view name);
  // The one line: `how` the ranks are joined.
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

// "0-3,8" of numbers in ascending order.
std::string ranges(std::span<const int> numbers);

// Variables of the environment that look like settings and are none: each is told of once.
void warn_of_unknown_variables();

}  // namespace pith
