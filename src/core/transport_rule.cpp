#include "core/transport_rule.hpp"

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

const std::string_view* find(std::string_view name) {
  const auto found = std::find(TransportRule::known.begin(), TransportRule::known.end(), name);
  return found == TransportRule::known.end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool TransportRule::valid(std::string_view text) {
  if (text.empty()) return true;
  if (text.front() == '^') text.remove_prefix(1);
  bool good = true;
  split(text, [&](std::string_view name) { good = good && find(name); });
  return good;
}

TransportRule::TransportRule(std::string_view text) {
  const bool forbids = text.starts_with('^');
  if (forbids) text.remove_prefix(1);
  std::vector<std::string_view> listed;
  if (!text.empty()) {
    split(text, [&](std::string_view name) {
      const std::string_view* one = find(name);
      if (one && !contains(listed, name)) listed.push_back(*one);
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
