#include "nccl/compression/compression_rules.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "api/compressor_handle.hpp"
#include "core/dtype.hpp"
#include "pith/pith.h"

namespace pith::nccl {

namespace {

struct TypeName {
  std::string_view name;
  ncclDataType_t type;
};
constexpr std::array type_names = {TypeName{"f32", ncclFloat32}, TypeName{"f16", ncclFloat16},
                                   TypeName{"bf16", ncclBfloat16}};

Error bad(const std::string& text, const std::string& what) {
  return {Code::invalid_argument, fmt::format("PITH_COMPRESS is \"{}\": {}", text, what)};
}

// Reads a size such as "1MiB", "64K", "1048576".
Expected<std::size_t> read_bytes(std::string_view text) {
  std::size_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  constexpr std::array<std::string_view, 4> units = {"", "K", "M", "G"};
  for (std::size_t i = 0; i < units.size() && status == std::errc(); ++i) {
    const unsigned shift = 10 * static_cast<unsigned>(i);
    const bool named = unit == units[i] || (i > 0 && unit == fmt::format("{}iB", units[i]));
    if (named && value <= (std::size_t{1} << 62) >> shift) return value << shift;
  }
  return Error(Code::invalid_argument,
               fmt::format("min is \"{}\", expected bytes, as 65536, 64K or 1MiB", text));
}

Expected<unsigned> read_types(std::string_view text) {
  unsigned types = 0;
  while (true) {
    const std::string_view name = text.substr(0, text.find('|'));
    const auto* found = std::find_if(type_names.begin(), type_names.end(),
                                     [&](const TypeName& one) { return one.name == name; });
    if (found == type_names.end()) {
      return Error(Code::invalid_argument,
                   fmt::format("types has \"{}\", expected some of f32|f16|bf16", name));
    }
    types |= 1u << found->type;
    if (name.size() == text.size()) return types;
    text.remove_prefix(name.size() + 1);
  }
}

Error twice(const char* key) {
  return {Code::invalid_argument, fmt::format("key \"{}\" comes twice, expected once", key)};
}

// Removes min= and types= from the spec; the rest is the compressor's.
Error take_own_keys(std::string_view text, CompressionRules& rules) {
  bool has_min = false;
  bool has_types = false;
  std::size_t begin = text.find(':');
  rules.spec = text.substr(0, begin);
  char separator = ':';
  while (begin != std::string_view::npos) {
    const std::size_t end = text.find(',', begin + 1);
    const std::string_view part =
        text.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1);
    begin = end;
    if (part.starts_with("min=")) {
      if (std::exchange(has_min, true)) return twice("min");
      const Expected<std::size_t> bytes = read_bytes(part.substr(4));
      if (!bytes) return bytes.error();
      rules.bytes_min = *bytes;
    } else if (part.starts_with("types=")) {
      if (std::exchange(has_types, true)) return twice("types");
      const Expected<unsigned> types = read_types(part.substr(6));
      if (!types) return types.error();
      rules.types = *types;
    } else {
      rules.spec += separator;
      rules.spec += part;
      separator = ',';
    }
  }
  return {};
}

}  // namespace

Expected<CompressionRules> CompressionRules::parse(const std::string& text,
                                                   const std::string& comms) {
  CompressionRules rules;
  rules.comms = comms;
  for (const TypeName& one : type_names) rules.types |= 1u << one.type;
  if (Error error = take_own_keys(text, rules)) return bad(text, error.message());
  pithCompressor_t probe = nullptr;
  if (pithCompressorCreate(&probe, rules.spec.c_str()) != pithSuccess) {
    // The message begins with a function that clients of NCCL do not know.
    std::string_view why = pithGetLastError(nullptr);
    constexpr std::string_view caller = "pithCompressorCreate: ";
    if (why.starts_with(caller)) why.remove_prefix(caller.size());
    return bad(text, fmt::format("{}; also min= (bytes) and types=f32|f16|bf16 are known", why));
  }
  const bool averages_parameters = probe->state->spec().scheme->averages_parameters;
  rules.by_host = probe->state->spec().by_host;
  pithCompressorDestroy(probe);
  if (averages_parameters) {
    return bad(text, "it averages parameters with neighbours, expected a scheme for gradients");
  }
  return rules;
}

std::string CompressionRules::describe() const {
  std::string names;
  for (const TypeName& one : type_names) {
    if ((types >> one.type & 1) != 0)
      names += fmt::format("{}{}", names.empty() ? "" : "|", one.name);
  }
  return fmt::format(
      "PITH_COMPRESS: {} for sums and averages of {} from {} bytes on, in communicators {}", spec,
      names, bytes_min, comms);
}

// Uses only what is the same on all ranks.
bool CompressionRules::covers(const NcclCall& call) const {
  if (call.kind != Kind::allreduce) return false;
  if (call.op != ncclSum && call.op != ncclAvg) return false;
  if (call.type < 0 || call.type >= ncclNumTypes || (types >> call.type & 1) == 0) return false;
  const std::size_t size = call.type == ncclFloat32 ? 4 : 2;
  return call.count >= (bytes_min + size - 1) / size && call.count > 0;
}

std::string CompressionRules::objection(const NcclCall& call) const {
  if (call.op != ncclSum && call.op != ncclAvg) return "it makes no sums or averages";
  if (call.type < 0 || call.type >= ncclNumTypes) return "its sums are of no type";
  if ((types >> call.type & 1) == 0) {
    return fmt::format("its sums are of {}, which types= does not name",
                       pith::name_of(static_cast<pith::DType>(call.type)));
  }
  const std::size_t size = call.type == ncclFloat32 ? 4 : 2;
  return fmt::format("its sums are short: {} bytes, min= is {}", call.count * size, bytes_min);
}

bool CompressionRules::selects(const std::string& name, bool spans_job) const {
  return comms == "world" ? spans_job : fnmatch(comms.c_str(), name.c_str(), 0) == 0;
}

}  // namespace pith::nccl
