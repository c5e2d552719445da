// The one table of settings. Read once from the environment as PITH_<NAME>; nothing else in the
// library reads the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "settings/port_range.hpp"
#include "settings/verbs_settings.hpp"

namespace pith {

struct Settings {
  std::string algo;       // "allreduce:ring,broadcast:chain", "ring"; empty: the library chooses
  std::string transport;  // see settings/transport_rule.hpp; empty: the best that works
  std::size_t chunk = 0;  // 0: by transport
  int lanes = 0;          // 0: by transport
  struct Tcp {
    int streams = 4;
    int connect_ranks = 0;
    int rails = 1;
    bool encrypt = false;
    std::string reconnect = "hosts";  // "never", "always"
  } tcp;
  std::size_t copy_bytes = 0;
  bool cuda_ipc = true;
  VerbsSettings verbs;
  std::string gpudirect = "auto";   // "0", "1"
  std::string cuda_steps = "auto";  // "launch", "worker"
  unsigned cuda_blocks = 32;
  bool one_cuda_connection = false;  // CUDA_DEVICE_MAX_CONNECTIONS is 1
  bool cuda_launches_block = false;  // by CUDA_LAUNCH_BLOCKING
  std::string order = "topology";
  bool deterministic = false;
  bool learn = true;
  std::string host;           // empty: by ifname and socket_family
  std::string host_id;        // not empty: only ranks with an equal one share memory
  std::string ifname;         // NCCL's syntax; empty: no preference
  std::string socket_family;  // AF_INET, AF_INET6; empty: no preference
  PortRange ports;
  int rank = -1;           // set by hand for pithCommInitEnv; -1: from the launcher
  int size = 0;            // 0: from the launcher
  std::string root;        // host:port; empty: from the launcher
  std::uint16_t port = 0;  // of the bootstrap root; 0: derived from the launcher's variables
  std::string secret;
  std::string secret_file;
  bool insecure = false;
  std::string launcher;  // empty: any
  double init_timeout = 120;
  double join_timeout = 0;
  double timeout = 300;  // 0: never
  double heartbeat = 10;
  std::string log = "warn";
  std::string trace;  // path prefix; empty: no trace
  struct Explain {
    bool changes = false;
    std::string log;  // path; empty: none
  } explain;
  struct LinkFiles {
    std::string given;  // path; empty: none
    std::string kept;   // path; empty: none
  } links;
  // Only for libnccl.so.2, which parses them: see src/nccl.
  std::string compress;  // spec of compressors, with min= and types=; empty: off
  std::string compress_comm = "world";
  struct Fallback {
    std::string library;  // path of another libnccl.so.2; empty: none
    std::string for_calls = "auto";
    std::string lines;  // costs that "auto" compares; empty: none
  } fallback;

  double wait_for_ranks_s() const {
    return join_timeout > init_timeout ? join_timeout : init_timeout;
  }
};

// Documents and handles one setting. Settings of scope `agreed` must be equal on all ranks, because
// the choice of algorithms depends on them.
struct SettingInfo {
  enum class Scope { agreed, local };
  std::string_view name;
  Scope scope;
  std::string_view meaning;
  std::string (*value)(const Settings&);
  // Parses `text`; the error says what is wrong with it.
  Error (*set)(Settings&, const std::string& text);
};

std::span<const SettingInfo> setting_table();

// Reads the environment at every call: each communicator reads its settings when it is created.
Expected<Settings> settings_from_environment();

// Values that a library built on this one sets, by name; PITH_<name> in the environment overrides
// them.
void set_defaults(std::map<std::string, std::string> values);

// Whether the environment sets this variable (full name). The user's value for a library that Pith
// uses takes precedence.
bool in_environment(const std::string& name);

// Those of `names` that are set, with their values; used for launchers' variables.
using Variables = std::map<std::string, std::string, std::less<>>;
Variables variables_from_environment(std::span<const std::string_view> names);

// "name=value" lines of the agreed settings; and what differs between two such texts: empty, or
// "PITH_CHUNK=65536 there, PITH_CHUNK=4096 here".
std::string agreed_text(const Settings& settings);
std::string difference(std::string_view theirs, std::string_view ours);

}  // namespace pith
