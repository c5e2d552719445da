// pith-info: what this build can do and how it is set.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "collectives/algorithm.hpp"
#include "core/settings.hpp"

namespace {

int print_settings() {
  const pith::Expected<pith::Settings> settings = pith::settings_from_environment();
  if (!settings) {
    fmt::print(stderr, "pith-info: {}\n", settings.error().message());
    return 1;
  }
  const pith::Settings defaults;
  fmt::print("{:<20} {:<12} {:<12} {:<7} {}\n", "setting", "value", "origin", "scope", "meaning");
  for (const pith::SettingInfo& info : pith::setting_table()) {
    const std::string value = info.value(*settings);
    const bool agreed = info.scope == pith::SettingInfo::Scope::agreed;
    fmt::print("PITH_{:<15} {:<12} {:<12} {:<7} {}\n", info.name, value.empty() ? "-" : value,
               value == info.value(defaults) ? "default" : "environment",
               agreed ? "agreed" : "local", info.meaning);
  }
  return 0;
}

void print_algorithms() {
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    fmt::print("{}:{}\n", name_of(algorithm.collective), algorithm.name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What this build of Pith can do and how it is set.");
  bool settings = false;
  bool algorithms = false;
  app.add_flag("--settings", settings, "every setting with value, origin and meaning");
  app.add_flag("--algorithms", algorithms, "every algorithm, as PITH_ALGO takes it");
  CLI11_PARSE(app, argc, argv);
  if (algorithms) print_algorithms();
  return settings || !algorithms ? print_settings() : 0;
}
