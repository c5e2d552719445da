#include "settings/transport_rule.hpp"

#include <algorithm>

namespace pith {
namespace {

template <class Each>
void split(std::string_view list, Each each) {
  for (;;) {
    const std::size_t comma = list.find(',');
    each(list.substr(0, comma));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

bool contains(TransportRule::Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

bool TransportRule::valid(std::string_view text, Names known) {
  if (text.empty()) return true;
  if (text.front() == '^') text.remove_prefix(1);
  bool good = true;
  split(text, [&](std::string_view name) { good = good && contains(known, name); });
  return good;
}

TransportRule::TransportRule(std::string_view text, Names known) {
  const bool forbids = text.starts_with('^');
  if (forbids) text.remove_prefix(1);
  std::vector<std::string_view> listed;
  if (!text.empty()) {
    split(text, [&](std::string_view name) {
      const auto one = std::ranges::find(known, name);  // not `name`, which points into the text
      if (one != known.end() && !contains(listed, name)) listed.push_back(*one);
    });
  }
  named_ = !forbids && !text.empty();
  if (named_) {
    order_ = listed;
    return;
  }
  for (const std::string_view name : known) {
    if (!contains(listed, name)) order_.push_back(name);
  }
}

bool TransportRule::allows(std::string_view name) const { return contains(order_, name); }

}  // namespace pith
