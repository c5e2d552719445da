// What every fuzz_NAME.cpp defines: one parser, and inputs to begin with. libfuzzer.cpp lets
// libFuzzer choose the inputs, test_mutations.cpp a seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pith::fuzz {

// Must return whatever the input. A crash, a report of a sanitizer or abort() is a failure.
void run(std::span<const std::uint8_t> input);

// Valid inputs, as they come from the library's own packing.
std::vector<std::string> seeds();

inline std::string_view text_of(std::span<const std::uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// Something that must hold for every input.
inline void expect(bool condition) {
  if (!condition) std::abort();
}

// Takes small decisions from the front of the input; zeros once it is used up.
class Bites {
 public:
  explicit Bites(std::span<const std::uint8_t> input) : rest_(input) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t first = rest_[0];
    rest_ = rest_.subspan(1);
    return first;
  }
  // At most `most` bytes.
  std::string_view bytes(std::size_t most) {
    const auto taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return text_of(taken);
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace pith::fuzz
