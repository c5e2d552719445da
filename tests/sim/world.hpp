// What tests do with ranks in virtual time: aborts at every point of a program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "world/world.hpp"

namespace pith::test {

using pith::run_ranks;
using pith::World;

// A collective call with the memory it works on.
class Program {
 public:
  virtual ~Program() = default;
  virtual Task<Error> start(Call& call, int rank) = 0;
  // The user's buffers of a rank. They are the user's again when its coroutine has ended, so they
  // are overwritten then, and must stay as they are.
  virtual std::span<std::byte> memory(int rank) = 0;
  // What is wrong with the results of a rank whose call has ended without an error; empty is good.
  virtual std::string check_result(int) const { return {}; }
};

struct AbortOptions {
  // Whose communicator is revoked; -1: of up to three ranks (with PITH_TEST_FULL of any number)
  // every one at every step, of more each in turn.
  int victim = -1;
  std::uint64_t stride = 1;
  std::uint64_t first = 0;
  double revoke_delay_s = 1e-5;
  bool traced = false;          // every rank records its steps
  std::vector<int> hosts = {};  // of the ranks; empty: nothing is known of them
};

struct AbortReport {
  std::uint64_t points = 0;  // where an abort was injected
  std::string failure;       // the first; empty is good
  std::string variables;     // PITH_TEST_STEP and PITH_TEST_VICTIM, which run that abort alone
};

// Runs the program for each step of the simulation, each resumption and each event, and revokes the
// communicator of a rank there. Every coroutine must end, nothing may be held, no buffer of the
// user be touched after its rank's call has returned (of reads the address sanitizer sees all, and
// the results of ranks whose calls have succeeded some), and another communicator of the same ranks
// must work.
AbortReport inject_aborts(const SimConfig& config,
                          const std::function<std::unique_ptr<Program>()>& make,
                          AbortOptions options = {});

}  // namespace pith::test
