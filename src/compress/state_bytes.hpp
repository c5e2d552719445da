// Reads and writes a scheme's state as bytes, for the sections of saved_state.cpp and of the
// schemes. load() works on a copy of the state, so it may fail half-way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "compress/scheme.hpp"
#include "compress/scheme_state.hpp"

namespace pith {

// Limits beyond which a state is invalid.
inline constexpr std::size_t most_saved_ranks = std::size_t{1} << 20;
inline constexpr std::uint64_t most_saved_elements = std::numeric_limits<std::uint32_t>::max();

// Writes bytes, or only counts them if `out` is null.
class StateWriter {
 public:
  explicit StateWriter(std::byte* out) : out_(out) {}
  void bytes(const void* data, std::size_t size) {
    if (out_ && size > 0) std::memcpy(out_ + size_, data, size);
    size_ += size;
  }
  // Room for the caller to fill in; null if bytes are only counted.
  std::byte* room(std::size_t size) {
    std::byte* at = out_ ? out_ + size_ : nullptr;
    size_ += size;
    return at;
  }
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&value, sizeof value);
  }
  void text(std::string_view text) {
    value(static_cast<std::uint64_t>(text.size()));
    bytes(text.data(), text.size());
  }
  template <class T>
  void array(const std::vector<T>& values) {
    value(static_cast<std::uint64_t>(values.size()));
    bytes(values.data(), values.size() * sizeof(T));
  }
  std::size_t size() const { return size_; }

 private:
  std::byte* out_;
  std::size_t size_ = 0;
};

// Missing bytes read as zero and are recorded as an error.
class StateReader {
 public:
  explicit StateReader(std::span<const std::byte> left) : left_(left) {}
  std::span<const std::byte> bytes(std::uint64_t size) {
    if (size > left_.size()) {
      good_ = false;
      return {};
    }
    const auto found = left_.first(size);
    left_ = left_.subspan(size);
    return found;
  }
  template <class T>
  T value() {
    T value{};
    const auto found = bytes(sizeof value);
    if (good_) std::memcpy(&value, found.data(), sizeof value);
    return value;
  }
  std::string_view text() {
    const auto found = bytes(value<std::uint64_t>());
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  // False if the array is incomplete.
  template <class T>
  bool array(std::vector<T>& values) {
    const auto n = value<std::uint64_t>();
    constexpr std::uint64_t most = std::uint64_t{1} << 32;
    const auto found = bytes(n < most ? n * sizeof(T) : ~std::uint64_t{0});
    if (!good()) return false;
    values.resize(n);
    if (n > 0) std::memcpy(values.data(), found.data(), found.size());
    return true;
  }
  bool good() const { return good_; }
  bool ended() const { return good_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

template <class T>
concept HasState = requires(const T& value) {
  value.state();
};

// Invariants that the code relies on: a checksum detects damage, but not invented states.
inline bool is_sound(const ThresholdForecast::State& state) {
  return std::isfinite(state.last) && std::isfinite(state.drift) && std::isfinite(state.error);
}
inline bool is_sound(const DensityControl& control) {
  const auto is_sum = [](double sum) { return std::isfinite(sum) && sum >= 0; };
  const LinkSums& link = control.link;
  const auto is_share = [](float share) { return share >= 0 && share <= 1; };
  return control.density >= 0 && control.density <= 1 &&
         std::ranges::all_of(control.shares, is_share) && is_sum(link.messages_messages) &&
         is_sum(link.messages_bytes) && is_sum(link.bytes_bytes) && is_sum(link.messages_seconds) &&
         is_sum(link.bytes_seconds);
}
inline bool is_sound(const StageControl& control) {
  constexpr std::uint32_t most_stages = 64;
  const auto is_sum = [](double sum) { return std::isfinite(sum) && sum >= 0; };
  return control.stages >= 1 && control.stages <= most_stages &&
         (control.direction == 1 || control.direction == -1) &&
         control.calls < StageControl::calls_together && is_sum(control.ratios) &&
         is_sum(control.last_off);
}
inline bool is_sound(const SmoothedNorm::State& state) {
  return state.count <= SmoothedNorm::window && state.next < SmoothedNorm::window;
}

// Sections of members that are plain values, or have a plain State.
template <auto member>
void save_plain(const SchemeState& state, StateWriter& out) {
  const auto& value = state.*member;
  if constexpr (HasState<std::remove_cvref_t<decltype(value)>>) {
    out.value(value.state());
  } else {
    out.value(value);
  }
}
template <auto member>
bool load_plain(SchemeState& state, const StateShape&, StateReader& in) {
  auto& value = state.*member;
  using Value = std::remove_cvref_t<decltype(value)>;
  if constexpr (HasState<Value>) {
    const auto found = in.value<typename Value::State>();
    if (!is_sound(found)) return false;
    value.restore(found);
  } else {
    value = in.value<Value>();
    if constexpr (requires { is_sound(value); }) return is_sound(value);
  }
  return true;
}

// For schemes that select with a TopkSelector.
inline constexpr StateSection forecast_section{"forecast", save_plain<&SchemeState::forecast>,
                                               load_plain<&SchemeState::forecast>};

}  // namespace pith
