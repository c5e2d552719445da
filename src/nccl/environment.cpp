#include "nccl/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <mutex>
#include <vector>

#include "core/log.hpp"
#include "nccl/conf_file.hpp"
#include "nccl/log_lines.hpp"
#include "nccl/rdma_devices.hpp"
#include "settings/settings.hpp"
#include "transport/transport_table.hpp"

namespace pith::nccl {

namespace {

constexpr auto names = std::to_array<std::string_view>({"NCCL_DEBUG",
                                                        "NCCL_DEBUG_FILE",
                                                        "NCCL_DEBUG_SUBSYS",
                                                        "NCCL_DEBUG_TIMESTAMP_FORMAT",
                                                        "NCCL_DEBUG_TIMESTAMP_LEVELS",
                                                        "NCCL_HOSTID",
                                                        "NCCL_SOCKET_IFNAME",
                                                        "NCCL_SOCKET_FAMILY",
                                                        "NCCL_COMM_ID",
                                                        "NCCL_COMM_BLOCKING",
                                                        "NCCL_SHM_DISABLE",
                                                        "NCCL_ALGO",
                                                        "NCCL_PROTO",
                                                        "NCCL_P2P_DISABLE",
                                                        "NCCL_P2P_LEVEL",
                                                        "NCCL_NET_GDR_LEVEL",
                                                        "NCCL_NET_PLUGIN",
                                                        "NCCL_OOB_NET_IFNAME",
                                                        "NCCL_BUFFSIZE",
                                                        "NCCL_NET",
                                                        "NCCL_SOCKET_NTHREADS",
                                                        "NCCL_NSOCKS_PERTHREAD",
                                                        "NCCL_SOCKET_RETRY_CNT",
                                                        "NCCL_SOCKET_RETRY_SLEEP_MSEC",
                                                        "NCCL_IB_HCA",
                                                        "NCCL_IB_DISABLE",
                                                        "NCCL_IB_GID_INDEX",
                                                        "NCCL_IB_RETRY_CNT",
                                                        "NCCL_IB_TIMEOUT",
                                                        "NCCL_IB_PCI_RELAXED_ORDERING",
                                                        "NCCL_IB_TC",
                                                        "NCCL_IB_PKEY",
                                                        "NCCL_IB_SL"});

// Variables that users set and that have no effect here.
constexpr std::array without_effect = std::to_array<std::string_view>(
    {"NCCL_CHECK_POINTERS", "NCCL_WARN_ENABLE_DEBUG_INFO", "NCCL_IB_QPS_PER_CONNECTION",
     "NCCL_IB_AR_THRESHOLD", "NCCL_DMABUF_ENABLE", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN",
     "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_NTHREADS",
     "NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_TOPO_FILE", "NCCL_RAS_ENABLE", "NCCL_RAS_ADDR",
     "NCCL_PROTO"});

std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string value_of(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Non-empty parts between separators, as strtok returns them.
std::vector<std::string> words(const std::string& text, char separator) {
  std::vector<std::string> parts = split(text, separator);
  std::erase(parts, std::string());
  return parts;
}

std::string log_level(const std::string& debug) {
  static const std::map<std::string, std::string> levels = {
      {"warn", "warn"}, {"info", "info"}, {"abort", "info"}, {"trace", "debug"}};
  const auto found = levels.find(in_lower_case(debug));
  return found == levels.end() ? "error" : found->second;
}

// One of NCCL's rules, "[function:]token,token" or "^token,token". All names of NCCL's algorithms
// and protocols are accepted; only those that Pith also has make a difference.
struct Rule {
  bool excludes = false;
  std::string function;  // empty: all
  std::vector<std::string> tokens;
};

bool is_among(const std::vector<std::string>& known, const std::string& word) {
  return std::find(known.begin(), known.end(), word) != known.end();
}

Expected<Rule> read_rule(const std::string& text, bool first,
                         const std::vector<std::string>& known) {
  static const std::vector<std::string> functions = {"broadcast", "reduce", "allgather",
                                                     "reducescatter", "allreduce"};
  const auto unknown = [](const std::string& word, const std::vector<std::string>& expected) {
    return Error(Code::invalid_usage, fmt::format("\"{}\" is unknown, expected some of {}", word,
                                                  fmt::join(expected, ", ")));
  };
  Rule rule;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos && !first) {
    return Error(Code::invalid_usage,
                 fmt::format("\"{}\" names no function, which only the first may not", text));
  }
  if (colon != std::string::npos) {
    rule.function = text.substr(0, colon);
    if (!is_among(functions, rule.function)) return unknown(rule.function, functions);
  }
  std::string list = colon == std::string::npos ? text : text.substr(colon + 1);
  rule.excludes = list.starts_with('^');
  if (rule.excludes) list.erase(0, 1);
  rule.tokens = words(list, ',');
  for (const std::string& token : rule.tokens) {
    if (!is_among(known, token)) return unknown(token, known);
  }
  return rule;
}

Expected<std::vector<Rule>> read_rules(std::string_view variable, const std::string& text,
                                       const std::vector<std::string>& known) {
  std::vector<Rule> rules;
  for (const std::string& part : words(in_lower_case(text), ';')) {
    Expected<Rule> rule = read_rule(part, rules.empty(), known);
    if (!rule) {
      return Error(rule.error().code(),
                   fmt::format("{} is \"{}\": {}", variable, text, rule.error().message()));
    }
    rules.push_back(std::move(*rule));
  }
  return rules;
}

// Pith's setting for all-reduce if the rules leave only ring or only tree.
std::string algorithm_of(const std::vector<Rule>& rules) {
  bool ring = true;
  bool tree = true;
  for (const Rule& rule : rules) {
    if (!rule.function.empty() && rule.function != "allreduce") continue;
    const auto names_it = [&](const char* name) {
      return std::find(rule.tokens.begin(), rule.tokens.end(), name) != rule.tokens.end();
    };
    ring = names_it("ring") != rule.excludes;
    tree = names_it("tree") != rule.excludes;
  }
  if (ring == tree) return {};
  return ring ? "allreduce:ring" : "allreduce:double_tree";
}

const std::vector<std::string>& known_algorithms() {
  static const std::vector<std::string> algorithms = {
      "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
  return algorithms;
}

Error check_choice(const Variables& variables, std::map<std::string, std::string>& defaults) {
  static const std::vector<std::string> protocols = {"ll", "ll128", "simple"};
  const std::string algo = value_of(variables, "NCCL_ALGO");
  if (!algo.empty()) {
    const auto rules = read_rules("NCCL_ALGO", algo, known_algorithms());
    if (!rules) return rules.error();
    defaults["ALGO"] = algorithm_of(*rules);
  }
  const std::string proto = value_of(variables, "NCCL_PROTO");
  if (proto.empty()) return {};
  const auto rules = read_rules("NCCL_PROTO", proto, protocols);
  return rules ? Error() : rules.error();
}

Error check_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits =
      !port.empty() && port.size() <= 5 &&
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (digits && colon > 0 && std::stoi(port) >= 1 && std::stoi(port) <= 65535) return {};
  return {Code::invalid_argument,
          fmt::format("NCCL_COMM_ID is \"{}\", expected host:port or [IPv6 address]:port", text)};
}

// NCCL splits a channel's buffer (4 MiB by default) into this many parts, its chunks.
std::string chunk_of(const std::string& buffer) {
  constexpr std::size_t parts = 8;
  std::size_t bytes = 0;
  const auto [end, status] = std::from_chars(buffer.data(), buffer.data() + buffer.size(), bytes);
  const bool whole = status == std::errc() && end == buffer.data() + buffer.size();
  return whole && bytes >= parts ? std::to_string(bytes / parts) : std::string();
}

// 0 if it is not an integer.
int number_of(const Variables& variables, std::string_view name) {
  const std::string text = value_of(variables, name);
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size() ? number : 0;
}

// Connections per pair of ranks: NCCL's threads times sockets per thread, each 1 if unset.
std::string streams_of(const Variables& variables) {
  constexpr int most = 16;
  const int threads = number_of(variables, "NCCL_SOCKET_NTHREADS");
  const int sockets = number_of(variables, "NCCL_NSOCKS_PERTHREAD");
  if (threads <= 0 && sockets <= 0) return {};
  constexpr int most_of_each = 64;
  const int product = std::clamp(threads, 1, most_of_each) * std::clamp(sockets, 1, most_of_each);
  return std::to_string(std::min(product, most));
}

// NCCL waits for missing ranks without limit, since programs create communicators by their first
// calls, which may be minutes apart. Only where the root may be missing does it give up, after a
// number of attempts to connect with growing pauses. Our default is never shortened.
std::string patience_of(const Variables& variables) {
  constexpr int retries_by_default = 34;
  constexpr int pause_by_default_ms = 100;
  constexpr double most_s = 86400;
  if (value_of(variables, "NCCL_COMM_ID").empty()) return fmt::format("{}", most_s);
  const int retries = number_of(variables, "NCCL_SOCKET_RETRY_CNT");
  const int pause_ms = number_of(variables, "NCCL_SOCKET_RETRY_SLEEP_MSEC");
  if (retries <= 0 && pause_ms <= 0) return {};
  const double n = retries > 0 ? retries : retries_by_default;
  const double seconds = n * (n + 1) / 2 * (pause_ms > 0 ? pause_ms : pause_by_default_ms) * 1e-3;
  return seconds > Settings().init_timeout ? fmt::format("{}", std::min(seconds, most_s))
                                           : std::string();
}

// InfiniBand counts doublings of 4.096 microseconds; UCX takes a time and rounds it.
std::string ib_timeout_of(const Variables& variables) {
  constexpr int most = 31;
  const int step = number_of(variables, "NCCL_IB_TIMEOUT");
  if (step < 1 || step > most) return {};
  return fmt::format("{:.0f}us", 4.096 * static_cast<double>(std::uint32_t{1} << step));
}

// 2 means automatic, which is UCX's default.
std::string relaxed_ordering_of(const Variables& variables) {
  const std::string text = value_of(variables, "NCCL_IB_PCI_RELAXED_ORDERING");
  if (text != "0" && text != "1") return {};
  return text == "1" ? "on" : "off";
}

// The distance level that forbids a use altogether.
bool is_never(const std::string& level) { return level == "LOC" || level == "0"; }

// Translates NCCL's variables to UCX's.
void set_up_ucx(const Variables& variables, std::map<std::string, std::string>& defaults) {
  defaults["UCX_NET_DEVICES"] = rdma_devices(value_of(variables, "NCCL_IB_HCA"));
  defaults["UCX_IB_GID_INDEX"] = value_of(variables, "NCCL_IB_GID_INDEX");
  defaults["UCX_RC_RETRY_COUNT"] = value_of(variables, "NCCL_IB_RETRY_CNT");
  defaults["UCX_IB_TRAFFIC_CLASS"] = value_of(variables, "NCCL_IB_TC");
  defaults["UCX_IB_SL"] = value_of(variables, "NCCL_IB_SL");
  defaults["UCX_RC_TIMEOUT"] = ib_timeout_of(variables);
  defaults["UCX_IB_PCI_RELAXED_ORDERING"] = relaxed_ordering_of(variables);
}

// Translates them to our own setting of RDMA devices. Empty: none of them says anything.
std::string verbs_of(const Variables& variables) {
  VerbsSettings verbs;
  verbs.devices = rdma_devices(value_of(variables, "NCCL_IB_HCA"));
  const auto set = [&](const char* name, int least, int most, int& out) {
    const int number = number_of(variables, name);
    const bool given = !value_of(variables, name).empty();
    if (given && number >= least && number <= most) out = number;
  };
  set("NCCL_IB_GID_INDEX", 0, 255, verbs.gid);
  set("NCCL_IB_PKEY", 0, 65535, verbs.pkey);
  set("NCCL_IB_TC", 0, 255, verbs.traffic_class);
  set("NCCL_IB_SL", 0, 15, verbs.level);
  set("NCCL_IB_TIMEOUT", 1, 31, verbs.timeout);
  set("NCCL_IB_RETRY_CNT", 0, 7, verbs.retries);
  return verbs.text();
}

// Pith's setting that excludes the transports which NCCL's variables disable.
std::string transports_of(const Variables& variables) {
  const auto is_unwanted = [&](Medium medium) {
    const std::string net = in_lower_case(value_of(variables, "NCCL_NET"));
    switch (medium) {
      case Medium::shared_memory:
        return value_of(variables, "NCCL_SHM_DISABLE") == "1";
      case Medium::rdma:
        return net == "socket" || value_of(variables, "NCCL_IB_DISABLE") == "1";
      case Medium::sockets:
        return net == "ib";
      case Medium::threads:
        break;
    }
    return false;
  };
  std::vector<std::string_view> unwanted;
  for (const TransportFactory* transport : transport_table()) {
    if (is_unwanted(transport->medium)) unwanted.push_back(transport->name);
  }
  return unwanted.empty() ? std::string() : fmt::format("^{}", fmt::join(unwanted, ","));
}

// NCCL's files may contain Pith's own settings, which take precedence over NCCL's variables.
void add_own_settings(const Variables& files, std::map<std::string, std::string>& defaults) {
  constexpr std::string_view prefix = "PITH_";
  for (const auto& [name, value] : files) {
    if (name.starts_with(prefix) && !value.empty()) defaults[name.substr(prefix.size())] = value;
  }
}

// Pith's log level for NCCL_DEBUG; as in NCCL an unknown word means silence. Empty if not set.
std::string read_debug(const Variables& variables) {
  const std::string debug = value_of(variables, "NCCL_DEBUG");
  if (debug.empty()) return {};
  std::string level = log_level(debug);
  if (!in_environment("PITH_LOG")) set_log_level(level);
  open_log(variables);
  return level;
}

void say_what_has_no_effect() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::vector<std::string> found = variables_without_effect();
    if (found.empty()) return;
    log(LogLevel::info, fmt::format("without effect in Pith: {}", fmt::join(found, ", ")),
        LogTopic::env);
  });
}

}  // namespace

std::vector<std::string> variables_without_effect() {
  std::vector<std::string> found;
  const Variables files = variables_from_files();
  for (const auto& [name, value] : variables_named(without_effect, files)) {
    found.emplace_back(name);
  }
  const Variables variables = variables_named(names, files);
  const std::string algo = value_of(variables, "NCCL_ALGO");
  const auto rules = read_rules("NCCL_ALGO", algo, known_algorithms());
  if (!algo.empty() && rules && algorithm_of(*rules).empty()) found.emplace_back("NCCL_ALGO");
  const std::string net = in_lower_case(value_of(variables, "NCCL_NET"));
  if (!net.empty() && net != "socket" && net != "ib") found.emplace_back("NCCL_NET");
  for (const char* name : {"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"}) {
    const std::string level = value_of(variables, name);
    if (!level.empty() && !is_never(level)) found.emplace_back(name);
  }
  const std::string plugin = in_lower_case(value_of(variables, "NCCL_NET_PLUGIN"));
  if (!plugin.empty() && plugin != "none") found.emplace_back("NCCL_NET_PLUGIN");
  const std::string devices = value_of(variables, "NCCL_IB_HCA");
  if (!devices.empty() && rdma_devices(devices).empty()) found.emplace_back("NCCL_IB_HCA");
  return found;
}

void read_debug_once() {
  static std::once_flag once;
  std::call_once(once, [] { read_debug(variables_named(names, variables_from_files())); });
}

Expected<Environment> read_environment() {
  const Variables files = variables_from_files();
  const Variables variables = variables_named(names, files);
  std::map<std::string, std::string> defaults;
  defaults.emplace("TIMEOUT", "0");  // as NCCL: frameworks have their own watchdogs
  for (const char* name : {"NCCL_OOB_NET_IFNAME", "NCCL_SOCKET_IFNAME"}) {  // the last one counts
    if (value_of(variables, name).empty()) continue;
    defaults["IFNAME"] = value_of(variables, name);
    defaults["FROM_IFNAME"] = name;
  }
  const std::string family = value_of(variables, "NCCL_SOCKET_FAMILY");
  if (family == "AF_INET" || family == "AF_INET6") {
    defaults["SOCKET_FAMILY"] = family;
    defaults["FROM_SOCKET_FAMILY"] = "NCCL_SOCKET_FAMILY";
  }
  defaults["TRANSPORT"] = transports_of(variables);
  defaults["CHUNK"] = chunk_of(value_of(variables, "NCCL_BUFFSIZE"));
  defaults["VERBS"] = verbs_of(variables);
  set_up_ucx(variables, defaults);
  defaults["STREAMS"] = streams_of(variables);
  const bool told = in_environment("PITH_INIT_TIMEOUT") || files.contains("PITH_INIT_TIMEOUT");
  if (!told) defaults["JOIN_TIMEOUT"] = patience_of(variables);
  const bool no_p2p = value_of(variables, "NCCL_P2P_DISABLE") == "1";
  if (no_p2p || is_never(value_of(variables, "NCCL_P2P_LEVEL"))) {
    defaults.emplace("CUDA_IPC", "0");
  }
  if (is_never(value_of(variables, "NCCL_NET_GDR_LEVEL"))) defaults.emplace("GPUDIRECT", "0");
  defaults["HOST_ID"] = value_of(variables, "NCCL_HOSTID");
  defaults["LOG"] = read_debug(variables);
  say_what_has_no_effect();
  if (Error error = check_choice(variables, defaults)) return error;
  std::erase_if(defaults, [](const auto& one) { return one.second.empty(); });
  add_own_settings(files, defaults);
  set_defaults(std::move(defaults));

  Environment environment;
  environment.comm_id = value_of(variables, "NCCL_COMM_ID");
  if (!environment.comm_id.empty()) {
    if (Error error = check_address(environment.comm_id)) return error;
  }
  const std::string blocking = value_of(variables, "NCCL_COMM_BLOCKING");
  if (blocking == "0" || blocking == "1") environment.blocking = blocking == "1" ? 1 : 0;
  return environment;
}

}  // namespace pith::nccl
