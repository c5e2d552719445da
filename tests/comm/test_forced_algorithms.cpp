// PITH_ALGO: names with their collective and without.
#include <string>

#include "catch.hpp"
#include "model/forced_algorithms.hpp"

using namespace pith;

namespace {

std::string forced(const ForcedAlgorithms& all, Collective collective) {
  const Algorithm* one = all[static_cast<std::size_t>(collective)];
  return one ? std::string(one->name) : "";
}

}  // namespace

TEST_CASE("algorithms are forced by name, with or without their collective", "[settings]") {
  const Expected<ForcedAlgorithms> none = read_forced_algorithms("", 4);
  REQUIRE(none);
  CHECK(forced(*none, Collective::allreduce).empty());

  const Expected<ForcedAlgorithms> full =
      read_forced_algorithms("allreduce:ring,broadcast:chain", 4);
  REQUIRE(full);
  CHECK(forced(*full, Collective::allreduce) == "ring");
  CHECK(forced(*full, Collective::broadcast) == "chain");
  CHECK(forced(*full, Collective::allgather).empty());

  const Expected<ForcedAlgorithms> bare = read_forced_algorithms("ring", 4);
  REQUIRE(bare);
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name == "ring") CHECK(forced(*bare, algorithm.collective) == "ring");
  }
  CHECK(forced(*bare, Collective::broadcast) ==
        (find_algorithm(Collective::broadcast, "ring") ? "ring" : ""));

  // What names a collective goes first, wherever it stands.
  for (const char* text :
       {"ring,allreduce:recursive_doubling", "allreduce:recursive_doubling,ring"}) {
    const Expected<ForcedAlgorithms> both = read_forced_algorithms(text, 4);
    REQUIRE(both);
    CHECK(forced(*both, Collective::allreduce) == "recursive_doubling");
    CHECK(forced(*both, Collective::allgather) == "ring");
  }
}

TEST_CASE("algorithms that are not there, or serve fewer ranks", "[settings]") {
  for (const char* text : {"magic", "allreduce:magic", "magic:ring", "ring,", ",ring", ":ring"}) {
    INFO(text);
    const Expected<ForcedAlgorithms> rule = read_forced_algorithms(text, 4);
    if (std::string(text) == "ring,") {  // as it was: nothing follows the comma
      CHECK(rule);
      continue;
    }
    REQUIRE_FALSE(rule);
    CHECK(rule.error().code() == Code::invalid_argument);
    CHECK(std::string(rule.error().message()).find("known are") != std::string::npos);
  }
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.ranks_max > (1 << 20)) continue;
    const std::string full =
        std::string(name_of(algorithm.collective)) + ":" + std::string(algorithm.name);
    INFO(full);
    CHECK(read_forced_algorithms(full, algorithm.ranks_max));
    const Expected<ForcedAlgorithms> rule = read_forced_algorithms(full, algorithm.ranks_max + 1);
    REQUIRE_FALSE(rule);
    CHECK(std::string(rule.error().message()).find("serves up to") != std::string::npos);
  }
}
