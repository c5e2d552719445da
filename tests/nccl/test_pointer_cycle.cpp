// Which vector a call carries, told from the addresses: random programs on several ranks, in which
// no two vectors may ever be taken for each other.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "catch.hpp"
#include "nccl/compression/cycle_agreement.hpp"
#include "nccl/compression/pointer_cycle.hpp"

using pith::nccl::CycleAgreement;
using pith::nccl::PointerCycle;

namespace {

// The machines of all ranks, and what their all-reduce of votes does.
class Ranks {
 public:
  explicit Ranks(std::size_t size) : machines_(size) {}

  // A group of calls: sends[call][rank]. The places by rank and call, none where they disagree.
  using Sends = std::vector<std::vector<PointerCycle::Call>>;
  std::vector<std::vector<std::optional<std::uint32_t>>> run(const Sends& sends) {
    const std::size_t calls = sends.size();
    std::vector<std::vector<PointerCycle::Seen>> seen(machines_.size());
    for (std::size_t r = 0; r < machines_.size(); ++r) {
      for (const auto& call : sends) seen[r].push_back(machines_[r].next(call[r]));
    }
    std::vector<std::vector<std::optional<std::uint32_t>>> places(machines_.size());
    for (auto& of_rank : places) of_rank.resize(calls);
    for (std::size_t c = 0; c < calls; ++c) {
      const std::size_t period = seen[0][c].period;
      const bool alike = std::all_of(seen.begin(), seen.end(), [&](const auto& of_rank) {
        return of_rank[c].period == period;
      });
      const std::uint64_t agreement = agreement_.next(alike ? period : 0);
      if (agreement == 0) continue;
      for (std::size_t r = 0; r < machines_.size(); ++r) {
        places[r][c] = seen[r][c].place;
        REQUIRE(places[r][c]);
        check_calls(r, *places[r][c], agreement, calls_ + c);
      }
    }
    calls_ += calls;
    for (const auto& of_rank : places) {
      for (std::size_t c = 0; c < calls; ++c) {
        REQUIRE(of_rank[c].has_value() == places[0][c].has_value());
      }
    }
    return places;
  }
  std::optional<std::uint32_t> one(const PointerCycle::Call& call) {
    const Sends alone(1, std::vector<PointerCycle::Call>(machines_.size(), call));
    return run(alone)[0][0];
  }
  PointerCycle& machine(std::size_t rank) { return machines_[rank]; }

 private:
  // In one agreement a place comes in the same calls on all ranks: their schemes go in step.
  void check_calls(std::size_t rank, std::uint32_t place, std::uint64_t agreement,
                   std::size_t call) {
    auto& calls = calls_of_[{rank, place}];
    if (std::exchange(calls.first, agreement) != agreement) calls.second.clear();
    calls.second.push_back(call);
    if (rank == 0) {
      of_first_ = calls.second;
    } else {
      REQUIRE(calls.second == of_first_);
    }
  }

  std::vector<PointerCycle> machines_;
  CycleAgreement agreement_;
  std::size_t calls_ = 0;
  using Calls = std::pair<std::uint64_t, std::vector<std::size_t>>;  // in its last agreement
  std::map<std::pair<std::size_t, std::uint32_t>, Calls> calls_of_;
  std::vector<std::size_t> of_first_;  // rank 0's, of the place that it has in this call
};

PointerCycle::Call call_at(std::uintptr_t address, std::size_t count = 100) {
  return {reinterpret_cast<const void*>(address), count, 7};
}

// Letters are addresses; all vectors have one size, capital letters another one. '.' where the
// place is not known, else a digit that stands for it.
std::string places_of(Ranks& ranks, const std::string& calls) {
  std::string text;
  for (const char letter : calls) {
    const bool large = letter >= 'A' && letter <= 'Z';
    const auto place = ranks.one(call_at(static_cast<std::uintptr_t>(letter), large ? 200 : 100));
    text += place ? static_cast<char>('0' + *place) : '.';
  }
  return text;
}

}  // namespace

TEST_CASE("a cycle is known once two periods have been agreed", "[nccl]") {
  Ranks ranks(2);
  CHECK(places_of(ranks, "aBcaBcaBcaBcaBc") == "..........01201");
}

TEST_CASE("one vector is a cycle of one", "[nccl]") {
  Ranks ranks(3);
  CHECK(places_of(ranks, "aaaaaa") == "..0000");
}

TEST_CASE("a broken cycle is taken up again where sizes tell its beginning", "[nccl]") {
  Ranks ranks(2);
  const std::string before = places_of(ranks, "aBcaBcaBcaBcaBcaBcaBc");
  CHECK(before == "..........01201201201");
  CHECK(places_of(ranks, "x") == ".");
  const std::string after = places_of(ranks, "aBcaBcaBcaBcaBcaBcaBcaBcaBcaBcaBcaBc");
  const std::string letters = "aBcaBcaBcaBcaBcaBcaBcaBcaBcaBcaBcaBc";
  CHECK(after.back() != '.');
  std::map<char, char> place;
  for (std::size_t i = 0; i < 21; ++i) {
    const char letter = "aBc"[i % 3];
    if (before[i] != '.') place[letter] = before[i];
  }
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (after[i] != '.') CHECK(after[i] == place[letters[i]]);
  }
}

TEST_CASE("equal vectors that exchange their memory are new ones", "[nccl]") {
  Ranks ranks(1);
  const std::string before = places_of(ranks, "abababababab");
  const std::string after = places_of(ranks, "babababababababababababababababa");
  CHECK(before.back() != '.');
  CHECK(after.back() != '.');
  for (const char place : after) {
    CHECK((place == '.' || before.find(place) == std::string::npos));
  }
  CHECK(ranks.machine(0).waiting().size() == 2);
}

TEST_CASE("a run inside of a cycle is found out", "[nccl]") {
  Ranks ranks(1);
  std::string calls;
  for (int i = 0; i < 40; ++i) calls += "aaaaaB";
  const std::string places = places_of(ranks, calls);
  std::string last = places.substr(places.size() - 6);
  CHECK(last.find('.') == std::string::npos);
  std::sort(last.begin(), last.end());
  CHECK(std::unique(last.begin(), last.end()) == last.end());
}

TEST_CASE("a cycle returns after each of many disturbances", "[nccl]") {
  const std::size_t vectors = GENERATE(1, 5, 50);
  const int steps_between = GENERATE(10, 50);
  Ranks ranks(2);
  std::size_t placed = 0;
  const int steps = 1000;
  char* nowhere = nullptr;
  std::vector<char> memory(vectors);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t v = 0; v < vectors; ++v) {
      placed += ranks.one({&memory[v], 1000 + v, 0}) && step >= steps / 2 ? 1 : 0;
    }
    if (step % steps_between == 0) ranks.one({++nowhere, 7, 0});
  }
  // Four steps of each stretch are those in which it is found again.
  CHECK(placed * 2 > vectors * steps / 2);
}

TEST_CASE("many cycles that wait: the oldest one is given up", "[nccl]") {
  Ranks ranks(1);
  for (char letter = 'a'; letter <= 'f'; ++letter) {
    places_of(ranks, std::string(8, letter));
  }
  const auto dropped = ranks.machine(0).take_dropped();
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0] == 0);
  CHECK(ranks.machine(0).waiting().size() == 4);
}

TEST_CASE("a rank whose addresses never repeat keeps all of them dense", "[nccl]") {
  Ranks ranks(3);
  for (std::uintptr_t step = 0; step < 50; ++step) {
    for (std::uintptr_t layer = 0; layer < 3; ++layer) {
      std::vector<PointerCycle::Call> calls(3, call_at(16 + layer));
      calls[1] = call_at(1000 + 16 * step + layer);
      CHECK(!ranks.run({calls})[0][0]);
    }
  }
}

namespace {

// A model's layers on each rank. The order of the calls is fixed, their memory moves at times, and
// calls that are none of the layers' come between.
class Program {
 public:
  Program(unsigned seed, std::size_t ranks) : random_(seed), ranks_(ranks), memory_(ranks) {
    layers_ = 1 + pick(7);
    for (std::size_t i = 0; i < layers_; ++i) {
      sizes_.push_back(100 * (1 + pick(3)));
      for (auto& memory : memory_) memory.push_back(fresh());
    }
  }

  void check(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (pick(25) == 0) move();
      if (pick(30) == 0) stray();
      Ranks::Sends group;
      std::vector<std::size_t> layers;
      for (std::size_t layer = 0; layer < layers_; ++layer) {
        std::vector<PointerCycle::Call> calls;
        for (const auto& memory : memory_) calls.push_back(call_at(memory[layer], sizes_[layer]));
        group.push_back(calls);
        layers.push_back(layer);
        if (layer + 1 < layers_ && pick(3) != 0) continue;  // some calls share a group
        note(layers, machines_.run(group));
        group.clear();
        layers.clear();
      }
    }
  }
  int known() const { return known_; }

 private:
  std::size_t pick(std::size_t n) { return random_() % n; }
  std::uintptr_t fresh() { return next_ += 16; }

  void move() {
    for (auto& memory : memory_) {
      const std::size_t how = pick(4);
      if (how == 0) std::shuffle(memory.begin(), memory.end(), random_);
      if (how == 1) std::rotate(memory.begin(), memory.begin() + 1, memory.end());
      if (how == 2) memory[pick(layers_)] = fresh();
      if (pick(2) == 0) continue;  // often only some ranks' memory moves
      std::swap(memory[pick(layers_)], memory[pick(layers_)]);
    }
  }
  void stray() {
    std::vector<PointerCycle::Call> calls;
    for (std::size_t r = 0; r < ranks_; ++r) calls.push_back(call_at(fresh(), 100));
    for (const auto& of_rank : machines_.run({calls})) REQUIRE(!of_rank[0]);
  }
  void note(const std::vector<std::size_t>& layers,
            const std::vector<std::vector<std::optional<std::uint32_t>>>& places) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t c = 0; c < layers.size(); ++c) {
        if (!places[r][c]) continue;
        ++known_;
        const auto [owner, is_new] = owner_.try_emplace({r, *places[r][c]}, layers[c]);
        if (!is_new) REQUIRE(owner->second == layers[c]);
      }
    }
  }

  std::mt19937 random_;
  std::size_t ranks_;
  std::size_t layers_ = 0;
  std::vector<std::size_t> sizes_;
  std::vector<std::vector<std::uintptr_t>> memory_;
  std::uintptr_t next_ = 4096;
  Ranks machines_{ranks_};
  std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> owner_;
  int known_ = 0;
};

}  // namespace

TEST_CASE("random programs never mix their vectors", "[nccl]") {
  const char* more = std::getenv("PITH_TEST_SEEDS");
  const unsigned seeds = more ? static_cast<unsigned>(std::atoi(more)) : 500;
  int known = 0;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    Program program(seed, 1 + seed % 3);
    program.check(120);
    known += program.known();
  }
  CHECK(known > 0);
}
