// pith-info: capabilities and settings of this build.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "collectives/algorithm.hpp"
#include "compress/scheme.hpp"
#include "links.hpp"
#include "settings/settings.hpp"
#include "settings/settings_origin.hpp"
#include "settings/transport_rule.hpp"
#include "startup/listen_host.hpp"
#include "tools/version.hpp"
#include "topology.hpp"
#include "transport/transport_table.hpp"

namespace {

int say_error(const pith::Error& error) {
  fmt::print(stderr, "pith-info: {}\n", error.message());
  return 1;
}

int print_settings() {
  const pith::Expected<pith::Settings> settings = pith::settings_from_environment();
  if (!settings) return say_error(settings.error());
  fmt::print("{:<22} {:<12} {:<12} {:<7} {}\n", "setting", "value", "origin", "scope", "meaning");
  for (const pith::SettingInfo& info : pith::setting_table()) {
    const std::string value = info.value(*settings);
    const bool agreed = info.scope == pith::SettingInfo::Scope::agreed;
    fmt::print("PITH_{:<17} {:<12} {:<12} {:<7} {}\n", info.name, value.empty() ? "-" : value,
               pith::origin_of(info.name), agreed ? "agreed" : "local", info.meaning);
  }
  for (const std::string& line : pith::unknown_variables()) fmt::print("{}\n", line);
  return 0;
}

int print_interfaces() {
  const pith::Expected<pith::Settings> settings = pith::settings_from_environment();
  if (!settings) return say_error(settings.error());
  const pith::Expected<pith::HostChoice> choice = pith::explain_root_host(*settings);
  if (!choice) return say_error(choice.error());
  fmt::print("interfaces     {}\n", fmt::join(choice->considered, ", "));
  fmt::print("listens at     {} ({})\n", choice->host, choice->why);
  return 0;
}

void print_algorithms() {
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    fmt::print("{}:{}\n", name_of(algorithm.collective), algorithm.name);
  }
}

// `key=default, key=default`; empty: it has none.
std::string keys_of(const pith::Scheme& scheme) {
  std::string keys;
  for (const char letter : pith::Spec::of(scheme).text().substr(scheme.name.size())) {
    if (letter == ',') keys += ", ";
    if (letter != ',' && letter != ':') keys += letter;
  }
  return keys;
}

void print_schemes() {
  for (const pith::Scheme* scheme : pith::schemes()) {
    const std::string keys = keys_of(*scheme);
    fmt::print("{:<8} {}; {}{}{}\n", scheme->name, scheme->summary,
               keys.empty() ? "no keys" : "keys ", keys,
               scheme->lacks.empty() ? "" : fmt::format("; needs {}", scheme->lacks));
  }
}

pith::ListenPlace listen_place(const pith::Settings& settings) {
  const pith::Expected<pith::HostChoice> choice = pith::explain_root_host(settings);
  if (!choice) return {choice.error(), "", ""};
  return {{}, choice->host, choice->why};
}

int print_transports() {
  const pith::Expected<pith::Settings> settings = pith::settings_from_environment();
  if (!settings) return say_error(settings.error());
  const pith::TransportRule rule(settings->transport);
  const pith::ListenPlace place = listen_place(*settings);
  for (const pith::TransportFactory* transport : pith::transport_table()) {
    const pith::Expected<std::string> use = transport->usable(place);
    std::string forbidden;
    if (!rule.allows(transport->name)) {
      forbidden = fmt::format("; PITH_TRANSPORT={} forbids it", settings->transport);
    } else if (!transport->is_allowed(*settings)) {
      forbidden = "; PITH_ENCRYPT=1 forbids it";
    }
    fmt::print("{:<6} {}{}{}\n", transport->name,
               use ? "usable: " : "not usable: ", use ? *use : use.error().message(), forbidden);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What this machine offers, what this build of Pith can do with it, and how it is set.\n"
      "Without options: topology, interfaces, transports and settings.");
  bool settings = false;
  bool algorithms = false;
  bool schemes = false;
  bool transports = false;
  bool topology = false;
  bool interfaces = false;
  bool links = false;
  pith_info::LinkOptions link_options;
  app.add_flag("--settings", settings, "every setting with value, origin and meaning");
  app.add_flag("--algorithms", algorithms, "every algorithm, as PITH_ALGO takes it");
  app.add_flag(
      "--schemes", schemes,
      "every compression scheme, as pithCompressorCreate takes it, with its keys' defaults");
  app.add_flag("--transports", transports, "every transport, and why it is or is not usable");
  app.add_flag("--topology", topology, "sockets, NUMA nodes, shared caches, CPUs to be used");
  app.add_flag("--interfaces", interfaces, "network interfaces, and where a rank would listen");
  CLI::Option* measured = app.add_flag(
      "--links", links, "measures the links between this job's ranks; a launcher starts them");
  app.add_option("--ranks", link_options.ranks, "starts so many on this host, for --links")
      ->needs(measured)
      ->check(CLI::Range(2, 1024));
  app.add_option("--save", link_options.save, "writes what --links finds to this file")
      ->needs(measured);
  app.set_version_flag("--version", pith_tools::version_of("pith-info"));
  CLI11_PARSE(app, argc, argv);
  if (links) return pith_info::show_links(link_options);
  const bool plain =
      !settings && !algorithms && !schemes && !transports && !topology && !interfaces;
  if (topology || plain) fmt::print("{}", pith_info::topology());
  if (plain) fmt::print("\n");
  if (algorithms) print_algorithms();
  if (schemes) print_schemes();
  if ((interfaces || plain) && print_interfaces() != 0) return 1;
  if (plain) fmt::print("\n");
  if ((transports || plain) && print_transports() != 0) return 1;
  if (plain) fmt::print("\n");
  return settings || plain ? print_settings() : 0;
}
