#include "settings/settings.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "settings/setting_values.hpp"
#include "settings/settings_origin.hpp"

namespace pith {

namespace {

using Scope = SettingInfo::Scope;

constexpr int most_ranks = 1 << 20;

Error keep(const std::string& text, std::string& out) {
  out = text;
  return {};
}

std::string flag(bool value) { return value ? "1" : "0"; }

// Shows that a secret is set without showing it.
std::string veil(const std::string& secret) { return secret.empty() ? "" : "(set)"; }

constexpr std::array table{
    SettingInfo{"ALGO", Scope::agreed,
                "algorithms to use: collective:name[,...], or a name alone for all that have it",
                [](const Settings& s) { return s.algo; },
                [](Settings& s, const std::string& text) { return keep(text, s.algo); }},
    SettingInfo{
        "TRANSPORT", Scope::agreed,
        "transports to use, of those that pith-info --transports lists, best first; or ^ and those "
        "not to use. Unset: all, but verbs and ucx only between hosts with RDMA",
        [](const Settings& s) { return s.transport; },
        [](Settings& s, const std::string& text) { return set_transport(text, s); }},
    SettingInfo{"CHUNK", Scope::agreed,
                "bytes of a chunk in pipelined algorithms, of which a rank keeps up to "
                "some 15; 0: 64 KiB between ranks that share memory, else 512 KiB",
                [](const Settings& s) { return std::to_string(s.chunk); },
                [](Settings& s, const std::string& text) {
                  return set_integer<std::size_t>("CHUNK", text, 0, std::size_t{1} << 30, s.chunk);
                }},
    SettingInfo{"LANES", Scope::agreed, "chunks of one sequence in flight; 0: by transport",
                [](const Settings& s) { return std::to_string(s.lanes); },
                [](Settings& s, const std::string& text) {
                  return set_integer("LANES", text, 0, 8, s.lanes);
                }},
    SettingInfo{"STREAMS", Scope::agreed,
                "TCP connections between two ranks; fewer where the hard limit of descriptors is "
                "too low, one "
                "where a host runs more than 32 ranks",
                [](const Settings& s) { return std::to_string(s.tcp.streams); },
                [](Settings& s, const std::string& text) {
                  return set_integer("STREAMS", text, 1, 16, s.tcp.streams);
                }},
    SettingInfo{"CONNECT_RANKS", Scope::agreed,
                "up to this many ranks TCP connects all pairs at start-up; beyond, neighbours, and "
                "others when a message wants them; 0: as many as there are descriptors for",
                [](const Settings& s) { return std::to_string(s.tcp.connect_ranks); },
                [](Settings& s, const std::string& text) {
                  return set_integer("CONNECT_RANKS", text, 0, most_ranks, s.tcp.connect_ranks);
                }},
    SettingInfo{"RAILS", Scope::local,
                "network interfaces that share the TCP connections between two ranks, of those "
                "that IFNAME allows, each in a network of its own; both ranks' must be as many",
                [](const Settings& s) { return std::to_string(s.tcp.rails); },
                [](Settings& s, const std::string& text) {
                  return set_integer("RAILS", text, 1, 8, s.tcp.rails);
                }},
    SettingInfo{
        "ENCRYPT", Scope::agreed,
        "1: what ranks send each other over a network is encrypted (AES-256-GCM, by OpenSSL's "
        "libcrypto); verbs and ucx are not used then",
        [](const Settings& s) { return flag(s.tcp.encrypt); },
        [](Settings& s, const std::string& text) {
          return set_flag("ENCRYPT", text, s.tcp.encrypt);
        }},
    SettingInfo{"RECONNECT", Scope::agreed,
                "hosts: a TCP connection between two hosts that breaks while both processes live "
                "is made anew and goes on where it was; what is sent is copied for that; always: "
                "inside a host, too; never: the break is the end of the peer",
                [](const Settings& s) { return s.tcp.reconnect; },
                [](Settings& s, const std::string& text) {
                  if (text != "hosts" && text != "always" && text != "never") {
                    return bad_value("RECONNECT", text, "hosts, always or never");
                  }
                  s.tcp.reconnect = text;
                  return Error();
                }},
    SettingInfo{"ORDER", Scope::agreed,
                "topology: rings and trees walk the ranks host by host and core by core; rank: as "
                "they are numbered",
                [](const Settings& s) { return s.order; },
                [](Settings& s, const std::string& text) {
                  if (text != "topology" && text != "rank") {
                    return bad_value("ORDER", text, "topology or rank");
                  }
                  s.order = text;
                  return Error();
                }},
    SettingInfo{
        "DETERMINISTIC", Scope::agreed,
        "1: the same bits in every run, on whatever machine, as long as the ranks and their "
        "arguments are the same; slower",
        [](const Settings& s) { return flag(s.deterministic); },
        [](Settings& s, const std::string& text) {
          return set_flag("DETERMINISTIC", text, s.deterministic);
        }},
    SettingInfo{
        "LEARN", Scope::agreed,
        "1: calls are timed, and choices follow; 0: they stay, as with PITH_DETERMINISTIC",
        [](const Settings& s) { return flag(s.learn); },
        [](Settings& s, const std::string& text) { return set_flag("LEARN", text, s.learn); }},
    SettingInfo{"EXPLAIN", Scope::local, "1: rank 0 logs every choice that changes, and why",
                [](const Settings& s) { return flag(s.explain.changes); },
                [](Settings& s, const std::string& text) {
                  return set_flag("EXPLAIN", text, s.explain.changes);
                }},
    SettingInfo{"EXPLAIN_LOG", Scope::local,
                "file that rank 0 replaces once a second, for pith-explain --log: what is chosen, "
                "and the times of blocking calls",
                [](const Settings& s) { return s.explain.log; },
                [](Settings& s, const std::string& text) { return keep(text, s.explain.log); }},
    SettingInfo{"LINKS", Scope::local,
                "file that rank 0 reads: the links that the job begins with, by PITH_SAVE_LINKS of "
                "an earlier run or pith-info --links --save; not with PITH_DETERMINISTIC",
                [](const Settings& s) { return s.links.given; },
                [](Settings& s, const std::string& text) { return keep(text, s.links.given); }},
    SettingInfo{"SAVE_LINKS", Scope::local,
                "file that rank 0 writes: what it has learnt of the links, for PITH_LINKS of a "
                "later run; may be the same file",
                [](const Settings& s) { return s.links.kept; },
                [](Settings& s, const std::string& text) { return keep(text, s.links.kept); }},
    SettingInfo{"COPY_BYTES", Scope::local,
                "private memory from this size on is copied between processes; 0: never",
                [](const Settings& s) { return std::to_string(s.copy_bytes); },
                [](Settings& s, const std::string& text) {
                  return set_integer<std::size_t>("COPY_BYTES", text, 0, std::size_t{1} << 40,
                                                  s.copy_bytes);
                }},
    SettingInfo{"CUDA_IPC", Scope::local,
                "0: kernels touch no device memory of other ranks; it goes by way of the host",
                [](const Settings& s) { return flag(s.cuda_ipc); },
                [](Settings& s, const std::string& text) {
                  return set_flag("CUDA_IPC", text, s.cuda_ipc);
                }},
    SettingInfo{"GPUDIRECT", Scope::local,
                "whether ucx and verbs read and write device memory without the host: 0: never; 1: "
                "always by ucx, by verbs where the RDMA device takes dma-bufs and CUDA gives them; "
                "auto: by ucx where an RDMA device and a kernel module are there that can",
                [](const Settings& s) { return s.gpudirect; },
                [](Settings& s, const std::string& text) {
                  if (text != "auto" && text != "0" && text != "1") {
                    return bad_value("GPUDIRECT", text, "auto, 0 or 1");
                  }
                  s.gpudirect = text;
                  return Error();
                }},
    SettingInfo{"VERBS", Scope::local, verbs_settings_meaning,
                [](const Settings& s) { return s.verbs.text(); },
                [](Settings& s, const std::string& text) {
                  Expected<VerbsSettings> verbs = parse_verbs_settings(text);
                  if (verbs) s.verbs = std::move(*verbs);
                  return verbs.error();
                }},
    SettingInfo{"CUDA_STEPS", Scope::local,
                "launch: each step of a call on device memory is a kernel or copy of its own; "
                "worker: one kernel on the caller's stream runs them all; auto: worker, but launch "
                "where ranks of other processes use the same device, unless "
                "CUDA_DEVICE_MAX_CONNECTIONS is 1, as streams then hold up each other's launches; "
                "CUDA_LAUNCH_BLOCKING: launch, as a worker's launch would wait for the call's end",
                [](const Settings& s) { return s.cuda_steps; },
                [](Settings& s, const std::string& text) {
                  if (text != "auto" && text != "launch" && text != "worker") {
                    return bad_value("CUDA_STEPS", text, "auto, launch or worker");
                  }
                  s.cuda_steps = text;
                  return Error();
                }},
    SettingInfo{"CUDA_BLOCKS", Scope::local,
                "blocks of a worker's kernel; the most of one that reduces several ranks' vectors",
                [](const Settings& s) { return std::to_string(s.cuda_blocks); },
                [](Settings& s, const std::string& text) {
                  return set_integer("CUDA_BLOCKS", text, 1U, 1024U, s.cuda_blocks);
                }},
    SettingInfo{"HOST", Scope::local,
                "address by which other ranks reach this process; else by IFNAME",
                [](const Settings& s) { return s.host; },
                [](Settings& s, const std::string& text) { return set_host(text, s); }},
    SettingInfo{"HOST_ID", Scope::local,
                "ranks whose ids differ count as on other hosts: they share no memory",
                [](const Settings& s) { return s.host_id; },
                [](Settings& s, const std::string& text) { return keep(text, s.host_id); }},
    SettingInfo{"IFNAME", Scope::local,
                "network interfaces: prefixes, or =names; ^ before the list: all others",
                [](const Settings& s) { return s.ifname; },
                [](Settings& s, const std::string& text) { return set_ifname(text, s); }},
    SettingInfo{"SOCKET_FAMILY", Scope::local, "AF_INET or AF_INET6",
                [](const Settings& s) { return s.socket_family; },
                [](Settings& s, const std::string& text) {
                  if (text != "AF_INET" && text != "AF_INET6") {
                    return bad_value("SOCKET_FAMILY", text, "AF_INET or AF_INET6");
                  }
                  s.socket_family = text;
                  return Error();
                }},
    SettingInfo{"PORT_RANGE", Scope::local, "ports to listen on, as first-last; else any",
                [](const Settings& s) {
                  return s.ports.first == 0 ? ""
                                            : fmt::format("{}-{}", s.ports.first, s.ports.last);
                },
                [](Settings& s, const std::string& text) { return set_port_range(text, s); }},
    SettingInfo{"RANK", Scope::local, "this rank, by hand; with SIZE and ROOT, before any launcher",
                [](const Settings& s) { return s.rank < 0 ? "" : std::to_string(s.rank); },
                [](Settings& s, const std::string& text) {
                  return set_integer("RANK", text, 0, most_ranks - 1, s.rank);
                }},
    SettingInfo{"SIZE", Scope::local, "number of ranks, by hand; with RANK and ROOT",
                [](const Settings& s) { return s.size == 0 ? "" : std::to_string(s.size); },
                [](Settings& s, const std::string& text) {
                  return set_integer("SIZE", text, 1, most_ranks, s.size);
                }},
    SettingInfo{"ROOT", Scope::local, "host:port where rank 0 listens, by hand; with RANK and SIZE",
                [](const Settings& s) { return s.root; },
                [](Settings& s, const std::string& text) { return set_root(text, s); }},
    SettingInfo{"PORT", Scope::local,
                "port where rank 0 listens under torchrun and srun; else derived from theirs",
                [](const Settings& s) { return s.port == 0 ? "" : std::to_string(s.port); },
                [](Settings& s, const std::string& text) {
                  return set_integer<std::uint16_t>("PORT", text, 1, 65535, s.port);
                }},
    SettingInfo{"SECRET", Scope::local,
                "what only this job's ranks know, when started by torchrun, srun or by hand",
                [](const Settings& s) { return veil(s.secret); },
                [](Settings& s, const std::string& text) { return keep(text, s.secret); }},
    SettingInfo{"SECRET_FILE", Scope::local, "file that holds the secret, instead of SECRET",
                [](const Settings& s) { return s.secret_file; },
                [](Settings& s, const std::string& text) { return keep(text, s.secret_file); }},
    SettingInfo{"LAUNCHER", Scope::local,
                "whose variables say which rank this is, where several launchers' are there and "
                "disagree: torchrun, openmpi, mpich or srun",
                [](const Settings& s) { return s.launcher; },
                [](Settings& s, const std::string& text) {
                  if (text != "torchrun" && text != "openmpi" && text != "mpich" &&
                      text != "srun") {
                    return bad_value("LAUNCHER", text, "torchrun, openmpi, mpich or srun");
                  }
                  s.launcher = text;
                  return Error();
                }},
    SettingInfo{"INSECURE", Scope::local,
                "1: start on several hosts without a secret; whoever reaches the port can join",
                [](const Settings& s) { return flag(s.insecure); },
                [](Settings& s, const std::string& text) {
                  return set_flag("INSECURE", text, s.insecure);
                }},
    SettingInfo{"INIT_TIMEOUT", Scope::local,
                "seconds a start-up may take, from when all ranks have come if JOIN_TIMEOUT is set",
                [](const Settings& s) { return fmt::format("{}", s.init_timeout); },
                [](Settings& s, const std::string& text) {
                  return set_number("INIT_TIMEOUT", text, 0.1, 86400, s.init_timeout);
                }},
    SettingInfo{"JOIN_TIMEOUT", Scope::local,
                "seconds to wait for ranks that have not come, INIT_TIMEOUT at least",
                [](const Settings& s) { return fmt::format("{}", s.join_timeout); },
                [](Settings& s, const std::string& text) {
                  return set_number("JOIN_TIMEOUT", text, 0, 86400, s.join_timeout);
                }},
    SettingInfo{"TIMEOUT", Scope::local,
                "seconds a call may stand still before the communicator is revoked; 0: for ever",
                [](const Settings& s) { return fmt::format("{}", s.timeout); },
                [](Settings& s, const std::string& text) {
                  return set_number("TIMEOUT", text, 0, 1e9, s.timeout);
                }},
    SettingInfo{"HEARTBEAT", Scope::local,
                "seconds after which a host or link that does not answer is given up; half as long "
                "again, and 3 at least, where nothing was under way",
                [](const Settings& s) { return fmt::format("{}", s.heartbeat); },
                [](Settings& s, const std::string& text) {
                  return set_number("HEARTBEAT", text, 1, 86400, s.heartbeat);
                }},
    SettingInfo{"LOG", Scope::local, "error, warn, info or debug; to standard error",
                [](const Settings& s) { return s.log; },
                [](Settings& s, const std::string& text) {
                  for (const char* known : {"error", "warn", "info", "debug"}) {
                    if (text == known) {
                      s.log = text;
                      return Error();
                    }
                  }
                  return bad_value("LOG", text, "error, warn, info or debug");
                }},
    SettingInfo{"TRACE", Scope::local,
                "begin of the paths of files that record each rank's steps, for pith-trace",
                [](const Settings& s) { return s.trace; },
                [](Settings& s, const std::string& text) { return keep(text, s.trace); }},
    SettingInfo{"COMPRESS", Scope::agreed,
                "libnccl.so.2: compressor of large sums, as ar-topk:density=0.01,min=1MiB",
                [](const Settings& s) { return s.compress; },
                [](Settings& s, const std::string& text) { return keep(text, s.compress); }},
    SettingInfo{"COMPRESS_COMM", Scope::agreed,
                "libnccl.so.2: communicators that are compressed: world, or a pattern on names",
                [](const Settings& s) { return s.compress_comm; },
                [](Settings& s, const std::string& text) { return keep(text, s.compress_comm); }},
    SettingInfo{
        "NCCL_FALLBACK", Scope::local,
        "libnccl.so.2: path of NVIDIA's, for collectives that Pith does not speed up",
        [](const Settings& s) { return s.fallback.library; },
        [](Settings& s, const std::string& text) { return keep(text, s.fallback.library); }},
    SettingInfo{
        "NCCL_FALLBACK_FOR", Scope::agreed,
        "auto: device memory that is not compressed; or only of some collectives, as "
        "broadcast,allgather; host memory stays here",
        [](const Settings& s) { return s.fallback.for_calls; },
        [](Settings& s, const std::string& text) { return keep(text, s.fallback.for_calls); }},
    SettingInfo{"NCCL_FALLBACK_LINES", Scope::agreed,
                "libnccl.so.2: microseconds and GB/s of a message by Pith, then by NVIDIA's, as "
                "20:10,15:22: auto then sends there what the model says is faster there",
                [](const Settings& s) { return s.fallback.lines; },
                [](Settings& s, const std::string& text) { return keep(text, s.fallback.lines); }},
};

struct Defaults {
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

Defaults& defaults() {
  static auto* const instance = new Defaults;  // never destroyed: threads may outlive main
  return *instance;
}

// From the environment, else from the defaults; empty where neither sets it.
std::string text_of(std::string_view name) {
  const char* text = std::getenv(fmt::format("PITH_{}", name).c_str());
  if (text && *text) return text;
  const std::lock_guard lock(defaults().mutex);
  const auto found = defaults().values.find(std::string(name));
  return found == defaults().values.end() ? std::string() : found->second;
}

// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace

std::span<const SettingInfo> setting_table() { return table; }

Expected<Settings> settings_from_environment() {
  Settings settings;
  for (const SettingInfo& info : table) {
    const std::string text = text_of(info.name);
    if (text.empty()) continue;
    if (Error error = info.set(settings, text)) return error;
  }
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  settings.one_cuda_connection = connections && std::string_view(connections) == "1";
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  settings.cuda_launches_block = blocking && *blocking && std::string_view(blocking) != "0";
  return settings;
}

void set_defaults(std::map<std::string, std::string> values) {
  const std::lock_guard lock(defaults().mutex);
  defaults().values = std::move(values);
}

Variables defaults_of_library(std::string_view prefix) {
  Variables found;
  const std::lock_guard lock(defaults().mutex);
  for (const auto& [name, value] : defaults().values) {
    if (name.starts_with(prefix)) found.emplace(name.substr(prefix.size()), value);
  }
  return found;
}

bool in_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  return text && *text;
}

std::string_view origin_of(std::string_view setting) {
  if (in_environment(fmt::format("PITH_{}", setting))) return "environment";
  return text_of(setting).empty() ? "default" : "library";
}

std::string variable_of(std::string_view setting) {
  const Variables from = defaults_of_library("FROM_");
  const auto found = from.find(setting);
  const bool told = found != from.end() && origin_of(setting) == "library";
  return told ? found->second : fmt::format("PITH_{}", setting);
}

Variables variables_from_environment(std::span<const std::string_view> names) {
  Variables found;
  for (const std::string_view name : names) {
    const char* text = std::getenv(std::string(name).c_str());
    if (text && *text) found.emplace(name, text);
  }
  return found;
}

std::string agreed_text(const Settings& settings) {
  std::string text;
  for (const SettingInfo& info : table) {
    if (info.scope == Scope::agreed)
      text += fmt::format("{}={}\n", info.name, info.value(settings));
  }
  return text;
}

std::string difference(std::string_view theirs, std::string_view ours) {
  while (!theirs.empty() || !ours.empty()) {
    const std::string_view their_line = next_line(theirs);
    const std::string_view our_line = next_line(ours);
    if (their_line == our_line) continue;
    return fmt::format("PITH_{} there, PITH_{} here", their_line, our_line);
  }
  return {};
}

}  // namespace pith
