#include "compress/saved_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/mix.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::uint64_t magic = 0x6572706d6f437450;  // "PtCompre"
constexpr std::uint32_t version = 1;
constexpr std::size_t most_partitions = std::size_t{1} << 20;
constexpr std::uint64_t most_elements = std::numeric_limits<std::uint32_t>::max();

// Writes, or only counts where there is nothing to write to.
class Writer {
 public:
  explicit Writer(std::byte* out) : out_(out) {}
  void bytes(const void* data, std::size_t size) {
    if (out_ && size > 0) std::memcpy(out_ + size_, data, size);
    size_ += size;
  }
  // To be filled in; null where only bytes are counted.
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
  std::size_t size() const { return size_; }

 private:
  std::byte* out_;
  std::size_t size_ = 0;
};

// What is not there reads as zero, and is remembered.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> left) : left_(left) {}
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
  bool good() const { return good_; }
  bool ended() const { return good_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = mix(magic, bytes.size());
  for (; bytes.size() >= sizeof hash; bytes = bytes.subspan(sizeof hash)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = mix(hash, word);
  }
  for (const std::byte byte : bytes) hash = mix(hash, std::to_integer<std::uint64_t>(byte));
  return hash;
}

// --- the scheme's state, a section a member ---------------------------------------------------
//
// A scheme's own state gets a line here: plain values and classes with a plain State by save_plain
// and load_plain, others with functions of their own. load() sees a copy, so it may fail half-way.

// Whose state is read.
struct Shape {
  const Spec& spec;
  std::size_t count;
};

struct Section {
  std::string_view name;
  void (*save)(const SchemeState& state, Writer& out);
  // False: these bytes are no such state. What is left unread is an error too.
  bool (*load)(SchemeState& state, const Shape& shape, Reader& in);
};

template <class T>
concept HasState = requires(const T& value) {
  value.state();
};

// What the state's own code counts on. A checksum tells what was damaged, not what was made up.
bool is_sound(const ThresholdForecast::State& state) {
  return std::isfinite(state.last) && std::isfinite(state.drift) && std::isfinite(state.error);
}
bool is_sound(const SmoothedNorm::State& state) {
  return state.count <= SmoothedNorm::window && state.next < SmoothedNorm::window;
}
bool is_sound(const ExdynaThreshold::State& state) {
  const auto is_magnitude = [](double value) {
    return value >= 0 && value <= std::numeric_limits<float>::max();
  };
  return is_magnitude(state.lambda) && is_magnitude(state.last) && std::isfinite(state.drift);
}
bool are_means(std::span<const double> means) {
  return std::all_of(means.begin(), means.end(),
                     [](double mean) { return mean >= 0 && mean <= double(most_elements); });
}
bool is_sound(const ExdynaPartition::State& state) {
  const std::size_t cuts = state.cuts.size();
  const std::size_t means = state.partition_means.size();
  return cuts >= 2 && cuts <= most_partitions && (means == 0 || means == cuts - 1) &&
         std::is_sorted(state.cuts.begin(), state.cuts.end()) && are_means(state.partition_means) &&
         are_means(state.block_means);
}

template <auto member>
void save_plain(const SchemeState& state, Writer& out) {
  const auto& value = state.*member;
  if constexpr (HasState<std::remove_cvref_t<decltype(value)>>) {
    out.value(value.state());
  } else {
    out.value(value);
  }
}

template <auto member>
bool load_plain(SchemeState& state, const Shape&, Reader& in) {
  auto& value = state.*member;
  using Value = std::remove_cvref_t<decltype(value)>;
  if constexpr (HasState<Value>) {
    const auto found = in.value<typename Value::State>();
    if (!is_sound(found)) return false;
    value.restore(found);
  } else {
    value = in.value<Value>();
  }
  return true;
}

template <class T>
void write_array(const std::vector<T>& values, Writer& out) {
  out.value(static_cast<std::uint64_t>(values.size()));
  out.bytes(values.data(), values.size() * sizeof(T));
}

template <class T>
bool read_array(std::vector<T>& values, Reader& in) {
  const auto n = in.value<std::uint64_t>();
  constexpr std::uint64_t most = std::uint64_t{1} << 32;
  const auto found = in.bytes(n < most ? n * sizeof(T) : ~std::uint64_t{0});
  if (!in.good()) return false;
  values.resize(n);
  if (n > 0) std::memcpy(values.data(), found.data(), found.size());
  return true;
}

// Empty where the scheme has not called yet, or is another one.
void save_exdyna(const SchemeState& state, Writer& out) {
  const ExdynaControl::State own = state.exdyna.state();
  if (own.partition.cuts.empty()) return;
  write_array(own.partition.cuts, out);
  write_array(own.partition.block_means, out);
  write_array(own.partition.partition_means, out);
  out.value(own.threshold.lambda);
  out.value(own.threshold.drift);
  out.value(own.threshold.last);
  out.value(own.threshold.measured);
}

bool load_exdyna(SchemeState& state, const Shape& shape, Reader& in) {
  if (in.ended()) return true;
  ExdynaControl::State own;
  const bool whole = read_array(own.partition.cuts, in) &&
                     read_array(own.partition.block_means, in) &&
                     read_array(own.partition.partition_means, in);
  own.threshold.lambda = in.value<double>();
  own.threshold.drift = in.value<double>();
  own.threshold.last = in.value<double>();
  own.threshold.measured = in.value<std::uint32_t>();
  const bool is_shaped = shape.count > 0 && shape.count <= most_elements;
  if (!whole || !in.good() || !is_shaped) return false;
  if (!is_sound(own.partition) || !is_sound(own.threshold)) return false;
  // Of the slice that the rank keeps, if it keeps one.
  const std::size_t count = state.layout.count != 0 ? state.layout.count : shape.count;
  if (count > shape.count) return false;
  const std::vector<std::uint32_t>& cuts = own.partition.cuts;
  state.exdyna.restore(shape.spec, count, static_cast<int>(cuts.size()) - 1, own);
  return cuts.front() == 0 && cuts.back() == state.exdyna.partition().blocks();
}

void save_succession(const SchemeState& state, Writer& out) {
  const Succession::State& own = state.succession.state();
  out.value(own.next);
  write_array(own.waited, out);
}

bool load_succession(SchemeState& state, const Shape&, Reader& in) {
  Succession::State own;
  own.next = in.value<int>();
  if (!read_array(own.waited, in) || own.waited.size() > most_partitions) return false;
  const auto ranks = static_cast<int>(own.waited.size());
  if (own.next < 0 || own.next > std::max(ranks - 1, 0)) return false;
  state.succession.restore(own);
  return true;
}

constexpr Section sections[] = {
    {"step", save_plain<&SchemeState::step>, load_plain<&SchemeState::step>},
    {"layout", save_plain<&SchemeState::layout>, load_plain<&SchemeState::layout>},
    {"forecast", save_plain<&SchemeState::forecast>, load_plain<&SchemeState::forecast>},
    {"raw norm", save_plain<&SchemeState::raw_norm>, load_plain<&SchemeState::raw_norm>},
    {"succession", save_succession, load_succession},
    {"exdyna", save_exdyna, load_exdyna},
};

void write_state(const SchemeState& state, Writer& out) {
  out.value(static_cast<std::uint64_t>(std::size(sections)));
  for (const Section& section : sections) {
    Writer counted(nullptr);
    section.save(state, counted);
    out.text(section.name);
    out.value(static_cast<std::uint64_t>(counted.size()));
    section.save(state, out);
  }
}

bool read_section(SchemeState& state, const Shape& shape, Reader& in) {
  const std::string_view name = in.text();
  Reader content(in.bytes(in.value<std::uint64_t>()));
  if (!in.good()) return false;
  for (const Section& section : sections) {
    if (section.name == name) return section.load(state, shape, content) && content.ended();
  }
  return false;
}

bool read_state(SchemeState& state, const Shape& shape, Reader& in) {
  const auto n = in.value<std::uint64_t>();
  for (std::uint64_t i = 0; i < n && in.good(); ++i) {
    if (!read_section(state, shape, in)) return false;
  }
  return in.good();
}

// --- the whole --------------------------------------------------------------------------------

struct Loaded {
  std::string_view spec;
  bool shaped = false;
  std::uint8_t type = 0;
  std::uint64_t count = 0;
  double scale = 1;
  SchemeState state;
  std::span<const std::byte> residual;
};

void write(const Compressor& compressor, Writer& out) {
  out.value(magic);
  out.value(version);
  out.text(compressor.spec().text());
  out.value(static_cast<std::uint8_t>(compressor.shaped()));
  out.value(static_cast<std::uint8_t>(compressor.type()));
  out.value(static_cast<std::uint64_t>(compressor.count()));
  out.value(compressor.scale());
  write_state(compressor, out);
  std::byte* residual = out.room(compressor.count() * sizeof(float));
  if (residual) compressor.copy_residual(residual);
}

Error bad(const std::string& what) {
  return {Code::invalid_argument, fmt::format("the saved state {}", what)};
}

Error read(std::span<const std::byte> bytes, const Spec& spec, Loaded& loaded) {
  const std::string damaged = fmt::format("of {} bytes is damaged or cut short", bytes.size());
  Reader head(bytes);
  if (head.value<std::uint64_t>() != magic) {
    return bad("does not begin like one, expected bytes of pithCompressorSave");
  }
  const auto found = head.value<std::uint32_t>();
  if (!head.good()) return bad(damaged);
  if (found != version) {
    return bad(fmt::format("has version {}, expected {}", found, version));
  }
  if (bytes.size() < sizeof(std::uint64_t)) return bad(damaged);
  const auto body = bytes.first(bytes.size() - sizeof(std::uint64_t));
  if (Reader(bytes.subspan(body.size())).value<std::uint64_t>() != checksum(body)) {
    return bad(damaged);
  }
  Reader in(body.subspan(sizeof magic + sizeof version));
  loaded.spec = in.text();
  const std::string own = spec.text();
  if (loaded.spec != own) {
    return bad(fmt::format("is of \"{}\", expected \"{}\"", loaded.spec, own));
  }
  loaded.shaped = in.value<std::uint8_t>() != 0;
  loaded.type = in.value<std::uint8_t>();
  loaded.count = in.value<std::uint64_t>();
  loaded.scale = in.value<double>();
  if (!read_state(loaded.state, {spec, loaded.count}, in))
    return bad("holds a state that is not known here");
  const std::uint64_t limit = bytes.size() / sizeof(float);
  loaded.residual = in.bytes(loaded.count <= limit ? loaded.count * sizeof(float) : ~0ull);
  return in.ended() ? Error() : bad(damaged);
}

Error check(const Compressor& compressor, const Loaded& loaded) {
  if (!loaded.shaped) return {};
  if (loaded.type >= dtype_count) return bad("is of a type that is not known here");
  const Error error = compressor.check(loaded.count, static_cast<DType>(loaded.type));
  return error ? bad(fmt::format("does not fit: {}", error.message())) : error;
}

}  // namespace

std::size_t saved_bytes(const Compressor& compressor) {
  Writer counted(nullptr);
  write(compressor, counted);
  return counted.size() + sizeof(std::uint64_t);
}

void save(const Compressor& compressor, std::byte* out) {
  Writer writer(out);
  write(compressor, writer);
  const std::uint64_t sum = checksum({out, writer.size()});
  std::memcpy(out + writer.size(), &sum, sizeof sum);
}

Error load(Compressor& compressor, Compute& host, std::span<const std::byte> bytes) {
  Loaded loaded;
  Error error = read(bytes, compressor.spec(), loaded);
  if (!error) error = check(compressor, loaded);
  if (error) return error;
  if (loaded.shaped) compressor.shape(loaded.count, static_cast<DType>(loaded.type));
  const bool is_new = compressor.is_new();
  if (loaded.shaped) compressor.add_residual(host, loaded.residual.data());
  if (is_new) compressor.adopt(loaded.state, loaded.scale);
  return {};
}

}  // namespace pith
