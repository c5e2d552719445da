// The target's inputs are its seeds, changed at random: the same ones at every run.
// PITH_TEST_SEED=n changes them by another seed; PITH_TEST_FULL=1 tries ten times as many.
#include <cstdlib>
#include <random>

#include "catch.hpp"
#include "fuzz_target.hpp"

namespace {

using pith::fuzz::run;

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::string next() {
    std::string input = one();
    for (std::size_t times = below(4); times > 0; --times) change(input);
    return input;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  const std::string& one() { return seeds_[below(seeds_.size())]; }
  char some_byte() {
    constexpr unsigned char telling[] = {0, 1, 0x7f, 0x80, 0xff, ' ', ',', ':'};
    return static_cast<char>(below(2) == 0 ? telling[below(sizeof telling)] : below(256));
  }

  void change(std::string& input) {
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = below(below(3) == 0 ? input.size() - at + 1 : 9);
    switch (below(7)) {
      case 0:
        input.resize(at);
        break;
      case 1:
        input.insert(at, length, some_byte());
        break;
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, one().substr(0, length));
        break;
      case 4:
        input.insert(at, input.substr(at, length));
        break;
      default:
        for (std::size_t i = at; i < std::min(input.size(), at + 1 + below(4)); ++i) {
          input[i] = below(4) == 0 ? static_cast<char>(input[i] ^ (1 << below(8))) : some_byte();
        }
    }
  }

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

void run_text(const std::string& text) {
  run({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

}  // namespace

TEST_CASE("mutations of valid inputs", "[fuzz]") {
  const std::vector<std::string> seeds = pith::fuzz::seeds();
  REQUIRE_FALSE(seeds.empty());
  for (const std::string& seed : seeds) run_text(seed);
  run_text({});
  const char* chosen = std::getenv("PITH_TEST_SEED");
  const std::uint64_t seed = chosen ? std::strtoull(chosen, nullptr, 10) : 1;
  const char* runs = std::getenv("PITH_TEST_RUNS");
  const int usual = runs ? std::atoi(runs) : 20'000;
  const int count = std::getenv("PITH_TEST_FULL") ? 10 * usual : usual;
  Mutator mutator(seeds, seed);
  for (int i = 0; i < count; ++i) run_text(mutator.next());
  SUCCEED("nothing crashed");
}
