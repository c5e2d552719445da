// Values of settings: all of the table, the rules for transports and algorithms, and the texts in
// which ranks compare them.
#include "fuzz_target.hpp"
#include "model/forced_algorithms.hpp"
#include "settings/settings.hpp"
#include "settings/transport_rule.hpp"

namespace pith::fuzz {

// The first byte chooses the setting.
void run(std::span<const std::uint8_t> input) {
  Bites bites(input);
  const std::span<const SettingInfo> table = setting_table();
  const SettingInfo& info = table[bites.byte() % table.size()];
  const std::string text(bites.bytes(input.size()));
  Settings settings;
  const Error error = info.set(settings, text);
  if (error) {
    expect(std::string_view(error.message()).find(info.name) != std::string_view::npos);
  } else {
    static_cast<void>(info.value(settings));
  }
  expect(TransportRule::valid(settings.transport));
  const TransportRule rule(settings.transport);
  expect(rule.order().size() <= transport_names.size());
  const Expected<ForcedAlgorithms> forced =
      read_forced_algorithms(text, 1 + static_cast<int>(input.size() % 5));
  if (!forced) expect(std::string_view(forced.error().message()).size() > 10);
  const std::string ours = agreed_text(Settings());
  static_cast<void>(difference(text, ours));
  expect(difference(ours, ours).empty());
}

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  const std::span<const SettingInfo> table = setting_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    for (const char* text :
         {"allreduce:ring,broadcast:chain", "shm,tcp", "^ucx", "65536", "127.0.0.1", "[::1]:5000",
          "20000-20100", "0.5", "AF_INET", "=eth0,eth1"}) {
      seeds.push_back(static_cast<char>(i) + std::string(text));
    }
  }
  seeds.push_back(static_cast<char>(0) + agreed_text(Settings()));
  return seeds;
}

}  // namespace pith::fuzz
