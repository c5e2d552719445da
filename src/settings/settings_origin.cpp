#include "settings/settings_origin.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace pith {

namespace {

constexpr std::string_view prefix = "PITH_";

// Prefixes of variables of tests and tools.
constexpr std::array<std::string_view, 5> of_others = {"TEST_", "CUDA_STUB_", "FUZZ_", "DEMO_",
                                                       "BIN"};

// Edit distance: single letters inserted, deleted, changed or swapped with the next one.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> steps(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      const std::size_t change = steps[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      steps[i][j] = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
    }
  }
  return steps[a.size()][b.size()];
}

bool is_known(std::string_view name) {
  const auto settings = setting_table();
  return std::any_of(settings.begin(), settings.end(),
                     [&](const SettingInfo& info) { return info.name == name; }) ||
         std::any_of(of_others.begin(), of_others.end(),
                     [&](std::string_view other) { return name.starts_with(other); });
}

}  // namespace

std::vector<std::string> changed_settings(const Settings& settings) {
  std::vector<std::string> changed;
  for (const SettingInfo& info : setting_table()) {
    const std::string_view origin = origin_of(info.name);
    if (origin == "default") continue;
    changed.push_back(fmt::format("{}{}={} ({})", prefix, info.name, info.value(settings), origin));
  }
  return changed;
}

std::string_view nearest_setting(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const SettingInfo& info : setting_table()) {
    const std::size_t steps = edits_between(upper, info.name);
    if (steps >= least) continue;
    least = steps;
    nearest = info.name;
  }
  return nearest;
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> lines;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view variable = text.substr(0, text.find('='));
    if (!variable.starts_with(prefix)) continue;
    const std::string_view name = variable.substr(prefix.size());
    if (is_known(name)) continue;
    const std::string_view meant = nearest_setting(name);
    lines.push_back(meant.empty()
                        ? fmt::format("{} is set, and there is no such setting", variable)
                        : fmt::format("{} is set, and there is no such setting: did you mean {}{}?",
                                      variable, prefix, meant));
  }
  return lines;
}

}  // namespace pith
