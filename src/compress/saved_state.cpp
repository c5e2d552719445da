#include "compress/saved_state.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/mix.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::uint64_t magic = 0x6572706d6f437450;  // "PtCompre"
constexpr std::uint32_t version = 1;

// Writes, or only counts where there is nothing to write to.
class Writer {
 public:
  explicit Writer(std::byte* out) : out_(out) {}
  void bytes(const void* data, std::size_t size) {
    if (out_ && size > 0) std::memcpy(out_ + size_, data, size);
    size_ += size;
  }
  void zeros(std::size_t size) {
    if (out_) std::memset(out_ + size_, 0, size);
    size_ += size;
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
// A scheme's own state gets a line here: plain values and classes with a State by save_plain and
// load_plain, others with functions of their own. load() sees a copy, so it may fail half-way.
struct Section {
  std::string_view name;
  void (*save)(const SchemeState& state, Writer& out);
  // False: these bytes are no such state. What is left unread is an error too.
  bool (*load)(SchemeState& state, Reader& in);
};

template <class T>
concept HasState = requires(const T& value) {
  value.state();
};

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
bool load_plain(SchemeState& state, Reader& in) {
  auto& value = state.*member;
  using Value = std::remove_cvref_t<decltype(value)>;
  if constexpr (HasState<Value>) {
    value.restore(in.value<typename Value::State>());
  } else {
    value = in.value<Value>();
  }
  return true;
}

constexpr Section sections[] = {
    {"step", save_plain<&SchemeState::step>, load_plain<&SchemeState::step>},
    {"forecast", save_plain<&SchemeState::forecast>, load_plain<&SchemeState::forecast>},
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

bool read_section(SchemeState& state, Reader& in) {
  const std::string_view name = in.text();
  Reader content(in.bytes(in.value<std::uint64_t>()));
  if (!in.good()) return false;
  for (const Section& section : sections) {
    if (section.name == name) return section.load(state, content) && content.ended();
  }
  return false;
}

bool read_state(SchemeState& state, Reader& in) {
  const auto n = in.value<std::uint64_t>();
  for (std::uint64_t i = 0; i < n && in.good(); ++i) {
    if (!read_section(state, in)) return false;
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
  const std::size_t bytes = compressor.count() * sizeof(float);
  if (compressor.residual_is_zero()) {
    out.zeros(bytes);
  } else {
    out.bytes(compressor.accumulator(), bytes);
  }
}

Error bad(const std::string& what) {
  return {Code::invalid_argument, fmt::format("the saved state {}", what)};
}

Error read(std::span<const std::byte> bytes, Loaded& loaded) {
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
  loaded.shaped = in.value<std::uint8_t>() != 0;
  loaded.type = in.value<std::uint8_t>();
  loaded.count = in.value<std::uint64_t>();
  loaded.scale = in.value<double>();
  if (!read_state(loaded.state, in)) return bad("holds a state that is not known here");
  const std::uint64_t limit = bytes.size() / sizeof(float);
  loaded.residual = in.bytes(loaded.count <= limit ? loaded.count * sizeof(float) : ~0ull);
  return in.ended() ? Error() : bad(damaged);
}

Error check(const Compressor& compressor, const Loaded& loaded) {
  const std::string own = compressor.spec().text();
  if (loaded.spec != own) {
    return bad(fmt::format("is of \"{}\", expected \"{}\"", loaded.spec, own));
  }
  if (!loaded.shaped) return {};
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
  Error error = read(bytes, loaded);
  if (!error) error = check(compressor, loaded);
  if (error) return error;
  if (loaded.shaped) compressor.shape(loaded.count, static_cast<DType>(loaded.type));
  if (compressor.is_new()) compressor.adopt(loaded.state, loaded.scale);
  if (loaded.shaped) compressor.add_residual(host, loaded.residual.data());
  return {};
}

}  // namespace pith
