#include "control/call_difference.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace pith {

namespace {

const CallFact* find(const CallNote& call, std::string_view name) {
  const auto found =
      std::ranges::find_if(call.facts, [&](const CallFact& fact) { return fact.name == name; });
  return found == call.facts.end() ? nullptr : &*found;
}

// The other call's fact of that name, where it differs; null also where the other collective or
// scheme has none.
const CallFact* counterpart(const CallFact& fact, const CallNote& other) {
  const CallFact* theirs = find(other, fact.name);
  return theirs && theirs->value != fact.value ? theirs : nullptr;
}

void append(std::string& text, std::string_view separator, std::string_view more) {
  if (!text.empty()) text += separator;
  text += more;
}

}  // namespace

std::string difference_of(const CallNote& one, const CallNote& other) {
  std::string text;
  for (const CallFact& fact : one.facts) {
    const CallFact* theirs = counterpart(fact, other);
    if (!theirs) continue;
    const std::string_view again = fact.is_key() ? std::string_view(fact.name) : "";
    append(text, ", ",
           fmt::format("{}{}{} against {}{}", fact.name, fact.is_key() ? "" : " ", fact.value,
                       again, theirs->value));
    // Counts and roots of different collectives cannot be compared.
    if (fact.name == "collective") return text;
  }
  const CallFact* tensors = find(one, "tensors");
  const bool has_several = tensors && tensors->value != "1";
  if (!text.empty() || !has_several || one.digest == other.digest) return text;
  return "one of their tensors in size, type, scale or matrices";
}

std::string words_beside(const CallNote& call, const CallNote& other) {
  std::string keys;
  for (const CallFact& fact : call.facts) {
    if (fact.is_key() && counterpart(fact, other)) append(keys, ",", fact.name + fact.value);
  }
  return keys.empty() ? call.text : fmt::format("{} ({})", call.text, keys);
}

}  // namespace pith
